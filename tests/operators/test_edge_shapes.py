"""Numbers, empty tensors and unusual types and layouts: PyTorch's result, or both refuse."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import metaop

torch = pytest.importorskip("torch")

SHAPES = [(), (0,), (1,), (3,), (0, 3), (3, 0), (2, 3), (2, 0, 3)]
DTYPES = ["float64", "float32", "int64", "bool", "uint8", "float16"]
FLOATS = ["float64", "float32", "float16"]
Case = Callable[[Any, Any], Any]


def over_dimensions(name: str, **options: Any) -> dict[str, Case]:
    """The function over everything and over single dimensions."""
    ways: list[dict[str, Any]] = [{}, *({"dim": dim} for dim in (0, 1, -1, -2))]
    ways.append({"dim": 0, "keepdim": True})
    return {
        f"{name}({way}, {options})": lambda lib, x, way=way: getattr(lib, name)(x, **way, **options)
        for way in ways
    }


def called(name: str, *calls: tuple[Any, ...]) -> dict[str, Case]:
    """The function with each list of further arguments."""

    def function(lib: Any) -> Any:
        for part in name.split("."):
            lib = getattr(lib, part)
        return lib

    return {f"{name}{args}": lambda lib, x, args=args: function(lib)(x, *args) for args in calls}


ORDERS = (0, 0.5, 1, 2, math.inf, -math.inf, -1)
REDUCTIONS: dict[str, dict[str, Case]] = {
    **{
        name: over_dimensions(name)
        for name in (
            *("sum", "mean", "nansum", "nanmean", "max", "min", "amax", "amin", "argmax", "argmin"),
            *("median", "nanmedian", "mode", "var", "std_mean", "norm", "all", "any", "prod"),
            *("aminmax", "logsumexp"),
        )
    },
    "no dimensions": {
        name: lambda lib, x, name=name: getattr(lib, name)(x, dim=())
        for name in ("sum", "mean", "amax", "all", "any", "count_nonzero", "var")
    },
    "keepdim alone": {
        name: lambda lib, x, name=name: getattr(lib, name)(x, keepdim=True)
        for name in ("max", "min", "median", "argmax")
    },
    "correction": over_dimensions("std", correction=0),
    "count_nonzero": called("count_nonzero", (), (0,), (1,)),
    "scans": {
        **called("cumsum", (0,), (1,), (-1,)),
        **called("cumprod", (0,), (1,), (-1,)),
        **called("logcumsumexp", (0,), (-2,)),
        **called("cummax", (0,), (-1,)),
        **called("cummin", (0,), (-1,)),
        **called("diff", (), (-1,), (0,), (2, 0)),
        **called("trapezoid", ()),
        **called("cumulative_trapezoid", ()),
    },
    "order": {
        **called("sort", (), (0,), (1, True)),
        **called("argsort", (), (0,)),
        **called("msort", ()),
        **called("topk", (1,), (0,), (2,), (1, 0), (1, 1, False)),
        # Of equal elements any may be chosen.
        "kthvalue": lambda lib, x: lib.kthvalue(x, 1, -1, True).values,
        "no kthvalue": lambda lib, x: lib.kthvalue(x, 0),
        "second kthvalue": lambda lib, x: lib.kthvalue(x, 2, 0).values,
    },
    "norms": {
        **called("norm", *((p,) for p in (*ORDERS, "fro", "nuc")), *((p, 0) for p in ORDERS)),
        **called("linalg.vector_norm", *((p,) for p in ORDERS), *((p, 1, True) for p in ORDERS)),
        **called("linalg.norm", *((p,) for p in (None, 1, -1, 2, -2, math.inf, "fro", "nuc"))),
        **called("renorm", (2, 0, 1.0), (1, 1, 0.1)),
        **called("nn.functional.normalize", (), (1, 0)),
    },
    "distinct": {
        **called("unique", (), (True, True, True), (True, True, True, 0), (True, False, False, 1)),
        **called("unique_consecutive", (), (True, True), (True, True, 0)),
        "counts of columns": lambda lib, x: lib.unique_consecutive(x, return_counts=True, dim=1),
    },
    "counting": {
        **called("histc", (), (4,), (4, 0, 1)),
        **called("bincount", ()),
        "searchsorted": lambda lib, x: lib.searchsorted(lib.sort(x)[0], x),
        "bucketize": lambda lib, x: lib.bucketize(x, lib.tensor([0.0, 1.0])),
        **called("nonzero", ()),
    },
    "softmax": {
        **called("softmax", (0,), (-1,)),
        **called("log_softmax", (0,), (1,)),
    },
    "shapes": {
        **called("roll", (1,), (1, 0)),
        **called("flip", ((0,),), ((),), ((0, 1),)),
        **called("flipud", ()),
        **called("fliplr", ()),
        **called("squeeze", (), (0,), (1,)),
        **called("flatten", (), (0,), (0, 1)),
        **called("tensor_split", (2,), (2, 1)),
        **called("chunk", (2,), (2, 1)),
        **called("split", (1,), (0,), (1, 1)),
        **called("unbind", (), (1,)),
        **called("repeat_interleave", (2,), (2, 0), (0,), (2, 1)),
        **called("tile", ((2,),), ((2, 2),), ((),)),
        **called("combinations", ()),
        **called("vander", ()),
        **called("diag", ()),
        **called("trace", ()),
        "index_select": lambda lib, x: lib.index_select(x, 1, lib.tensor([0])),
        "take": lambda lib, x: lib.take(x, lib.tensor([0])),
        "take nothing": lambda lib, x: lib.take(x, lib.zeros(0, dtype=lib.int64)),
    },
}
MODES = ("linear", "lower", "higher", "nearest", "midpoint")


def quantiles(name: str) -> dict[str, Case]:
    """Every kind of q with every way to name dimensions, and every mode."""
    parts: dict[str, Callable[[Any, Any], Any]] = {
        "number": lambda lib, x: 0.3,
        "0-d": lambda lib, x: lib.tensor(0.3, dtype=x.dtype),
        "1-d": lambda lib, x: lib.tensor([0.1, 0.9], dtype=x.dtype),
        "2-d": lambda lib, x: lib.tensor([[0.1, 0.9]], dtype=x.dtype),
        "none": lambda lib, x: lib.tensor([], dtype=x.dtype),
        "outside": lambda lib, x: 1.5,
    }
    found = {}
    for kind, part in parts.items():
        for dim, keep in ((None, False), (None, True), (0, False), (0, True), (-1, False), (1, 0)):
            for mode in MODES if kind in ("number", "1-d") else MODES[:1]:
                options = {"dim": dim, "keepdim": bool(keep), "interpolation": mode}
                found[f"{kind} {options}"] = lambda lib, x, part=part, options=options: getattr(
                    lib, name
                )(x, part(lib, x), **options)
    return found


def inputs(dtypes: list[str]) -> Iterator[tuple[str, np.ndarray]]:
    random = np.random.default_rng(3)
    for dtype in dtypes:
        for shape in SHAPES:
            values = np.asarray(random.standard_normal(shape)) * 3
            array = (abs(values) if dtype == "uint8" else values).astype(dtype)
            yield f"{dtype} {list(shape)}", array


def outcome(lib: Any, function: Case, x: Any) -> Any:
    """The results as dtypes, shapes and arrays, or the error."""
    try:
        return list(parts_of(lib, function(lib, x)))
    except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError) as error:
        return error


def parts_of(lib: Any, result: Any) -> Iterator[Any]:
    if isinstance(result, (tuple, list)):
        for part in result:
            yield from parts_of(lib, part)
    elif isinstance(result, lib.Tensor):
        array = result.detach().to(lib.float64).numpy()
        yield str(result.dtype).split(".")[1], tuple(result.shape), array
    else:
        yield type(result), (), np.asarray(result, float)


def difference(found: Any, expected: Any) -> str | None:
    """What differs between two outcomes, None when they agree."""
    if isinstance(expected, Exception):
        if isinstance(found, Exception) or is_about_type(expected):
            return None
        return f"no error like {type(expected).__name__}: {str(expected)[:80]}"
    if isinstance(found, Exception):
        return f"{type(found).__name__}: {str(found)[:100]}"
    if [one[:2] for one in found] != [one[:2] for one in expected]:
        return f"{[one[:2] for one in found]} instead of {[one[:2] for one in expected]}"
    for (dtype, _, mine), (_, _, theirs) in zip(found, expected):
        tolerance = {"bfloat16": 2e-2, "float16": 5e-3, "float32": 1e-5}.get(dtype, 1e-9)
        if not np.allclose(mine, theirs, rtol=tolerance, atol=tolerance, equal_nan=True):
            return f"{mine.tolist()} instead of {theirs.tolist()}"
    return None


def is_about_type(error: Exception) -> bool:
    """Whether PyTorch only lacks a kernel: metaop may compute more."""
    # "oat" as in Float and floating; an integer type that cannot hold a bound is about types too.
    words = (
        *("did not match", "different dtypes", "bool tensor"),
        "without overflow",
        "not implemented for",
        "does not support bool",
        "bool dtype",
        "oat",
        "bool input",
    )
    return any(word in str(error) for word in words)


def differences(cases: dict[str, Case], dtypes: list[str]) -> list[str]:
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for what, array in inputs(dtypes):
            for name, function in cases.items():
                mine = outcome(metaop, function, metaop.tensor(array))
                theirs = outcome(torch, function, torch.tensor(array))
                text = difference(mine, theirs)
                if text:
                    found.append(f"{name} of {what}: {text}")
    return found


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str) -> None:
    # PyTorch's softmax takes empty integer tensors, and no others.
    assert not differences(REDUCTIONS[name], FLOATS if name == "softmax" else DTYPES)


@pytest.mark.parametrize("name", ["quantile", "nanquantile"])
def test_quantiles(name: str) -> None:
    assert not differences(quantiles(name), ["float64", "float32", "int64"])


def _attended(lib: Any, batch: int, length: int, **options: Any) -> Any:
    lib.manual_seed(0)
    layer = lib.nn.MultiheadAttention(4, 2, batch_first=True, **options)
    x = lib.ones(batch, length, 4)
    mask = lib.zeros(batch, length, dtype=lib.bool)
    return layer(x, x, x, key_padding_mask=mask)


def _scattered(lib: Any, name: str, *further: Any) -> Any:
    target, index = lib.zeros(3, 4), lib.zeros(3, 0, dtype=lib.int64)
    return getattr(target, name)(1, index, lib.ones(3, 0).requires_grad_(), *further)


# Programs that meet a batch without elements, or a graph without edges.
WITHOUT_ELEMENTS: dict[str, Callable[[Any], Any]] = {
    "attention": lambda lib: _attended(lib, 0, 3),
    "attention with more keys": lambda lib: _attended(
        lib, 0, 3, add_bias_kv=True, add_zero_attn=True
    ),
    "attention of nothing": lambda lib: _attended(lib, 0, 0),
    "scatter": lambda lib: _scattered(lib, "scatter"),
    "scatter_add": lambda lib: _scattered(lib, "scatter_add"),
    "scatter_reduce": lambda lib: _scattered(lib, "scatter_reduce", "amax"),
}


@pytest.mark.parametrize("name", WITHOUT_ELEMENTS)
def test_programs_without_elements(name: str) -> None:
    found = []
    for lib in (metaop, torch):
        results = WITHOUT_ELEMENTS[name](lib)
        results = results if isinstance(results, tuple) else (results,)
        sum(result.sum() for result in results).backward()
        found.append([(tuple(x.shape), x.requires_grad, x.sum().item()) for x in results])
    assert found[0] == found[1]


def test_angles_of_what_is_not_finite() -> None:
    values = [math.inf, -math.inf, math.nan, -1.0, 2.0]
    found, expected = (lib.angle(lib.tensor(values)).numpy() for lib in (metaop, torch))
    np.testing.assert_array_equal(found, expected)
