"""Products of bfloat16 in matrix registers: emulated, against NumPy in float64, and compiled."""

from __future__ import annotations

import itertools
import re
import struct

import numpy as np
import pytest

from metaop.codegen.llvm import matrix_registers
from metaop.codegen.llvm.emission import matrix_kernel as emit_matrix_kernel
from metaop.codegen.llvm.emission.emit import emit
from metaop.codegen.llvm.machine import MATRICES
from metaop.codegen.llvm.objects.object_code import assembly
from metaop.codegen.llvm.program import LLVMProgram
from metaop.codegen.llvm.target import Target
from metaop.codegen.lowering import Machine
from metaop.codegen.lowering.base.blocks import Tile
from metaop.codegen.lowering.choice import other_tiles
from metaop.codegen.lowering.contractions.packed_gemm import PackedGemm
from metaop.codegen.lowering.strategy import Tactic
from metaop.codegen.memory.buffers import Buffer
from metaop.codegen.nest import ir
from metaop.compiler import schedule
from metaop.differentiation.transposition import pullback
from metaop.elementwise import apply, cast
from metaop.operators.convolution import convolution
from metaop.operators.linear_algebra import matmul
from metaop.reindex import views
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.node import Node, input_node
from tests.codegen.force import forcing, with_every_size
from tests.codegen.interpret import run_schedule
from tests.codegen.matrix_emulation import Emulator, emulated
from tests.codegen.run_plan import values

F32, BF16 = dtypes.float32, dtypes.bfloat16
MACHINE = Machine(Tile(narrow=MATRICES), threads=2)
SAPPHIRE_RAPIDS = Target(
    "sapphire rapids",
    "sapphirerapids",
    "+avx512f,+avx512bw,+avx512cd,+avx512vl,+avx512dq,+avx512bf16,+amx-tile,+amx-bf16",
    64,
)
NN, NT, TN, TT = itertools.product((False, True), repeat=2)
SHAPES = [
    ((32, 32, 32), (NN, NT)),
    ((64, 96, 128), (TN, TT)),
    ((16, 16, 64), (NN, TT)),
    ((12, 40, 33), (NT, TN)),
    ((33, 17, 31), (NN, TN)),
    ((70, 100, 65), (NN, NT)),
    ((20, 200, 20), (NT, TT)),
]


@pytest.fixture
def emulator(monkeypatch: pytest.MonkeyPatch):
    with emulated(monkeypatch) as found:
        yield found


def run(
    nodes: list[Node], output: Node, arrays: list[np.ndarray], machine: Machine = MACHINE
) -> np.ndarray:
    buffers = [Buffer.from_numpy(array.copy()) for array in arrays]
    program = LLVMProgram(schedule(nodes, [output], machine))
    return program.run(buffers)[0].view(output.shape, output.dtype.numpy)


def compare(found: np.ndarray, wanted: np.ndarray) -> None:
    """Within the rounding of a result to its type; sums are of float32."""
    tolerance = 4e-3 if found.dtype == BF16.numpy else 1e-6
    scale = np.abs(wanted).max()
    np.testing.assert_allclose(found.astype(np.float64), wanted, tolerance, tolerance * scale)


def product(
    shape: tuple[int, int, int],
    left_transposed: bool,
    right_transposed: bool,
    batch: tuple[int, ...] = (),
) -> tuple[list[Node], Node]:
    rows, columns, depth = shape
    left = input_node(0, (*batch, depth, rows) if left_transposed else (*batch, rows, depth), BF16)
    right = input_node(1, (columns, depth) if right_transposed else (depth, columns), BF16)
    a = views.transpose(left, -1, -2) if left_transposed else left
    b = views.transpose(right, 0, 1) if right_transposed else right
    return [left, right], matmul(a, b)


def wanted_product(
    arrays: list[np.ndarray], left_transposed: bool, right_transposed: bool
) -> np.ndarray:
    a, b = (array.astype(np.float64) for array in arrays[:2])
    return (np.swapaxes(a, -1, -2) if left_transposed else a) @ (b.T if right_transposed else b)


@pytest.mark.parametrize("shape, forms", SHAPES, ids=str)
def test_products(
    shape: tuple[int, int, int], forms: tuple[tuple[bool, bool], ...], emulator: Emulator
) -> None:
    for transposed in forms:
        nodes, output = product(shape, *transposed)
        arrays = values(nodes)
        compare(run(nodes, output, arrays), wanted_product(arrays, *transposed))
    emulator.assert_well_used()


def test_nests_mean_the_product() -> None:
    for shape, transposed in (((16, 16, 64), TT), ((33, 17, 31), NN), ((12, 40, 33), NT)):
        nodes, output = product(shape, *transposed)
        arrays = values(nodes)
        (found,) = run_schedule(schedule(nodes, [output], MACHINE), arrays)
        compare(found, wanted_product(arrays, *transposed))


