"""Contractions of many shapes: nests interpreted, and machine code, against NumPy in float64."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from metaop.codegen.llvm.called import called_in, text_of
from metaop.codegen.llvm.emission.emit import emit
from metaop.codegen.llvm.machine import host_machine
from metaop.codegen.llvm.program import LLVMProgram
from metaop.codegen.llvm.target import Target
from metaop.codegen.lowering import Machine
from metaop.codegen.lowering.base.blocks import Tile
from metaop.codegen.lowering.machine import WITH_FEWER_PRODUCTS
from metaop.codegen.memory.buffers import Buffer
from metaop.codegen.nest import ir
from metaop.compiler import schedule
from metaop.differentiation.transposition import pullback
from metaop.elementwise import apply
from metaop.elementwise.meta_op import cast as apply_cast
from metaop.operators.convolution import convolution, transposed_convolution
from metaop.operators.linear_algebra import matmul
from metaop.reindex import views
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.node import Node, input_node
from tests.codegen.interpret import Interpreter, run_schedule
from tests.codegen.run_plan import run, values

F32, F64, BF16 = dtypes.float32, dtypes.float64, dtypes.bfloat16
AVX512 = Target("x86_64", "znver4", "+avx512f,+avx512bw,+avx512vl,+avx512dq,+avx512bf16", 64)
NOT_THIN = ("thin", *WITH_FEWER_PRODUCTS)


def product(
    rows: int, columns: int, depth: int, left_transposed: bool, right_transposed: bool, dtype=F32
) -> tuple[list[Node], Node]:
    left = input_node(0, (depth, rows) if left_transposed else (rows, depth), dtype)
    right = input_node(1, (columns, depth) if right_transposed else (depth, columns), dtype)
    a = views.transpose(left, 0, 1) if left_transposed else left
    b = views.transpose(right, 0, 1) if right_transposed else right
    return [left, right], matmul(a, b)


def micro_kernels(body) -> list[ir.MicroKernel]:
    found = []
    for statement in body:
        if isinstance(statement, ir.For):
            found += micro_kernels(statement.body)
        elif isinstance(statement, ir.MicroKernel):
            found.append(statement)
    return found


SHAPES = [(32, 64, 48), (33, 37, 40), (8, 100, 800), (200, 12, 49), (1024, 40, 16), (64, 300, 797)]


@pytest.mark.parametrize("rows, columns, depth", SHAPES)
def test_products(rows: int, columns: int, depth: int) -> None:
    for left_transposed, right_transposed in itertools.product((False, True), repeat=2):
        for dtype, tolerance in ((F32, 1e-5), (F64, 1e-13)):
            nodes, output = product(rows, columns, depth, left_transposed, right_transposed, dtype)
            a, b = arrays = values(nodes)
            found = run(schedule(nodes, [output]), arrays, output)
            a, b = a.astype(np.float64), b.astype(np.float64)
            wanted = (a.T if left_transposed else a) @ (b.T if right_transposed else b)
            np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * depth)


def test_nests_mean_the_product() -> None:
    for shape in ((32, 40, 24), (16, 33, 770), (33, 40, 24)):
        nodes, output = product(*shape, False, True)
        arrays = values(nodes)
        (found,) = run_schedule(schedule(nodes, [output]), arrays)
        np.testing.assert_allclose(found, arrays[0] @ arrays[1].T, rtol=2e-5, atol=2e-4)


@pytest.mark.parametrize("right_transposed", [False, True])
@pytest.mark.parametrize("depth", [96, 768])
def test_what_later_blocks_read_is_asked_for_before(depth: int, right_transposed: bool) -> None:
    nodes, output = product(64, 512, depth, False, right_transposed)
    plan = schedule(nodes, [output], Machine(Tile(block_columns=128)))
    (launch,) = plan.launches
    arrays = [np.zeros(node.shape, np.float32).ravel() for node in launch.buffers]
    interpreter = Interpreter(launch.nest, arrays)
    interpreter.run()
    left, right = (launch.buffers.index(node) for node in nodes)
    # A line of memory holds 16 numbers, and those of whole arrays of lines are asked for.
    lines = {(buffer, place // 16) for buffer, place in interpreter.asked}
    assert {(right, line) for line in range(512 * depth // 16)} <= lines
    # Nothing is asked for before the first panels.
    rows = range(16 * depth // 16, 64 * depth // 16)
    assert {(left, line) for line in rows} <= lines


@pytest.mark.parametrize("rows, is_packed", [(64, False), (65, True)])
def test_a_left_factor_with_neighbours_along_the_depth_is_not_packed(
    rows: int, is_packed: bool
) -> None:
    for left_transposed in (False, True):
        nodes, output = product(rows, 64, 64, left_transposed, False)
        (launch,) = schedule(nodes, [output]).launches
        (tile,) = micro_kernels(launch.nest.body)
        assert (tile.left_stride is None) == (is_packed or left_transposed)


@pytest.mark.parametrize("channels, stride", [(12, 2), (9, 1), (3, 2)])
def test_weights_are_read_in_place_in_blocks_of_whole_windows(channels: int, stride: int) -> None:
    x = input_node(0, (2, channels, 9, 7), F32)
    w = input_node(1, (8, channels, 5, 3), F32)
    output = convolution(x, w, None, (stride, 1), (2, 1), (2, 0), (1, 2), 1)
    plan = schedule([x, w], [output], Machine(Tile(depth=64)))
    (launch,) = plan.launches
    (tile,) = micro_kernels(launch.nest.body)
    assert launch.buffers[tile.left] is w and tile.depth.constant % 15 == 0
    arrays = values([x, w])
    (interpreted,) = run_schedule(plan, arrays)
    wanted = run(schedule([x, w], [output], Machine(Tile(rows=5))), arrays, output)
    np.testing.assert_allclose(interpreted, wanted, rtol=1e-4, atol=1e-4)
    found = run(schedule([x, w], [output], host_machine()), arrays, output)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(32, 40, 24), (33, 64, 77), (8, 32, 401), (15, 17, 130)])
def test_pairs_of_bfloat16(shape: tuple[int, int, int]) -> None:
    for left_transposed, right_transposed in itertools.product((False, True), repeat=2):
        nodes, output = product(*shape, left_transposed, right_transposed, BF16)
        a, b = arrays = values(nodes)
        plan = schedule(nodes, [output], Machine(Tile(narrow=Tile(step=ir.PAIR)), without=NOT_THIN))
        (launch,) = plan.launches
        assert all(tile.step == ir.PAIR for tile in micro_kernels(launch.nest.body))
        (interpreted,) = run_schedule(plan, arrays)
        compiled = run(schedule(nodes, [output], host_machine()), arrays, output)
        a, b = a.astype(np.float64), b.astype(np.float64)
        wanted = (a.T if left_transposed else a) @ (b.T if right_transposed else b)
        for found in (interpreted, compiled):
            np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=4e-3, atol=1e-3)


def test_bfloat16_is_multiplied_in_pairs() -> None:
    nodes, output = product(32, 64, 64, False, False, BF16)
    (launch,) = schedule(
        nodes, [output], Machine(Tile(narrow=Tile(step=ir.PAIR)), without=NOT_THIN)
    ).launches
    (symbol,) = called_in([emit(launch.nest, AVX512, "kernel")])
    text = text_of(symbol, AVX512)
    assert text is not None and "dpbf16ps.512" in text
    assert "llvm.fma" not in text


WHOLE = (dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.int32)


def whole_values(nodes: list[Node]) -> list[np.ndarray]:
    """Numbers from the whole range of a type, of int32 small ones."""
    random, found = np.random.default_rng(0), []
    for node in nodes:
        range_of = np.iinfo(np.int16 if node.dtype is dtypes.int32 else node.dtype.numpy)
        numbers = random.integers(range_of.min, range_of.max + 1, node.shape)
        found.append(numbers.astype(node.dtype.numpy))
    return found


@pytest.mark.parametrize("shape", [(32, 40, 24), (33, 64, 77), (8, 32, 401), (15, 17, 130)])
def test_whole_numbers(shape: tuple[int, int, int]) -> None:
    tile = Tile(int8=Tile(step=ir.QUAD), int16=Tile(step=ir.PAIR))
    for number, (one, other) in enumerate(itertools.product(WHOLE, repeat=2)):
        left_transposed, right_transposed = number % 2 == 0, number % 4 < 2
        nodes, _ = product(*shape, left_transposed, right_transposed, one)
        nodes[1] = input_node(1, nodes[1].shape, other)
        a, b = (apply_cast(node, dtypes.int32) for node in nodes)
        a = views.transpose(a, 0, 1) if left_transposed else a
        b = views.transpose(b, 0, 1) if right_transposed else b
        output = matmul(a, b)
        x, y = arrays = whole_values(nodes)
        plan = schedule(nodes, [output], Machine(tile))
        (launch,) = plan.launches
        largest = max(one.itemsize, other.itemsize)
        assert {tile.step for tile in micro_kernels(launch.nest.body)} == {4 // largest}
        x, y = (z.astype(np.int64) for z in (x, y))
        wanted = (x.T if left_transposed else x) @ (y.T if right_transposed else y)
        (interpreted,) = run_schedule(plan, arrays)
        compiled = run(schedule(nodes, [output], host_machine()), arrays, output)
        for found in (interpreted, compiled):
            np.testing.assert_array_equal(found, wanted.astype(np.int32))


@pytest.mark.parametrize("size", [7, 12])
def test_convolutions_of_whole_numbers(size: int) -> None:
    image, weight = (
        input_node(0, (2, 12, size, size), dtypes.uint8), input_node(1, (10, 12, 3, 3), dtypes.int8)
    )  # fmt: skip
    operands = (apply_cast(node, dtypes.int32) for node in (image, weight))
    output = convolution(*operands, None, (1, 1), (1, 1), (1, 1), (1, 1), 1)
    arrays = whole_values([image, weight])
    tile = Tile(int8=Tile(step=ir.QUAD), int16=Tile(step=ir.PAIR))
    plan = schedule([image, weight], [output], Machine(tile))
    kernels = [tile for launch in plan.launches for tile in micro_kernels(launch.nest.body)]
    assert {(tile.step, tile.signs) for tile in kernels} == {(ir.QUAD, "su")}
    (interpreted,) = run_schedule(plan, arrays)
    compiled = run(schedule([image, weight], [output], host_machine()), arrays, output)
    padded = np.pad(arrays[0].astype(np.int64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    wanted = np.einsum("nchwyx,ocyx->nohw", windows, arrays[1].astype(np.int64))
    for found in (interpreted, compiled):
        np.testing.assert_array_equal(found, wanted)


def test_a_left_factor_that_others_read_too_is_not_packed() -> None:
    nodes = [input_node(0, (64, 64), F32), input_node(1, (64, 64), F32)]
    shared = apply("exp", nodes[0])
    found = schedule(nodes, [matmul(shared, nodes[1]), apply("relu", shared), shared * shared])
    tiles = [tile for launch in found.launches for tile in micro_kernels(launch.nest.body)]
    assert [tile.left_stride for tile in tiles] == [64]


@pytest.mark.parametrize("size, is_plain", [(12, True), (14, False)])
def test_vectors_inside_one_image_are_stored_whole(size: int, is_plain: bool) -> None:
    """144 positions of an image are 9 vectors of 16; 196 are not whole vectors."""
    image, weight = input_node(0, (4, 32, size, size), F32), input_node(1, (32, 32, 1, 1), F32)
    output = convolution(image, weight, None, (1, 1), (0, 0), (0, 0), (1, 1), 1)
    (launch,) = schedule([image, weight], [output]).launches
    text = emit(launch.nest, AVX512, "kernel")
    assert ("masked.store" not in text) == is_plain


@pytest.mark.parametrize("steps", [4, 5, 8])
@pytest.mark.parametrize("width", [8, 40])
def test_rows_may_be_two_axes_in_another_order_than_in_memory(steps: int, width: int) -> None:
    """Sequences batch first, as recurrent layers read them: (batch, steps) -> (steps, batch)."""
    left, right = input_node(0, (4, steps, width), F32), input_node(1, (64, width), F32)
    output = matmul(views.transpose(left, 0, 1), views.transpose(right, 0, 1))
    a, b = arrays = values([left, right])
    found = run(schedule([left, right], [output]), arrays, output)
    wanted = a.astype(np.float64).transpose(1, 0, 2) @ b.astype(np.float64).T
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-4)


def test_elementwise_factors_and_results() -> None:
    left, right = input_node(0, (64, 96), F32), input_node(1, (96, 70), F32)
    output = apply("relu", matmul(apply("exp", left), right)) + 1.0
    arrays = values([left, right])
    found = run(schedule([left, right], [output]), arrays, output)
    a, b = (array.astype(np.float64) for array in arrays)
    np.testing.assert_allclose(found, np.maximum(np.exp(a) @ b, 0) + 1, rtol=1e-4, atol=1e-4)


def test_numbers_that_are_not_finite_stay_in_their_rows_and_columns() -> None:
    nodes, output = product(40, 48, 797, False, True)
    a, b = values(nodes)
    a[3, 796], b[5, 0], a[7, 1] = np.nan, np.inf, np.inf
    found = run(schedule(nodes, [output]), [a, b], output)
    with np.errstate(invalid="ignore"):
        wanted = a.astype(np.float64) @ b.T.astype(np.float64)
    assert (np.isfinite(found) == np.isfinite(wanted)).all()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-3)


CONVOLUTIONS = [
    # batch, channels in and out, image, window, stride, padding
    (2, 8, 16, 14, 1, 1, 0),
    (3, 8, 24, 9, 3, 1, 1),
    (2, 16, 8, 15, 3, 2, 1),
    (2, 8, 16, 12, 1, 2, 0),
    (2, 3, 8, 20, 7, 2, 3),
    (1, 8, 8, 19, 3, 3, 0),
    (2, 40, 64, 7, 3, 1, 1),
    # Many columns: the window goes outside of the channels, and the weight is relaid.
    (3, 8, 20, 15, 3, 1, 1),
    (4, 3, 16, 27, 7, 2, 3),
    (3, 12, 20, 19, 4, 3, 1),
]


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_convolutions_and_their_gradients(case: tuple[int, ...], target: str) -> None:
    torch = pytest.importorskip("torch")
    batch, channels, outputs, image, window, stride, padding = case
    x = input_node(0, (batch, channels, image, image), F32)
    w = input_node(1, (outputs, channels, window, window), F32)
    pads = (padding, padding)
    y = convolution(x, w, None, (stride, stride), pads, pads, (1, 1), 1)
    g = input_node(2, y.shape, F32)
    nodes = [x, w, g]
    arrays = values(nodes)
    tx, tw, tg = (torch.from_numpy(array).double() for array in arrays)
    tx.requires_grad_(), tw.requires_grad_()
    ty = torch.nn.functional.conv2d(tx, tw, None, stride, padding)
    ty.backward(tg)
    wanted = [ty.detach(), tx.grad, tw.grad]
    for output, correct in zip([y, *pullback([y], [g], [x, w])], wanted, strict=True):
        found = run(schedule(nodes, [output]), arrays, output)
        scale = float(correct.abs().max())
        np.testing.assert_allclose(found, correct.numpy(), rtol=1e-4, atol=1e-5 * scale)


def test_residues_of_a_stride_sum_over_their_part_of_the_window_only() -> None:
    x, w = input_node(0, (2, 16, 16, 16), F32), input_node(1, (32, 16, 3, 3), F32)
    y = convolution(x, w, None, (2, 2), (1, 1), (1, 1), (1, 1), 1)
    g = input_node(2, y.shape, F32)
    (by_input,) = pullback([y], [g], [x])
    plan = schedule([x, w, g], [by_input])
    launches = plan.launches
    depths = [
        tile.depth.constant for launch in launches for tile in micro_kernels(launch.nest.body)
    ]
    assert sorted(depths) == [32, 2 * 32, 2 * 32, 4 * 32]
    # All of them write to the image itself.
    assert launches[-1].buffers[-1] is plan.outputs[0]
    assert all(launch.nest.name.startswith(("contraction", "order")) for launch in launches)


def test_residues_without_a_window_are_filled_with_zeros() -> None:
    x, w = input_node(0, (2, 16, 16, 16), F32), input_node(1, (32, 16, 1, 1), F32)
    y = convolution(x, w, None, (2, 2), (0, 0), (0, 0), (1, 1), 1)
    g = input_node(2, y.shape, F32)
    (by_input,) = pullback([y], [g], [x])
    names = [launch.nest.name for launch in schedule([x, w, g], [by_input]).launches]
    assert names == ["fill", "contraction_add"]


TRANSPOSED = [
    # batch, channels in and out, image, window, stride, padding, output padding
    (2, 16, 8, 8, 2, 2, 0, 0),
    (2, 16, 8, 8, 4, 2, 1, 0),
    (3, 16, 12, 9, 3, 2, 1, 1),
    (40, 16, 8, 3, 4, 2, 1, 0),
    (9, 8, 8, 4, 1, 2, 0, 1),
    (40, 16, 8, 1, 4, 1, 0, 0),
    (2, 12, 8, 7, 5, 3, 1, 2),
]


@pytest.mark.parametrize("case", TRANSPOSED, ids=str)
def test_transposed_convolutions(case: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    batch, channels, outputs, image, window, stride, padding, extra = case
    x = input_node(0, (batch, channels, image, image), F32)
    w = input_node(1, (channels, outputs, window, window), F32)
    pairs = [(n, n) for n in (stride, padding, extra, 1)]
    y = transposed_convolution(x, w, None, *pairs, 1)
    arrays = values([x, w])
    tx, tw = (torch.from_numpy(array).double() for array in arrays)
    wanted = torch.nn.functional.conv_transpose2d(tx, tw, None, stride, padding, extra).numpy()
    found = run(schedule([x, w], [y]), arrays, y)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


def test_windows_and_equal_positions_read_one_weight_each_in_its_own_order() -> None:
    """Of a gradient that is the same at all positions, nobody asks which window it belongs to."""
    torch = pytest.importorskip("torch")
    x, row, w = (
        input_node(k, shape, F32)
        for k, shape in enumerate([(8, 16, 4, 4), (16, 1, 1), (16, 8, 4, 4)])
    )
    equal = views.broadcast_to(row, x.shape)
    pairs = (2, 2), (1, 1), (0, 0), (1, 1)
    outputs = [transposed_convolution(image, w, None, *pairs, 1) for image in (x, equal)]
    arrays = values([x, row, w])
    wide = [torch.from_numpy(array).double() for array in arrays]
    for found, image in zip(run_schedule(schedule([x, row, w], outputs), arrays), wide):
        wanted = torch.nn.functional.conv_transpose2d(image.expand(x.shape), wide[2], None, 2, 1)
        np.testing.assert_allclose(found.reshape(wanted.shape), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows, columns, depth", [(32, 64, 48), (9, 37, 800), (33, 300, 770)])
@pytest.mark.parametrize("batch", [(), (3,)], ids=["one", "batched"])
@pytest.mark.parametrize("right_transposed", [False, True])
def test_a_right_factor_that_several_products_read_is_packed_once(
    rows: int, columns: int, depth: int, batch: tuple[int, ...], right_transposed: bool, target: str
) -> None:
    shape = (*batch, columns, depth) if right_transposed else (*batch, depth, columns)
    right = input_node(0, shape, F32)
    factor = views.transpose(right, right.ndim - 2, right.ndim - 1) if right_transposed else right
    lefts = [input_node(k, (*batch, rows, depth), F32) for k in (1, 2, 3)]
    outputs = [matmul(left, factor) for left in lefts]
    plan = schedule([right, *lefts], outputs, host_machine())
    names = [launch.nest.name for launch in plan.launches]
    assert names == ["strips_add", *["contraction_add"] * 3]
    arrays = values([right, *lefts])
    buffers = [Buffer.from_numpy(array.copy()) for array in arrays]
    exact = [array.astype(np.float64) for array in arrays]
    transposed = np.swapaxes(exact[0], -1, -2) if right_transposed else exact[0]
    for output, left, found in zip(outputs, exact[1:], LLVMProgram(plan).run(buffers)):
        wanted = left @ transposed
        result = found.view(output.shape, np.float32)
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5 * depth)


def test_nests_of_a_shared_right_factor_mean_the_products() -> None:
    right, *lefts = (input_node(k, (20, 24), F32) for k in range(3))
    plan = schedule([right, *lefts], [matmul(x, views.transpose(right, 0, 1)) for x in lefts])
    assert plan.launches[0].nest.name == "strips_add"
    arrays = values([right, *lefts])
    for left, found in zip(arrays[1:], run_schedule(plan, arrays)):
        np.testing.assert_allclose(found, left @ arrays[0].T, rtol=2e-5, atol=2e-5)


def test_what_follows_a_sum_with_its_axes_in_another_order_is_fused() -> None:
    """The gradient of a 1 x 1 convolution by its input has rows that are not its outermost axis."""
    x, w = input_node(0, (3, 24, 6, 7), F32), input_node(1, (40, 24, 1, 1), F32)
    y = convolution(x, w, None, (1, 1), (0, 0), (0, 0), (1, 1), 1)
    g, bias = input_node(2, y.shape, F32), input_node(3, x.shape, F32)
    by_input, _ = pullback([y], [g], [x, w])
    assert by_input is not None
    nodes, output = [x, w, g, bias], apply("tanh", by_input * 0.1 + bias)
    plan = schedule(nodes, [output], host_machine())
    assert len(plan.kernels) == 1
    arrays = values(nodes)
    _, weight, gradient, shift = (array.astype(np.float64) for array in arrays)
    wanted = np.tanh(np.einsum("nohw,oi->nihw", gradient, weight[:, :, 0, 0]) * 0.1 + shift)
    (interpreted,) = run_schedule(plan, arrays)
    for found in (interpreted, run(plan, arrays, output)):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_prime_number_of_panels_makes_blocks_of_several() -> None:
    """Each block packs the right factor: blocks of one panel pack as much as they multiply."""
    nodes, output = product(8 * 13, 64, 64, False, False)
    plan = schedule(nodes, [output], Machine(Tile(rows=8, block_rows=32)))
    (launch,) = plan.launches
    (tile,) = micro_kernels(launch.nest.body)
    assert tile.left_stride is not None
    assert launch.nest.tasks < 13
    arrays = values(nodes)
    (found,) = run_schedule(plan, arrays)
    np.testing.assert_allclose(found, arrays[0] @ arrays[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "rows, columns, left_transposed, wanted",
    [
        (16, 48, False, (4, 24)),  # tiles of six rows would leave two of eighteen idle
        (512, 480, False, (4, 24)),  # rows that tiles cover exactly are read in place
        (512, 512, False, (6, 16)),  # results of short sums would be stored under masks
        (512, 512, True, (6, 16)),  # nothing can be read in place
        (16, 25, False, (4, 16)),  # a tile of 24 columns would need a second one for the last
        (60, 64, False, (6, 16)),
    ],
)
def test_register_tiles_fit_results(
    rows: int, columns: int, left_transposed: bool, wanted: tuple[int, int]
) -> None:
    machine = Machine(Tile(rows=6, columns=16), ((4, 24), (4, 16)), without=("stencil", *NOT_THIN))
    nodes, output = product(rows, columns, 40, left_transposed, False)
    plan = schedule(nodes, [output], machine)
    (launch,) = plan.launches
    (tile,) = micro_kernels(launch.nest.body)
    assert (tile.rows, tile.columns) == wanted
    if rows < 100:
        arrays = values(nodes)
        (found,) = run_schedule(plan, arrays)
        left = arrays[0].T if left_transposed else arrays[0]
        np.testing.assert_allclose(found, left @ arrays[1], rtol=1e-4, atol=1e-4)


def test_blocks_of_a_depth_may_be_a_little_longer() -> None:
    nodes, output = product(64, 64, 784, False, False)
    (launch,) = schedule(nodes, [output], Machine(Tile(depth=384))).launches
    (tile,) = micro_kernels(launch.nest.body)
    assert tile.depth.constant == 392
