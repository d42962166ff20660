"""Kernels of the CUDA printer, run on the CPU, compute what the graphs mean."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from metaop.codegen import reference
from metaop.codegen.cuda.emit import emit
from metaop.codegen.cuda.schedules import CUDA
from metaop.codegen.nest import ir
from metaop.codegen.schedule import Schedule
from metaop.compiler import schedule
from metaop.elementwise.meta_op import apply
from metaop.reduce import reduce_axes
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.faults import Fault
from metaop.unified_graph.node import Input, Node
from tests.codegen.lowering.test_lowering import softmax
from tests.cuda import emulator
from tests.cuda.cases import CASES, WIDER, inputs_of, machine_of, random_values, tensor
from tests.cuda.emulator.runtime import launch, load

pytestmark = pytest.mark.skipif(not emulator.is_available(), reason="the emulator needs g++")

TOLERANCE = {"float64": 1e-12, "float32": 3e-5, "float16": 2e-3, "bfloat16": 2e-2}
Programs = dict[str, tuple[list[Node], Schedule]]


@pytest.fixture(scope="module")
def programs() -> Programs:
    built = {}
    for name, graph in CASES.items():
        outputs = graph()
        built[name] = outputs, schedule(inputs_of(outputs), outputs, machine_of(name))
    return built


@pytest.fixture(scope="module")
def device(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> emulator.Emulator:
    nests = [launch.nest for _, plan in programs.values() for launch in plan.launches]
    return emulator.Emulator(nests, Path(tmp_path_factory.mktemp("emulated")))


def values_by_slot(outputs: list[Node], name: str) -> list[np.ndarray]:
    inputs = inputs_of(outputs)
    slots = [node.op.slot for node in inputs if isinstance(node.op, Input)]
    result = [np.zeros(0)] * (max(slots) + 1)
    for slot, value in zip(slots, random_values(inputs, name)):
        result[slot] = value
    return result


@cache
def expected_values(name: str) -> list[np.ndarray]:
    """What NumPy computes for a case; for some in a wider type, and rounded at the end.

    Every order of threads is compared with it: the reference takes a square of the time for scans.
    """
    outputs = CASES[name]()
    values = values_by_slot(outputs, name)
    if name not in WIDER:
        return reference.evaluate(outputs, values)
    wide = [value.astype(np.float32) for value in values]
    found = reference.evaluate(WIDER[name](), wide)
    return [result.astype(output.dtype.numpy) for output, result in zip(outputs, found)]


@pytest.mark.parametrize("order", emulator.ORDERS)
@pytest.mark.parametrize("name", CASES)
def test_value(name: str, order: str, programs: Programs, device: emulator.Emulator) -> None:
    outputs, plan = programs[name]
    values = values_by_slot(outputs, name)
    expected = expected_values(name)
    actual = emulator.evaluate(device, plan, values, order)
    for result, wanted in zip(actual, expected, strict=True):
        assert_close(result, wanted)


def assert_close(result: np.ndarray, wanted: np.ndarray) -> None:
    assert result.dtype == wanted.dtype
    tolerance = TOLERANCE.get(wanted.dtype.name, 0)
    wide = np.float64 if tolerance else wanted.dtype
    np.testing.assert_allclose(
        result.astype(wide), wanted.astype(wide), rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize("bad", (-1, 6))
@pytest.mark.parametrize("name", ("gathered", "scattered"))
def test_an_index_out_of_range_is_reported(
    name: str, bad: int, programs: Programs, device: emulator.Emulator
) -> None:
    outputs, plan = programs[name]
    values = values_by_slot(outputs, name)
    values[1][3] = bad
    with pytest.raises(Fault, match=f"index {bad} is out of range .* size 6"):
        emulator.evaluate(device, plan, values)


def test_a_division_by_zero_is_reported(tmp_path: Path) -> None:
    left, right = (tensor(slot, 50, dtype=dtypes.int32) for slot in (0, 1))
    outputs = [apply("remainder", left, right)]
    plan = schedule(inputs_of(outputs), outputs, CUDA)
    device = emulator.Emulator([launch.nest for launch in plan.launches], tmp_path)
    values = [np.arange(50, dtype=np.int32) - 20, np.arange(50, dtype=np.int32) + 1]
    result = emulator.evaluate(device, plan, values)
    assert_close(result[0], reference.evaluate(outputs, values)[0])
    values[1][33] = 0
    with pytest.raises(Fault, match="ZeroDivisionError"):
        emulator.evaluate(device, plan, values)


# --- the emulator sees what would go wrong on a GPU ----------------------------------------------


def run_changed(folder: Path, outputs: list[Node], change: Callable[[str], str]) -> None:
    """Runs a program whose kernels were damaged; raises when the emulator or the values show it."""
    plan = schedule(inputs_of(outputs), outputs, CUDA)
    damaged = emulator.Emulator([launch.nest for launch in plan.launches], folder, change)
    values = values_by_slot(outputs, "")
    for order in emulator.ORDERS:
        actual = emulator.evaluate(damaged, plan, values, order)
        for result, wanted in zip(actual, reference.evaluate(outputs, values), strict=True):
            assert_close(result, wanted)


def replaced(old: str, new: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    return change


def wide_softmax() -> list[Node]:
    return [softmax(tensor(0, 2, 700), 1)]


def test_undamaged_kernels_pass(tmp_path: Path) -> None:
    run_changed(tmp_path, wide_softmax(), lambda text: text)


def test_missing_barriers_are_seen(tmp_path: Path) -> None:
    with pytest.raises(emulator.KernelFault, match=r"a race: .* of_warp .* no barrier is between"):
        run_changed(tmp_path, wide_softmax(), replaced("__syncthreads();", ""))


def test_divergent_barriers_are_seen(tmp_path: Path) -> None:
    divergent = replaced("__syncthreads();", "if (threadIdx.x < 40) __syncthreads();")
    with pytest.raises(emulator.KernelFault, match="waits in __syncthreads for threads"):
        run_changed(tmp_path, wide_softmax(), divergent)


def test_lanes_missing_from_a_collective_are_seen(tmp_path: Path) -> None:
    leaving = "value += other; if (threadIdx.x == 3) return value;"
    missing = replaced("value = value + other;", leaving)
    with pytest.raises(emulator.KernelFault, match="waits in a warp collective"):
        run_changed(tmp_path, wide_softmax(), missing)


def test_writes_outside_of_buffers_are_seen(tmp_path: Path) -> None:
    outputs = [reduce_axes("add", tensor(0, 4, 20), [1])]
    with pytest.raises(emulator.KernelFault, match="writes outside of buffer 1"):
        run_changed(tmp_path, outputs, replaced("b1[p]", "b1[p + 1]"))


def test_reads_outside_of_buffers_are_seen(tmp_path: Path) -> None:
    outputs = [reduce_axes("add", tensor(0, 4, 21), [1])]
    with pytest.raises(AssertionError, match="nan"):
        run_changed(tmp_path, outputs, replaced("i1 < 21", "i1 < 22"))


@pytest.mark.parametrize("is_general", (False, True), ids=("exact", "general"))
def test_a_result_in_the_memory_of_what_a_later_one_reads(is_general: bool, tmp_path: Path) -> None:
    """y = sqrt(x) takes the memory of z, which z + x reads behind it."""
    start = [ir.Argument(1 + number) if is_general else 0 for number in range(4)]
    places = [ir.Sum(((ir.LoopIndex("i"), 1),), constant) for constant in start]
    x, z = (ir.Load(number, places[number], dtypes.float32) for number in (0, 1))
    root = ir.Apply("sqrt", (x,), dtypes.float32, dtypes.float32)
    total = ir.Apply("add", (z, x), dtypes.float32, dtypes.float32)
    body = (ir.Store(2, places[2], root), ir.Store(3, places[3], total))
    extent = ir.Argument(0) if is_general else 6
    loop = ir.For("i", extent, "parallel", body, vector=True)
    roles = [ir.Parameter(dtypes.float32, role) for role in ("read", "read", "write", "write")]
    nest = ir.LoopNest("two", tuple(roles), (6, 0, 0, 0, 0) if is_general else (), (loop,))
    kernel = load(emit(nest, "kernel"), "kernel", tmp_path)
    values = np.arange(12, dtype=np.float32).reshape(2, 6)
    given, taken, made = values[0].copy(), values[1].copy(), np.zeros(6, np.float32)
    error = np.zeros(4, np.int64)
    buffers = [array.ctypes.data for array in (given, taken, taken, made)]
    launch(kernel, 1, 256, [*buffers, *nest.arguments, error.ctypes.data])
    np.testing.assert_allclose(taken, np.sqrt(values[0]), rtol=1e-6)
    np.testing.assert_array_equal(made, values.sum(0))
