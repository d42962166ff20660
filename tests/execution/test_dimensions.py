"""Dimensions that change from call to call, with sizes that change too, beside PyTorch.

Many results have one shape along every dimension, so that shapes alone do not tell a program for
any size which dimension is meant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.execution import executor

torch = pytest.importorskip("torch")

SHAPES = [(2, 4, 6, 8), (3, 5, 7, 4), (4, 3, 5, 6), (6, 2, 4, 8), (5, 8, 3, 7), (7, 3, 2, 5)]
DIMS = (2, 3, 1, 3, 2, 1)
Function = Callable[[Any, Any, int], Any]


def index(T: Any, x: Any, dim: int) -> Any:
    return T.arange(x.shape[dim] - 1, -1, -1)


FUNCTIONS: dict[str, Function] = {
    "all": lambda T, x, dim: (x > -1).all(dim),
    "amax": lambda T, x, dim: x.amax(dim, keepdim=True) - x,
    "aminmax": lambda T, x, dim: T.aminmax(x, dim=dim)[0],
    "argmax": lambda T, x, dim: x.argmax(dim),
    "argsort": lambda T, x, dim: x.argsort(dim),
    "cat": lambda T, x, dim: T.cat([x, x * 2], dim),
    "chunk": lambda T, x, dim: x.chunk(2, dim)[0],
    "cosine_similarity": lambda T, x, dim: T.cosine_similarity(x, x * x, dim),
    "count_nonzero": lambda T, x, dim: T.count_nonzero(x > 0, dim),
    "cummax": lambda T, x, dim: x.cummax(dim)[0],
    "cumprod": lambda T, x, dim: x.cumprod(dim),
    "cumsum": lambda T, x, dim: x.cumsum(dim),
    "diagonal": lambda T, x, dim: x.diagonal(0, dim - 1, dim),
    "diff": lambda T, x, dim: x.diff(dim=dim),
    "flatten": lambda T, x, dim: x.flatten(dim - 1, dim),
    "flip": lambda T, x, dim: x.flip(dim),
    "gather": lambda T, x, dim: x.gather(dim, x.argsort(dim)),
    "glu": lambda T, x, dim: T.nn.functional.glu(T.cat([x, x * 2], dim), dim),
    "index_add": lambda T, x, dim: x.index_add(dim, index(T, x, dim), x * 2),
    "index_copy": lambda T, x, dim: x.index_copy(dim, index(T, x, dim), x * 2),
    "index_fill": lambda T, x, dim: x.index_fill(dim, index(T, x, dim)[:1], 0.5),
    "index_select": lambda T, x, dim: x.index_select(dim, index(T, x, dim)),
    "kthvalue": lambda T, x, dim: x.kthvalue(2, dim)[0],
    "log_softmax": lambda T, x, dim: x.log_softmax(dim),
    "logcumsumexp": lambda T, x, dim: x.logcumsumexp(dim),
    "logsumexp": lambda T, x, dim: x.logsumexp(dim),
    "mean": lambda T, x, dim: x - x.mean(dim, keepdim=True),
    "median": lambda T, x, dim: x.median(dim)[0],
    "movedim": lambda T, x, dim: x.movedim(0, dim),
    "nansum": lambda T, x, dim: x.nansum(dim),
    "narrow": lambda T, x, dim: x.narrow(dim, 1, x.shape[dim] - 1),
    "norm": lambda T, x, dim: x.norm(dim=dim),
    "normalize": lambda T, x, dim: T.nn.functional.normalize(x, dim=dim),
    "prod": lambda T, x, dim: x.prod(dim),
    "quantile": lambda T, x, dim: x.quantile(0.3, dim),
    "renorm": lambda T, x, dim: x.renorm(2, dim, 0.5),
    "repeat_interleave": lambda T, x, dim: x.repeat_interleave(2, dim),
    "roll": lambda T, x, dim: x.roll(1, dim),
    "rot90": lambda T, x, dim: x.rot90(1, (dim - 1, dim)),
    "scatter": lambda T, x, dim: x.scatter(dim, x.argsort(dim), x * 2),
    "scatter_add": lambda T, x, dim: x.scatter_add(dim, x.argsort(dim), x * 2),
    "select": lambda T, x, dim: x.select(dim, 1),
    "softmax": lambda T, x, dim: x.softmax(dim),
    "softmin": lambda T, x, dim: T.nn.functional.softmin(x, dim),
    "sort": lambda T, x, dim: x.sort(dim)[0],
    "split": lambda T, x, dim: x.split(2, dim)[0],
    "squeeze": lambda T, x, dim: x[:, :1, :1, :1].squeeze(dim) * x.mean(),
    "stack": lambda T, x, dim: T.stack([x, x * 2], dim),
    "std": lambda T, x, dim: x.std(dim),
    "sum": lambda T, x, dim: x.sum(dim, keepdim=True) * x,
    "sum of two": lambda T, x, dim: x.sum((dim - 1, dim)),
    "take_along_dim": lambda T, x, dim: T.take_along_dim(x, x.argsort(dim), dim),
    "tensor_split": lambda T, x, dim: x.tensor_split(2, dim)[1],
    "topk": lambda T, x, dim: x.topk(2, dim)[0],
    "transpose": lambda T, x, dim: x.transpose(0, dim),
    "trapezoid": lambda T, x, dim: T.trapezoid(x, dim=dim),
    "unbind": lambda T, x, dim: x.unbind(dim)[1],
    "unfold": lambda T, x, dim: x.unfold(dim, 2, 1),
    "unsqueeze": lambda T, x, dim: x.unsqueeze(dim) * x.mean(),
    "var": lambda T, x, dim: x.var(dim),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_call_means_its_own_dimension(name: str) -> None:
    executor.clear_programs()
    for step, (shape, dim) in enumerate(zip(SHAPES, DIMS)):
        values = np.random.default_rng(step).standard_normal(shape).astype(np.float32)
        found = []
        for T in (metaop, torch):
            x = T.tensor(values, requires_grad=True)
            result = FUNCTIONS[name](T, x * 2, dim)
            arrays = [result.detach().numpy()]
            if result.requires_grad:
                (result * (result.detach() * 0.3).cos()).sum().backward()
                arrays.append(x.grad.numpy())
            found.append(arrays)
        for ours, theirs in zip(*found, strict=True):
            scale = max(1.0, float(np.abs(theirs).max(initial=0)))
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=2e-5 * scale)
