"""The pending computation as text, at every level."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest

import metaop
import metaop.nn.functional as F
from metaop import inspect
from metaop.compiler import PASSES
from metaop.dist.placement import Placement
from metaop.dist.sbp import BROADCAST, Split
from metaop.errors import ArgumentError
from metaop.execution.executor import realize


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


def normal(*shape: int) -> metaop.Tensor:
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return metaop.tensor(values, requires_grad=True)


def attention() -> list[metaop.Tensor]:
    operands = [normal(2, 4, 512, 64) for _ in range(3)]
    result = F.scaled_dot_product_attention(*operands)
    result.sum().backward()
    return [result, *(operand.grad for operand in operands)]


def convolution() -> list[metaop.Tensor]:
    return [F.conv2d(normal(2, 64, 28, 28), normal(64, 64, 3, 3), padding=1)]


def names_of(text: str) -> list[str]:
    return re.findall(r"^kernel (\w+)", text, re.MULTILINE)


@pytest.mark.parametrize("program, part", [(attention, "tiled_"), (convolution, "winograd_")])
def test_kernels_are_those_that_run(program, part: str) -> None:  # type: ignore[no-untyped-def]
    tensors = program()
    names = names_of(inspect.kernels(*tensors))
    with metaop.profile() as profile:
        realize(*(tensor.call for tensor in tensors))
    assert [kernel.name for run in profile.runs for kernel in run.kernels] == names
    assert any(name.startswith(part) for name in names)


def test_kernels_of_global_tensors_are_those_of_a_rank() -> None:
    ranks = Placement("cpu", range(3), simulate=True)
    x = metaop.ones(9, 6).to_global(ranks, Split(0))
    w = metaop.ones(6, 12).to_global(ranks, Split(1))
    y = (x @ w).exp().sum(0).to_global(sbp=BROADCAST)
    names = Counter(names_of(inspect.kernels(y)))
    with metaop.profile() as profile:
        realize(y.call)
    ran = Counter(kernel.name for run in profile.runs for kernel in run.kernels)
    assert names and ran == Counter({name: 3 * count for name, count in names.items()})


def test_what_a_gpu_would_run_shows_without_one() -> None:
    tensors = convolution()
    names = names_of(inspect.kernels(*tensors, backend="cuda"))
    text = inspect.cuda(*tensors)
    assert names and text.count('extern "C" __global__') == len(names)
    assert names != names_of(inspect.kernels(*tensors))
    with pytest.raises(ArgumentError, match="there is no backend 'tpu'"):
        inspect.kernels(*tensors, backend="tpu")


def test_every_pass_shows_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, y = example()
    titles = re.findall(r"^--- (\d+) (\w+): (.*)$", inspect.passes(y), re.MULTILINE)
    rows = [(str(k), one.name, one.why) for k, one in enumerate(PASSES, 1)]
    assert titles[1:] == rows and titles[0][1] == "expand"
    assert inspect.passes(y).endswith("unchanged\n")
    monkeypatch.setenv("METAOP_BACKEND", "reference")
    assert inspect.kernels(y) == inspect.graph(y) == inspect.graph(y, optimised=True)


def test_simplification_shows_in_the_optimised_graph() -> None:
    x = metaop.from_numpy(np.ones((2, 3), np.float32))
    y = x.t().t() * 2
    assert "reindex" not in inspect.graph(y, optimised=True)


def test_a_computed_tensor_has_nothing_to_show() -> None:
    with pytest.raises(ArgumentError, match="nothing is pending"):
        inspect.graph(metaop.from_numpy(np.ones(2)))