def test_batches(emulator: Emulator) -> None:
    nodes, output = product((40, 24, 50), False, False, (3,))
    arrays = values(nodes)
    compare(run(nodes, output, arrays), wanted_product(arrays, False, False))
    emulator.assert_well_used()


def test_several_blocks_of_the_depth_and_of_the_result(emulator: Emulator) -> None:
    machine = Machine(Tile(narrow=Tile(32, 32, 64, 64, 64, step=ir.MATRIX)), threads=2)
    for shape, transposed in (((96, 70, 130), NN), ((96, 70, 130), TT), ((130, 64, 128), NT)):
        nodes, output = product(shape, *transposed)
        arrays = values(nodes)
        compare(run(nodes, output, arrays, machine), wanted_product(arrays, *transposed))
    emulator.assert_well_used()


def test_every_size_of_blocks_that_a_tuner_tries(emulator: Emulator) -> None:
    tile = Tile(32, 32, 64, 64, 64, step=ir.MATRIX)
    tactic = Tactic("panels", tile)
    machine = Machine(Tile(narrow=tile), tiles=((12, 32),), threads=2)
    assert not other_tiles(tactic, machine)
    nodes, output = product((96, 70, 130), False, True)
    arrays = values(nodes)
    sizes = with_every_size([tactic], machine)
    assert len(sizes) > 5
    for one in sizes:
        found = run(nodes, output, arrays, forcing(machine, lambda _, one=one: one))
        compare(found, wanted_product(arrays, False, True))
    emulator.assert_well_used()


def test_fused_epilogues(emulator: Emulator) -> None:
    """A bias, a residual in float32 and an activation, stored as either type."""
    for shape, dtype in itertools.product(((64, 64, 64), (37, 50, 45)), (BF16, F32)):
        nodes, output = product(shape, False, True)
        bias, residual = input_node(2, shape[1:2], BF16), input_node(3, shape[:2], F32)
        total = cast(output, F32) + cast(bias, F32) + residual
        result = cast(apply("maximum", total, apply("mul", total, total)), dtype)
        nodes += [bias, residual]
        arrays = values(nodes)
        rounded = wanted_product(arrays, False, True).astype(BF16.numpy).astype(np.float64)
        wanted = rounded + arrays[2].astype(np.float64) + arrays[3]
        found = run(nodes, result, arrays)
        scale = np.abs(wanted).max() ** 2
        np.testing.assert_allclose(
            found.astype(np.float64), np.maximum(wanted, wanted**2), 2e-2, 4e-3 * scale
        )
    emulator.assert_well_used()


CONVOLUTIONS = [
    # Shapes of the input and of the weight, stride, padding, dilation, groups.
    ((2, 48, 9, 9), (40, 48, 1, 1), 1, 0, 1, 1),
    ((2, 33, 8, 10), (20, 33, 1, 1), 2, 0, 1, 1),
    ((2, 32, 9, 9), (40, 32, 3, 3), 1, 1, 1, 1),
    ((1, 6, 11, 12), (17, 6, 3, 3), 2, 1, 1, 1),
    ((2, 16, 9, 8), (24, 16, 3, 3), 1, 2, 2, 1),
    ((2, 64, 7, 7), (64, 32, 3, 3), 1, 1, 1, 2),
]


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_convolutions_and_their_gradients(case: tuple, emulator: Emulator) -> None:
    shape, weight, stride, padding, dilation, groups = case
    pads = (padding, padding)

    def nodes_of(dtype: dtypes.DType) -> tuple[list[Node], list[Node]]:
        x, w = input_node(0, shape, dtype), input_node(1, weight, dtype)
        strides, dilations = (stride, stride), (dilation, dilation)
        y = convolution(x, w, None, strides, pads, pads, dilations, groups)
        g = input_node(2, y.shape, dtype)
        by_input, by_weight = pullback([y], [g], [x, w])
        assert by_input is not None and by_weight is not None
        return [x, w, g], [y, by_input, by_weight]

    nodes, outputs = nodes_of(BF16)
    exact_nodes, exact_outputs = nodes_of(dtypes.float64)
    arrays = values(nodes)
    exact = [array.astype(np.float64) for array in arrays]
    for output, exact_output in zip(outputs, exact_outputs):
        used = 2 if output is outputs[0] else 3
        wanted = run(exact_nodes[:used], exact_output, exact[:used])
        compare(run(nodes[:used], output, arrays[:used]), wanted)
    emulator.assert_well_used()


# --- what must not go unnoticed ---------------------------------------------------------------


