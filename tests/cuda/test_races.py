"""Threads that race for memory are found in any order of the threads, so in the first one too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import metaop
from metaop.codegen.cuda import backend, kernels, program
from metaop.codegen.cuda import device as devices
from metaop.codegen.cuda.schedules import CUDA
from metaop.compiler import schedule
from metaop.execution.executor import clear_programs
from metaop.nn.utils import clip_grad_norm_
from metaop.tensor import devices as moving
from metaop.unified_graph.node import Node
from tests.codegen.lowering.test_lowering import softmax
from tests.codegen.lowering.test_scans import scans
from tests.cuda import emulator
from tests.cuda.cases import CASES, inputs_of, random_values, tensor
from tests.cuda.emulator.runtime import EmulatedRuntime, load

pytestmark = pytest.mark.skipif(not emulator.is_available(), reason="the emulator needs g++")


class Kernel(NamedTuple):
    """The body of a kernel of two buffers, and the threads that run it."""

    body: str
    blocks: int = 1
    threads: int = 64


SHARED = "__shared__ float row[64]; const int i = threadIdx.x; row[i] = b0[i]; "
OTHER_LANE, OTHER_WARP = "b1[i] = row[i ^ 1];", "b1[i] = row[i ^ 32];"
EVERYONE = "const int i = blockIdx.x * blockDim.x + threadIdx.x; "
SUM = "for (int k = 16; k > 0; k /= 2) {0} += __shfl_xor_sync(0xffffffffu, {0}, k); "

RACES = {
    "no barrier": Kernel(SHARED + OTHER_WARP),
    "warps do not run in step": Kernel(SHARED + OTHER_LANE),
    "a warp orders its own lanes alone": Kernel(SHARED + "__syncwarp(); " + OTHER_WARP),
    "shuffles order nothing": Kernel(
        SHARED + "float x = b0[i]; " + SUM.format("x") + "row[i] += x; " + OTHER_LANE
    ),
    "a later write": Kernel(SHARED + "__syncthreads(); " + OTHER_WARP + " row[i] = 0;"),
    "a read after a warp's own barrier": Kernel(
        "const int i = threadIdx.x; const float x = b1[i / 32]; __syncwarp(); "
        "if (i == 0) b1[0] = b1[1] = x;"
    ),
    "a reader among many of another warp": Kernel(
        "const int i = threadIdx.x; const float x = b1[0]; __syncwarp(); if (i == 63) b1[0] = x;"
    ),
    "equal values": Kernel("b1[0] = 1.0f;"),
    "equal values of blocks": Kernel("b1[0] = 1.0f;", 2, 1),
    "a read of what another block writes": Kernel(EVERYONE + "b1[i + 1] = b1[i];", 3, 1),
    "blocks do not wait for each other": Kernel(
        EVERYONE + "b1[i] = 1; __syncthreads(); b1[0] = 2;", 2, 1
    ),
    "an atomic and a write": Kernel("atomicAdd(b1, 1.0f); if (threadIdx.x == 5) b1[0] = 0;"),
    "an atomic and a read": Kernel("atomicAdd(b1, 1.0f); b1[threadIdx.x + 1] = b1[0];"),
    "an atomic of another block": Kernel(
        "if (blockIdx.x) atomicAdd(b1, 1.0f); else b1[0] = 1;", 2, 1
    ),
    "parts": Kernel(
        "struct __align__(16) Part { float at[4]; }; "
        "*(Part*)&b1[4 * threadIdx.x] = Part(); if (threadIdx.x == 3) b1[6] = 1;", 1, 8
    ),
    "bytes of a word that is changed atomically": Kernel(
        "char* bytes = (char*)b1; if (threadIdx.x) bytes[5] = 1; "
        "else atomicCAS((unsigned*)b1 + 1, 0u, 1u);", 1, 2
    ),
}  # fmt: skip

ORDERED = {
    "a barrier": Kernel(SHARED + "__syncthreads(); " + OTHER_WARP),
    "a warp's barrier": Kernel(SHARED + "__syncwarp(); " + OTHER_LANE),
    "two barriers": Kernel(
        SHARED + "__syncthreads(); " + OTHER_WARP + " __syncthreads(); row[63 - i] = 0;"
    ),
    "shared memory of several blocks": Kernel(SHARED + "b1[64 * blockIdx.x + i] = row[i];", 4),
    "neighbours": Kernel(EVERYONE + "b1[i] = b0[i];", 3),
    "reads of all": Kernel(EVERYONE + "b1[i] = b0[0] + b0[1];", 3),
    "one thread": Kernel("if (threadIdx.x == 9) { b1[0] = 1; b1[0] += b1[0]; }"),
    "atomics": Kernel("atomicAdd(b1, 1.0f);", 3),
    "a volatile read beside atomics": Kernel(
        "unsigned* word = (unsigned*)b1; unsigned seen = *(volatile unsigned*)word, old; "
        "do { old = seen; seen = atomicCAS(word, old, old + 1); } while (seen != old);", 3
    ),
    "an atomic before a barrier": Kernel(
        "atomicAdd(b1, 1.0f); __syncthreads(); b1[threadIdx.x + 1] = b1[0];"
    ),
    "locals": Kernel(
        EVERYONE + "float x[8]; for (int k = 0; k < 8; ++k) x[k] = b0[k]; "
        "float sum = x[(int)(x[0] * x[0]) & 7]; __syncthreads(); b1[i] = sum + x[i & 7];", 2
    ),
}  # fmt: skip


def run(kernel: Kernel, folder: Path, order: str = "forward") -> None:
    text = (
        f'extern "C" __global__ void __launch_bounds__({kernel.threads}) kernel(\n'
        "    const float* __restrict__ b0,\n    float* b1,\n    long long* error)\n{\n"
        f"    {kernel.body}\n}}\n"
    )
    found = load(text, "kernel", folder)
    b0, b1, error = np.zeros(512, np.float32), np.zeros(512, np.float32), np.zeros(4, np.int64)
    words = [array.ctypes.data for array in (b0, b1, error)]
    found(kernel.blocks, kernel.threads, words, order)


@pytest.mark.parametrize("name", RACES)
def test_a_race_is_found_in_every_order(name: str, tmp_path: Path) -> None:
    for order in emulator.ORDERS:
        with pytest.raises(emulator.KernelFault, match="a race: "):
            run(RACES[name], tmp_path, order)


@pytest.mark.parametrize("name", ORDERED)
def test_what_is_ordered_is_no_race(name: str, tmp_path: Path) -> None:
    for order in emulator.ORDERS:
        run(ORDERED[name], tmp_path, order)


def test_a_race_is_told_in_full(tmp_path: Path) -> None:
    body = "if (threadIdx.x == 40) b1[7] = 1;\n    if (threadIdx.x == 50) b1[8] = b1[7];"
    with pytest.raises(emulator.KernelFault) as caught:
        run(Kernel(body), tmp_path)
    assert re.sub(r"line \d+", "line N", str(caught.value)) == (
        "a race: thread 40 of block 0 writes b1[7] in line N `if (threadIdx.x == 40) b1[7] = 1;`, "
        "thread 50 of block 0 reads b1[7] in line N `if (threadIdx.x == 50) b1[8] = b1[7];`, "
        "and no barrier is between"
    )


# --- kernels of the compiler, damaged -------------------------------------------------------------


def run_damaged(folder: Path, outputs: list[Node], pattern: str, new: str) -> None:
    """Runs a program whose kernels were changed by a regular expression, threads in order."""

    def change(text: str) -> str:
        nonlocal changed
        text, count = re.subn(pattern, new, text)
        changed += count
        return text

    changed = 0
    plan = schedule(inputs_of(outputs), outputs, CUDA)
    device = emulator.Emulator([launch.nest for launch in plan.launches], folder, change)
    assert changed
    inputs = inputs_of(outputs)
    values = [np.zeros(0)] * 9
    for node, value in zip(inputs, random_values(inputs, "")):
        values[node.op.slot] = value  # type: ignore[attr-defined]
    emulator.evaluate(device, plan, values)


DAMAGES = {
    "a barrier between warps": (lambda: [softmax(tensor(0, 2, 700), 1)], r"__syncthreads\(\);", ""),
    "the barrier behind a result of all warps": (
        lambda: [softmax(tensor(0, 2, 700), 1)],
        r"__syncthreads\(\);(?=\n    value = of_warp)",
        "",
    ),
    "the barrier before the warps of a scan read": (
        lambda: [scans(tensor(0, 132, 2052), 1)],
        r"__syncthreads\(\);(?=\n    float outside)",
        "",
    ),
    "the barrier before the next chunk of a scan": (
        lambda: [scans(tensor(0, 132, 2052), 1)],
        r"__syncthreads\(\);(?=\n    if )",
        "",
    ),
    "a barrier between tiles of a product": (
        CASES["matmul float64"],
        r"__syncthreads\(\);(?![\s\S]*__syncthreads)",
        "",
    ),
    "an atomic sum": (
        CASES["scatter add float32"],
        r"atomicAdd\(\((.*?)\)target, ",
        r"*target += (",
    ),
    "an atomic swap": (
        CASES["scatter mul"],
        r"atomicCAS\(word, expected, (.*)\);",
        r"*word; *word = \1;",
    ),
    "blocks that write one cell": (
        lambda: [tensor(0, 5000) * 2.0],
        r"b1\[(\w+)\]",
        r"b1[\1 / 300]",
    ),
    "rows that write one cell": (CASES["products of rows"], r"b1\[(.*?)\] =", "b1[0] ="),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_kernel_is_found_out(name: str, tmp_path: Path) -> None:
    graph, pattern, new = DAMAGES[name]
    run_damaged(tmp_path, graph(), r"\A", "")
    with pytest.raises(emulator.KernelFault, match="a race: "):
        run_damaged(tmp_path, graph(), pattern, new)


def test_a_result_over_an_operand_that_lanes_still_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the barrier that hazards.py puts before it."""
    device = EmulatedRuntime(tmp_path)
    for module in (devices, backend, moving):
        monkeypatch.setattr(module, "runtime", lambda index: device)

    def clip() -> None:
        clear_programs()
        parameter = metaop.zeros(3, 300, device="cuda", requires_grad=True)
        other = metaop.zeros(8, 3, device="cuda", requires_grad=True)
        parameter.grad, other.grad = parameter + 1.0, other + 2.0
        clip_grad_norm_([parameter, other], 0.5)
        parameter.grad.cpu()

    clip()
    without = re.compile(r"__sync\w+\(\);(?=\n    if \(lane == 0\))")
    emit = kernels.emit
    monkeypatch.setattr(kernels, "emit", lambda *given: without.sub("", emit(*given)))
    program.kernels_of.cache_clear()
    with pytest.raises(emulator.KernelFault, match="a race: "):
        clip()
    clear_programs()
