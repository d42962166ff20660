"""The roofline of this machine: measured copy bandwidth and multiply-add rate."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from metaop.codegen.llvm.objects import engine
from metaop.codegen.llvm.runtime import Step, StepTable, runtime
from metaop.codegen.llvm.target import host_target
from metaop.codegen.memory.buffers import Buffer, allocate

_COPIED_BYTES = 1 << 28
_CHUNK_BYTES = 1 << 18
_ROUNDS = 12
_CHAINS = 16  # independent accumulators: enough to hide the latency of a multiply-add
_TURNS = 20_000

_COPY = """
define void @copy(ptr %buffers, ptr %scalars, i64 %begin, i64 %end, ptr %error) {{
entry:
  %from = load ptr, ptr %buffers
  %to_at = getelementptr ptr, ptr %buffers, i64 1
  %to = load ptr, ptr %to_at
  %first = mul i64 %begin, {chunk}
  %last = mul i64 %end, {chunk}
  br label %loop
loop:
  %i = phi i64 [ %first, %entry ], [ %next, %loop ]
{moves}
  %next = add i64 %i, {step}
  %more = icmp slt i64 %next, %last
  br i1 %more, label %loop, label %done
done:
  ret void
}}
!0 = !{{ i32 1 }}
"""

_MULTIPLY_ADD = """
declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})
define void @multiply_add(ptr %buffers, ptr %scalars, i64 %begin, i64 %end, ptr %error) {{
entry:
  %to = load ptr, ptr %buffers
  %factor = load {vector}, ptr %to, align 4
  %tasks = sub i64 %end, %begin
  %turns = mul i64 %tasks, {turns}
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{phis}
{steps}
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %turns
  br i1 %more, label %loop, label %done
done:
{stores}
  ret void
}}
"""


class Roofline(NamedTuple):
    """Bytes per second of a copy (read and written bytes counted), and flops per second."""

    bandwidth: float
    flops: float

    def seconds(self, nbytes: float, flops: float) -> float:
        """The minimum time for some bytes and flops."""
        return max(nbytes / self.bandwidth, flops / self.flops)


def measure() -> Roofline:
    """Measures with all threads of metaop, keeping the fastest of several rounds."""
    return Roofline(_bandwidth(), _flops())


def _bandwidth() -> float:
    lanes = host_target().vector_bytes
    vector = f"<{lanes} x i8>"
    moves = "\n".join(
        f"  %at{k} = add i64 %i, {k * lanes}\n"
        f"  %source{k} = getelementptr i8, ptr %from, i64 %at{k}\n"
        f"  %value{k} = load {vector}, ptr %source{k}, align 64\n"
        f"  %target{k} = getelementptr i8, ptr %to, i64 %at{k}\n"
        f"  store {vector} %value{k}, ptr %target{k}, align 64, !nontemporal !0"
        for k in range(4)
    )
    text = _COPY.format(chunk=_CHUNK_BYTES, moves=moves, step=4 * lanes)
    buffers = [allocate(_COPIED_BYTES), allocate(_COPIED_BYTES)]
    for buffer in buffers:
        np.asarray(buffer)[:] = 1
    seconds = _least_time(text, "copy", buffers, _COPIED_BYTES // _CHUNK_BYTES)
    return 2 * _COPIED_BYTES / seconds


def _flops() -> float:
    lanes = host_target().vector_bytes // 4
    vector = f"<{lanes} x float>"
    numbers = range(_CHAINS)
    call = f"call {vector} @llvm.fma.v{lanes}f32"
    text = _MULTIPLY_ADD.format(
        vector=vector,
        lanes=lanes,
        turns=_TURNS,
        phis="\n".join(
            f"  %a{k} = phi {vector} [ %factor, %entry ], [ %b{k}, %loop ]" for k in numbers
        ),
        steps="\n".join(
            f"  %b{k} = {call}({vector} %a{k}, {vector} %factor, {vector} %factor)" for k in numbers
        ),
        stores="\n".join(f"  store volatile {vector} %b{k}, ptr %to, align 4" for k in numbers),
    )
    tasks = 8 * runtime().get_num_threads()
    factor = allocate(64)
    # Sums stay usual numbers: a processor may take a hundred times as long for tiny ones.
    np.asarray(factor).view(np.float32)[:] = 0.5
    seconds = _least_time(text, "multiply_add", [factor], tasks)
    return 2.0 * lanes * _CHAINS * _TURNS * tasks / seconds


def _least_time(text: str, name: str, buffers: list[Buffer], tasks: int) -> float:
    kernel = engine.compile_kernel(text, name)
    table = StepTable([Step(kernel, range(len(buffers)), [], tasks, 1)])
    addresses = np.array([buffer.address for buffer in buffers], np.int64)
    error = np.zeros(4, np.int64)
    times = []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        runtime().run(table.address, 1, addresses.ctypes.data, error.ctypes.data, 0)
        times.append(time.perf_counter() - start)
    return min(times)