def test_pairs_in_another_order_are_noticed(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = PackedGemm._packed_value

    def swapped(self, *arguments):
        pair = original(self, *arguments)
        return pair._replace(operands=pair.operands[::-1])

    nodes, output = product((32, 32, 64), False, False)
    arrays = values(nodes)
    compare(run(nodes, output, arrays), wanted_product(arrays, False, False))
    monkeypatch.setattr(PackedGemm, "_packed_value", swapped)
    with pytest.raises(AssertionError):
        compare(run(nodes, output, arrays), wanted_product(arrays, False, False))


@pytest.mark.parametrize("byte", [0, 16, 24, 28, 48, 52, 55])
def test_wrong_shapes_of_registers_are_noticed(
    byte: int, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The palette, or the width or height of the registers of sums, left or right factors."""
    original = emit_matrix_kernel.shapes

    def changed(rows: int, columns: int) -> bytes:
        found = bytearray(original(rows, columns))
        found[byte] //= 2
        return bytes(found)

    monkeypatch.setattr(emit_matrix_kernel, "shapes", changed)
    nodes, output = product((32, 32, 64), False, False)
    run(nodes, output, values(nodes))
    assert emulator.faults


@pytest.mark.parametrize("operation", ["configure_matrices", "release_matrices"])
def test_registers_that_are_not_configured_or_released_are_noticed(
    operation: str, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"metaop.codegen.llvm.emission.emit.{operation}", lambda *_: None)
    nodes, output = product((32, 32, 64), False, False)
    run(nodes, output, values(nodes))
    with pytest.raises(AssertionError):
        emulator.assert_well_used()


# --- machine code -----------------------------------------------------------------------------


@pytest.mark.parametrize("quick", [False, True])
def test_machine_code_keeps_sums_in_registers(quick: bool) -> None:
    """The inner loop loads two registers of each factor, multiplies, and moves nothing else."""
    nodes, output = product((64, 96, 256), False, False)
    (launch,) = schedule(nodes, [output], MACHINE).launches
    text = assembly(emit(launch.nest, SAPPHIRE_RAPIDS, "kernel"), SAPPHIRE_RAPIDS, quick=quick)
    lines = [line.split("#")[0].split() for line in text.splitlines()]
    names = [words[0] for words in lines if words]
    products = [k for k, name in enumerate(names) if name == "tdpbf16ps"]
    assert len(products) == 4 and names.count("tileloadd") == 4
    assert names.count("tilestored") == 4 and names.count("tilezero") == 4
    inside = names[products[0] - 3 : products[-1] + 1]
    # Quick code sets the stride of a panel again.
    again = {"movl"} if quick else set()
    assert set(inside) <= {"tileloadd", "tdpbf16ps", "leaq", "addq"} | again
    assert names.count("ldtilecfg") == names.count("tilerelease") == 1
    assert not re.search(r"tilestored.*%rsp", text)


def test_shapes_as_the_processor_reads_them() -> None:
    found = struct.unpack("<2B14x8H16x8B8x", emit_matrix_kernel.shapes(27, 32))
    assert found[:2] == (1, 0)
    assert found[2:10] == (64,) * 8
    assert found[10:] == (16, 16, 11, 11, 16, 11, 16, 16)


# --- whether they are used --------------------------------------------------------------------


def test_a_processor_without_them_or_a_setting_switches_them_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(matrix_registers, "host_target", lambda: SAPPHIRE_RAPIDS)
    monkeypatch.setenv("METAOP_AMX", "0")
    assert not matrix_registers.verdict().usable
    monkeypatch.setenv("METAOP_AMX", "1")
    monkeypatch.setattr(matrix_registers, "_permitted", lambda: False)
    assert matrix_registers.verdict() == (False, "Linux does not permit their use")
    plain = Target("avx512", "x86-64-v4", "+avx512f", 64)
    monkeypatch.setattr(matrix_registers, "host_target", lambda: plain)
    assert not matrix_registers.verdict().usable


def test_the_probe_tells_right_from_wrong(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = matrix_registers.probe(ir.MATRIX, 3)
    emulator.assert_well_used()
    assert np.array_equal(expected, np.round(expected)) and np.abs(expected).max() > 100
    original = emit_matrix_kernel.shapes
    monkeypatch.setattr(emit_matrix_kernel, "shapes", lambda rows, columns: original(16, columns))
    assert not np.array_equal(matrix_registers.probe(ir.MATRIX, 3), expected)


def test_matrices_and_pairs_agree_in_the_probe(emulator: Emulator) -> None:
    if not matrix_registers.host_target().has_bfloat16_pairs:
        pytest.skip("this processor has no products of pairs")
    pairs = matrix_registers.probe(ir.PAIR, 3 * ir.MATRIX // ir.PAIR)
    np.testing.assert_array_equal(matrix_registers.probe(ir.MATRIX, 3), pairs)
