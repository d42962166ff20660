"""Derived signatures: what must come out does, and nothing that comes out is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.dist import explain, signatures
from tests.dist.oracle import check_signatures

functional = metaop.nn.functional
random = np.random.default_rng(1)


def normal(*shape: int) -> np.ndarray:
    return random.normal(size=shape)


def indices(bound: int, *shape: int) -> np.ndarray:
    return random.integers(0, bound, shape)


def index_add(x: Any, index: Any, source: Any) -> Any:
    return x.index_add(0, index, source)


def attention(q: Any, k: Any, v: Any) -> Any:
    return functional.scaled_dot_product_attention(q, k, v)


def train_norm(x: Any, w: Any, b: Any) -> Any:
    return functional.batch_norm(x, None, None, w, b, training=True)


def matmul_gradient(a: Any, b: Any, g: Any) -> Any:
    return g @ b.transpose(0, 1), a.transpose(0, 1) @ g


# name: (function, arguments, signatures that must come out at 2 ranks)
CASES: dict[str, tuple[Callable[..., Any], list[np.ndarray], str]] = {
    "matmul": (
        metaop.matmul,
        [normal(5, 6), normal(6, 7)],
        "S0,B->S0 B,S1->S1 S1,S0->P P,B->P B,P->P B,B->B",
    ),
    "bmm": (
        metaop.bmm,
        [normal(5, 4, 6), normal(5, 6, 7)],
        "S0,S0->S0 S1,B->S1 B,S2->S2 S2,S1->P P,B->P B,P->P",
    ),
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
    "conv2d": (
        lambda x, w: functional.conv2d(x, w, padding=1),
        [normal(5, 4, 6, 6), normal(7, 4, 3, 3)],
        "S0,B->S0 B,S0->S1 S1,S1->P",
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
    "add": (lambda x, y: x + y, [normal(5, 4), normal(5, 4)], "S0,S0->S0 S1,S1->S1 P,P->P"),
    "add row": (lambda x, y: x + y, [normal(5, 4), normal(4)], "S0,B->S0 S1,S0->S1 P,P->P"),
    "mul": (lambda x, y: x * y, [normal(5, 4), normal(5, 4)], "S0,S0->S0 P,B->P B,P->P"),
    "div": (lambda x, y: x / y, [normal(5, 4), normal(5, 4)], "S0,S0->S0 P,B->P"),
    "where": (
        lambda c, x, y: metaop.where(c > 0, x, y),
        [normal(5, 4), normal(5, 4), normal(5, 4)],
        "S0,S0,S0->S0 B,P,P->P",
    ),
    "gelu": (functional.gelu, [normal(5, 4)], "S0->S0 S1->S1"),
    "relu": (functional.relu, [normal(5, 4)], "S0->S0 S1->S1"),
    "sum": (lambda x: x.sum(0), [normal(5, 4)], "S1->S0 S0->P P->P"),
    "mean": (lambda x: x.mean(1), [normal(5, 4)], "S0->S0 S1->P P->P"),
    "sum of all": (lambda x: x.sum(), [normal(5, 4)], "S0->P S1->P P->P"),
    "amax": (lambda x: x.amax(0), [normal(5, 4)], "S1->S0 S0->P(max) P(max)->P(max)"),
    "prod": (lambda x: x.prod(0), [normal(5, 4)], "S1->S0"),
    "reshape merge": (lambda x: x.reshape(16, 6), [normal(4, 4, 6)], "S0->S0 S2->S1 P->P"),
    "reshape split": (lambda x: x.reshape(4, 4, 6), [normal(16, 6)], "S0->S0 S1->S2 P->P"),
    "transpose": (lambda x: x.transpose(0, 1), [normal(5, 4)], "S0->S1 S1->S0 P->P"),
    "permute": (lambda x: x.permute(2, 0, 1), [normal(5, 4, 6)], "S0->S1 S1->S2 S2->S0"),
    "gather": (
        lambda x, i: metaop.gather(x, 1, i),
        [normal(5, 6), indices(6, 5, 4)],
        "S0,S0->S0 B,S1->S1 S1,B->P P,B->P",
    ),
    "embedding": (
        functional.embedding,
        [indices(8, 5, 4), normal(8, 6)],
        "S0,B->S0 S1,B->S1 B,S1->S2 B,S0->P B,P->P",
    ),
    "softmax": (lambda x: functional.softmax(x, 2), [normal(5, 4, 6)], "S0->S0 S1->S1"),
    "log_softmax": (lambda x: functional.log_softmax(x, 0), [normal(5, 4)], "S1->S1"),
    "layer_norm": (
        lambda x, w, b: functional.layer_norm(x, (6,), w, b),
        [normal(5, 4, 6), normal(6), normal(6)],
        "S0,B,B->S0 S1,B,B->S1",
    ),
    "batch_norm": (train_norm, [normal(5, 4, 6, 6), normal(4), normal(4)], "S1,S0,S0->S1"),
    "cross_entropy": (
        lambda x, t: functional.cross_entropy(x, t, reduction="none"),
        [normal(5, 6), indices(6, 5)],
        "S0,S0->S0",
    ),
    "cat": (lambda x, y: metaop.cat([x, y], 1), [normal(5, 4), normal(5, 3)], "S0,S0->S0 P,P->P"),
    "slice within blocks": (lambda x: x[1:4], [normal(5, 4)], "S0->S0 S1->S1"),
    "slice": (lambda x: x[2:], [normal(5, 4)], "S1->S1 S0->P P->P"),
    "pad": (lambda x: functional.pad(x, (2, 0)), [normal(5, 4)], "S0->S0 S1->P P->P"),
    "flip": (lambda x: x.flip(0), [normal(5, 4)], "S1->S1 P->P"),
    "index_add": (
        index_add,
        [normal(5, 4), indices(5, 6), normal(6, 4)],
        "B,B,B->B S1,B,S1->S1 S0,B,B->S0 P,S0,S0->P",
    ),
    "max_pool2d": (
        lambda x: functional.max_pool2d(x, 2),
        [normal(4, 4, 8, 8)],
        "S0->S0 S1->S1 S2->S2 S3->S3",
    ),
    "avg_pool2d": (
        lambda x: functional.avg_pool2d(x, 3, stride=1, padding=1),
        [normal(4, 4, 8, 8)],
        "S0->S0 S1->S1 P->P",
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


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("name", CASES)
def test_every_signature_gives_the_logical_result(name: str, ranks: int) -> None:
    function, arrays, _ = CASES[name]
    found = check_signatures(function, *(metaop.tensor(array) for array in arrays), ranks=ranks)
    assert found


@pytest.mark.parametrize("name", CASES)
def test_what_must_come_out(name: str) -> None:
    function, arrays, required = CASES[name]
    found = signatures(function, *(metaop.tensor(array) for array in arrays), ranks=2)
    assert set(required.split()) <= set(found)


def test_explain_lists_the_cheapest_first() -> None:
    text = explain(metaop.matmul, metaop.ones(64, 64), metaop.ones(64, 64), ranks=2)
    rows = [line.split() for line in text.splitlines()[1:]]
    costs = [float(row[1]) for row in rows]
    assert costs == sorted(costs)
    assert rows[0][-1] == "chosen"
    assert costs[0] < next(cost for row, cost in zip(rows, costs) if row[0] == "B,B->B")
    assert rows[-1][-1] == "rejected"


def test_the_package_is_a_function_as_well() -> None:
    a, b = metaop.tensor([3.0, 0.0]), metaop.tensor([0.0, 4.0])
    assert metaop.dist(a, b).item() == 5
    assert metaop.dist.signatures(metaop.add, a, b) == signatures(metaop.add, a, b)
