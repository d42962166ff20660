"""`metaop.code`: sources in Python, LLVM IR and CUDA C++ given where they are used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.codegen.cuda import nvrtc
from metaop.codegen.cuda.emit import emit
from metaop.codegen.cuda.layout import layout_of
from metaop.codegen.cuda.schedules import CUDA
from metaop.codegen.schedule import Schedule
from metaop.compiler import schedule
from metaop.errors import ArgumentError, KernelError
from metaop.execution import executor
from metaop.kernels import Output
from metaop.kernels.foreign import ForeignDefinition
from metaop.unified_graph.code import Code, Result
from metaop.unified_graph.node import Node, input_node
from tests.cuda import emulator

LLVM = """
define void @body(ptr %x, ptr %y, i64 %task) {
  %from = getelementptr $in0_type, ptr %x, i64 %task
  %value = load $in0_type, ptr %from
  %twice = fadd $in0_type %value, %value
  %to = getelementptr $out0_type, ptr %y, i64 %task
  store $out0_type %twice, ptr %to
  ret void
}
"""
# A block reverses a row through shared memory.
CUDA_TEXT = """
__device__ void body(const $in0_type* x, $out0_type* y, long long task) {
  __shared__ $in0_type row[$in0_shape1];
  x += task * $in0_shape1;
  y += task * $in0_shape1;
  for (int k = threadIdx.x; k < $in0_shape1; k += blockDim.x) row[k] = x[k];
  __syncthreads();
  for (int k = threadIdx.x; k < $in0_shape1; k += blockDim.x) y[k] = row[$in0_shape1 - 1 - k];
}
"""


@pytest.mark.parametrize("dtype", (metaop.float32, metaop.float64))
def test_llvm(dtype: Any) -> None:
    x = metaop.randn(1000, dtype=dtype)
    y = metaop.code([x + 1], Output(x.shape, x.dtype), tasks=1000, llvm=LLVM)
    np.testing.assert_array_equal((y - 2).numpy(), 2 * (x.numpy() + 1) - 2)


def test_llvm_on_the_reference_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAOP_BACKEND", "reference")
    x = metaop.randn(7)
    y = metaop.code([x], Output(x.shape, x.dtype), tasks=7, llvm=LLVM, name="reference_double")
    np.testing.assert_array_equal(y.numpy(), 2 * x.numpy())


def test_illegal_llvm_is_refused_with_its_message() -> None:
    x = metaop.ones(3)
    with pytest.raises(KernelError, match="LLVM refuses") as caught:
        metaop.code([x], Output(x.shape, x.dtype), llvm="define void @body(", name="broken")
    assert "fix: " in str(caught.value)


def test_python_of_several_outputs() -> None:
    x = metaop.tensor([3.0, -1.0, 2.0])
    least, most = metaop.code(
        [x],
        [Output((), x.dtype), Output((), x.dtype)],
        python="""
        low = in0[0]
        high = in0[0]
        for k in range(1, in0.shape[0]):
            low = min(low, in0[k])
            high = max(high, in0[k])
        out0[()] = low
        out1[()] = high
        """,
    )
    assert (least.item(), most.item()) == (-1, 3)


def test_arguments() -> None:
    x = metaop.ones(3)
    with pytest.raises(ArgumentError, match="0 sources"):
        metaop.code([x], Output(x.shape, x.dtype))
    with pytest.raises(ArgumentError, match="2 sources"):
        metaop.code([x], Output(x.shape, x.dtype), python="pass", llvm=LLVM)
    with pytest.raises(KernelError, match="no source for the CPU"):
        metaop.code([x], Output(x.shape, x.dtype), cuda=CUDA_TEXT, name="only_cuda").numpy()


def reversal(rows: int, columns: int) -> tuple[Schedule, list[Node]]:
    """The launches that reverse rows, a block of 32 threads for each."""
    x = input_node(0, (rows, columns), metaop.float32)
    made = (Result((rows, columns), metaop.float32),)
    texts = (("cuda", CUDA_TEXT),)
    definition = ForeignDefinition("reversal", [x], made, texts, rows, 32)
    outputs = [Node(Code(definition, 0), (x,), x.shape, x.dtype)]
    return schedule([x], outputs, CUDA), outputs


@pytest.mark.skipif(not nvrtc.is_available(), reason="pip install 'nvidia-cuda-nvrtc==13.0.*'")
def test_nvrtc_compiles_cuda() -> None:
    (launch,) = reversal(5, 70)[0].launches
    assert layout_of(launch.nest).threads == 32
    usage = nvrtc.compile_text(emit(launch.nest, "kernel"), "sm_90").usage["kernel"]
    assert usage.shared == 70 * 4


@pytest.mark.skipif(not emulator.is_available(), reason="the emulator needs g++")
def test_emulated_cuda(tmp_path: Path) -> None:
    plan, _ = reversal(5, 70)
    device = emulator.Emulator([launch.nest for launch in plan.launches], tmp_path)
    values = np.random.default_rng(0).standard_normal((5, 70)).astype(np.float32)
    for order in emulator.ORDERS:
        (result,) = emulator.evaluate(device, plan, [values], order)
        np.testing.assert_array_equal(result, values[:, ::-1])


def test_equal_calls_share_what_was_compiled() -> None:
    def step(x: Any) -> Any:
        y = metaop.code(
            [x],
            Output(x.shape, x.dtype),
            tasks=5,
            python="out0[task()] = in0[task()] * in0[task()]",
            gradient=lambda inputs, outputs, cotangents: 2 * inputs[0] * cotangents[0],
        )
        y.sum().backward()
        return x.grad

    counts = []
    for _ in range(3):
        x = metaop.randn(5, requires_grad=True)
        np.testing.assert_allclose(step(x).numpy(), 2 * x.detach().numpy(), rtol=1e-6)
        counts.append(len(executor._programs))
    assert counts[0] == counts[2]
