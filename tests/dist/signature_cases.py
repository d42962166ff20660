"""Functions whose derived signatures are known: those of which all are listed, and others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import metaop

functional = metaop.nn.functional
random = np.random.default_rng(1)
LABELS = np.array([2, -100, 0, 1])
# Function, operands, signatures.
Case = tuple[Callable[..., Any], list[np.ndarray], str]


def normal(*shape: int) -> np.ndarray:
    return random.normal(size=shape)


def indices(bound: int, *shape: int) -> np.ndarray:
    return random.integers(0, bound, shape)


def conv2d(x: Any, w: Any) -> Any:
    return functional.conv2d(x, w, padding=1)


def layer_norm(x: Any, w: Any, b: Any) -> Any:
    return functional.layer_norm(x, (6,), w, b)


def batch_norm(x: Any, w: Any, b: Any) -> Any:
    return functional.batch_norm(x, None, None, w, b, training=True)


def segment_sum(x: Any, i: Any) -> Any:
    return metaop.zeros(4, x.shape[1], dtype=x.dtype).index_add(0, i, x)


def summed_cross_entropy(x: Any, labels: Any) -> Any:
    return functional.cross_entropy(x, labels, reduction="sum")


def index_add(x: Any, index: Any, source: Any) -> Any:
    return x.index_add(0, index, source)


def attention(q: Any, k: Any, v: Any) -> Any:
    return functional.scaled_dot_product_attention(q, k, v)


def matmul_gradient(a: Any, b: Any, g: Any) -> Any:
    return g @ b.transpose(0, 1), a.transpose(0, 1) @ g


# All signatures at 2 ranks that none of the others makes superfluous.
COMPLETE: dict[str, Case] = {
    "matmul": (
        metaop.matmul,
        [normal(5, 6), normal(6, 7)],
        "S0,B->S0 B,S1->S1 B,B->B S1,S0->P B,P->P P,B->P",
    ),
    "bmm": (
        metaop.bmm,
        [normal(5, 4, 6), normal(5, 6, 7)],
        "S0,S0->S0 S1,B->S1 B,S2->S2 B,B->B S2,S1->P B,P->P P,B->P",
    ),
    "conv2d": (
        conv2d,
        [normal(5, 4, 6, 6), normal(7, 4, 3, 3)],
        "S0,B->S0 B,S0->S1 B,B->B S1,S1->P S2,B->P S3,B->P B,S2->P B,S3->P B,P->P P,B->P",
    ),
    "max_pool2d": (
        lambda x: functional.max_pool2d(x, 2),
        [normal(4, 4, 8, 8)],
        "S0->S0 S1->S1 S2->S2 S3->S3 B->B",
    ),
    "avg_pool2d": (
        lambda x: functional.avg_pool2d(x, 3, 1, 1),
        [normal(4, 4, 8, 8)],
        "S0->S0 S1->S1 B->B S2->P S3->P P->P",
    ),
    "add": (lambda x, y: x + y, [normal(5, 4), normal(5, 4)], "S0,S0->S0 S1,S1->S1 B,B->B P,P->P"),
    "mul row": (
        lambda x, y: x * y,
        [normal(5, 4), normal(4)],
        "S0,B->S0 S1,S0->S1 B,B->B B,P->P P,B->P",
    ),
    "gelu": (functional.gelu, [normal(5, 4)], "S0->S0 S1->S1 B->B"),
    "sum": (lambda x: x.sum(1), [normal(5, 4)], "S0->S0 B->B S1->P P->P"),
    "mean of all": (lambda x: x.mean(), [normal(3, 4)], "B->B S0->P S1->P P->P"),
    "reshape": (lambda x: x.reshape(2, 6, 3), [normal(4, 9)], "S0->S0 B->B S1->P P->P"),
    "transpose": (lambda x: x.transpose(0, 2), [normal(3, 4, 2)], "S2->S0 S1->S1 S0->S2 B->B P->P"),
    "gather": (
        lambda x, i: metaop.gather(x, 1, i),
        [normal(5, 6), indices(6, 5, 4)],
        "S0,S0->S0 B,S1->S1 B,B->B S1,B->P P,B->P",
    ),
    "embedding": (
        functional.embedding,
        [indices(8, 5, 4), normal(8, 6)],
        "S0,B->S0 S1,B->S1 B,S1->S2 B,B->B B,S0->P B,P->P",
    ),
    "softmax": (lambda x: functional.softmax(x, 1), [normal(3, 4, 2)], "S0->S0 S2->S2 B->B"),
    "layer_norm": (
        layer_norm,
        [normal(5, 4, 6), normal(6), normal(6)],
        "S0,B,B->S0 S1,B,B->S1 B,S0,S0->S2 B,B,B->B B,S0,P->P B,P,S0->P B,P,P->P",
    ),
    "batch_norm": (
        batch_norm,
        [normal(5, 4, 6), normal(4), normal(4)],
        "S1,S0,S0->S1 B,B,B->B B,S0,P->P B,P,S0->P B,P,P->P",
    ),
    "cross_entropy sum": (summed_cross_entropy, [normal(4, 3), LABELS], "B,B->B S0,S0->P"),
    # The mean is over the labels that are not ignored, which every rank has to count.
    "cross_entropy": (functional.cross_entropy, [normal(4, 3), LABELS], "B,B->B S0,B->P"),
    "concat": (
        lambda x, y: metaop.cat([x, y], 0),
        [normal(3, 4), normal(2, 4)],
        "S1,S1->S1 B,B->B S0,S0->P S0,S1->P S0,P->P S1,S0->P S1,P->P P,S0->P P,S1->P P,P->P",
    ),
    "slice": (lambda x: x[1:], [normal(5, 4)], "S0->S0 S1->S1 B->B P->P"),
    "segment sum": (segment_sum, [normal(5, 3), indices(4, 5)], "S1,B->S1 B,B->B S0,S0->P P,B->P"),
}

# Signatures that must come out at 2 ranks, among others.
REQUIRED: dict[str, Case] = {
    "matmul gradient": (
        matmul_gradient,
        [normal(5, 6), normal(6, 7), normal(5, 7)],
        "S0,B,S0->S0,P B,S1,S1->P,S1",
    ),
    "linear": (
        functional.linear,
        [normal(5, 6), normal(7, 6), normal(7)],
        "S0,B,B->S0 B,S0,S0->S1 S1,S1,P->P",
    ),
    "conv2d stride 2": (
        lambda x, w: functional.conv2d(x, w, stride=2),
        [normal(4, 4, 8, 8), normal(4, 4, 2, 2)],
        "S0,B->S0 B,S0->S1 S1,S1->P S2,B->S2 S3,B->S3",
    ),
    "conv2d groups": (
        lambda x, w: functional.conv2d(x, w, groups=4),
        [normal(4, 8, 6, 6), normal(8, 2, 3, 3)],
        "S0,B->S0 S1,S0->S1",
    ),
    "add row": (lambda x, y: x + y, [normal(5, 4), normal(4)], "S0,B->S0 S1,S0->S1 P,P->P"),
    "mul": (lambda x, y: x * y, [normal(5, 4), normal(5, 4)], "S0,S0->S0 P,B->P B,P->P"),
    "div": (lambda x, y: x / y, [normal(5, 4), normal(5, 4)], "S0,S0->S0 P,B->P"),
    "where": (
        lambda c, x, y: metaop.where(c > 0, x, y),
        [normal(5, 4), normal(5, 4), normal(5, 4)],
        "S0,S0,S0->S0 B,P,P->P",
    ),
    "relu": (functional.relu, [normal(5, 4)], "S0->S0 S1->S1"),
    "mean": (lambda x: x.mean(1), [normal(5, 4)], "S0->S0 S1->P P->P"),
    "sum of all": (lambda x: x.sum(), [normal(5, 4)], "S0->P S1->P P->P"),
    "amax": (lambda x: x.amax(0), [normal(5, 4)], "S1->S0 S0->P(max) P(max)->P(max)"),
    "prod": (lambda x: x.prod(0), [normal(5, 4)], "S1->S0"),
    "reshape merge": (lambda x: x.reshape(16, 6), [normal(4, 4, 6)], "S0->S0 S2->S1 P->P"),
    "reshape split": (lambda x: x.reshape(4, 4, 6), [normal(16, 6)], "S0->S0 S1->S2 P->P"),
    "permute": (lambda x: x.permute(2, 0, 1), [normal(5, 4, 6)], "S0->S1 S1->S2 S2->S0"),
    "log_softmax": (lambda x: functional.log_softmax(x, 0), [normal(5, 4)], "S1->S1"),
    "cross_entropy of each": (
        lambda x, t: functional.cross_entropy(x, t, reduction="none"),
        [normal(5, 6), indices(6, 5)],
        "S0,S0->S0",
    ),
    "cat of columns": (
        lambda x, y: metaop.cat([x, y], 1),
        [normal(5, 4), normal(5, 3)],
        "S0,S0->S0 P,P->P",
    ),
    "slice within blocks": (lambda x: x[1:4], [normal(5, 4)], "S0->S0 S1->S1"),
    "pad": (lambda x: functional.pad(x, (2, 0)), [normal(5, 4)], "S0->S0 S1->P P->P"),
    "flip": (lambda x: x.flip(0), [normal(5, 4)], "S1->S1 P->P"),
    "index_add": (
        index_add,
        [normal(5, 4), indices(5, 6), normal(6, 4)],
        "B,B,B->B S1,B,S1->S1 S0,B,B->S0 P,S0,S0->P",
    ),
    "cumsum": (lambda x: x.cumsum(1), [normal(5, 4)], "S0->S0 P->P"),
    "attention": (
        attention,
        [normal(4, 4, 5, 6), normal(4, 4, 5, 6), normal(4, 4, 5, 6)],
        "S0,S0,S0->S0 S1,S1,S1->S1 S2,B,B->S2 B,B,S3->S3 B,B,P->P",
    ),
    "cdist": (metaop.cdist, [normal(5, 4), normal(6, 4)], "S0,B->S0 B,S0->S1"),
    "tril": (lambda x: x.tril(), [normal(5, 6)], "S0->S0 S1->S1 P->P"),
    "roll": (lambda x: x.roll(1, 0), [normal(5, 4)], "S1->S1 P->P"),
    "outer": (metaop.outer, [normal(5), normal(4)], "S0,B->S0 B,S0->S1 P,B->P B,P->P"),
    "one_hot": (lambda i: functional.one_hot(i, 6), [indices(6, 5, 4)], "S0->S0 S1->S1"),
    "logsumexp": (lambda x: x.logsumexp(1), [normal(5, 4)], "S0->S0"),
    "unfold": (lambda x: functional.unfold(x, 2), [normal(4, 4, 6, 6)], "S0->S0 S1->S1 P->P"),
}
