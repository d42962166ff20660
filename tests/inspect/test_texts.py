"""The pending computation as text, at every level."""

from __future__ import annotations

import numpy as np
import pytest

import metaop
from metaop import inspect
from metaop.errors import ArgumentError


def example() -> tuple[metaop.Tensor, metaop.Tensor, metaop.Tensor]:
    x = metaop.from_numpy(np.arange(12, dtype=np.float32).reshape(4, 3))
    w = metaop.from_numpy(np.ones((3, 2), np.float32))
    return x, w, (x @ w).exp().sum(1)


def test_calls_are_those_of_the_program() -> None:
    _, _, y = example()
    assert inspect.calls(y).splitlines() == [
        "leaf 0: float32[4, 3]",
        "leaf 1: float32[3, 2]",
        "call 0: matmul leaf 0, leaf 1 -> float32[4, 2]",
        "call 1: exp call 0 -> float32[4, 2]",
        "call 2: sum call 1 -> float32[4]",
    ]


def test_the_graph_is_written_in_the_three_families() -> None:
    _, _, y = example()
    lines = [" ".join(line.split()) for line in inspect.graph(y).splitlines()]
    assert lines == [
        "%0 = input 0 float32[4, 3]",
        "%1 = reindex (i0<4, i1<2, i2<3) -> (i0, i2) %0 float32[4, 2, 3]",
        "%2 = input 1 float32[3, 2]",
        "%3 = reindex (i0<4, i1<2, i2<3) -> (i2, i1) %2 float32[4, 2, 3]",
        "%4 = mul %1 %3 float32[4, 2, 3]",
        "%5 = reduce add (i0<4, i1<2, i2<3) -> (i0, i1) %4 float32[4, 2]",
        "%6 = exp %5 float32[4, 2]",
        "%7 = reduce add (i0<4, i1<2) -> (i0) %6 float32[4]",
        "return %7",
    ]


def test_texts_are_stable_and_looking_computes_nothing() -> None:
    for text_of in (inspect.calls, inspect.graph, inspect.kernels, inspect.llvm):
        _, _, first = example()
        _, _, second = example()
        assert text_of(first) == text_of(second)
        assert first.call.is_pending
    x, w, y = example()
    inspect.kernels(y)
    np.testing.assert_allclose(y.numpy(), np.exp(x.numpy() @ w.numpy()).sum(1), rtol=1e-5)


def test_kernels_llvm_and_assembly_belong_together() -> None:
    _, _, y = example()
    kernels = inspect.kernels(y)
    count = kernels.count("\nkernel ") + kernels.startswith("kernel ")
    assert count >= 1 and f"{count} kernels" in kernels
    assert inspect.llvm(y).count("define ") >= count
    assert "ret" in inspect.assembly(y)


def test_simplification_shows_in_the_optimised_graph() -> None:
    x = metaop.from_numpy(np.ones((2, 3), np.float32))
    y = x.t().t() * 2
    assert "reindex" not in inspect.graph(y, optimised=True)


def test_a_computed_tensor_has_nothing_to_show() -> None:
    with pytest.raises(ArgumentError, match="nothing is pending"):
        inspect.graph(metaop.from_numpy(np.ones(2)))
