"""Stencils: nests interpreted, and machine code, against PyTorch in float64."""

from __future__ import annotations

import ctypes
import mmap
import sys
from dataclasses import replace

import numpy as np
import pytest

from metaop.codegen.llvm.machine import host_machine
from metaop.codegen.llvm.program import LLVMProgram
from metaop.codegen.lowering.stencils import geometry
from metaop.codegen.memory.buffers import Buffer
from metaop.compiler import schedule
from metaop.differentiation.transposition import pullback
from metaop.elementwise import apply
from metaop.operators.convolution import convolution
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.node import Node, input_node
from tests.codegen.interpret import run_schedule
from tests.codegen.run_plan import run, values

CASES = [
    # batch, channels, height, width, window, stride, padding
    (2, 5, 14, 14, (3, 3), 1, 1),
    (3, 4, 9, 33, (3, 5), 1, 0),
    (2, 3, 7, 7, (5, 5), 1, 2),
    (1, 6, 20, 11, (3, 3), 2, 1),
    (2, 3, 17, 40, (2, 3), 3, 0),
    (2, 4, 1, 1, (3, 3), 1, 1),
    (2, 3, 22, 41, (3, 3), 2, 1),
    (1, 2, 9, 70, (5, 3), 2, 2),
    (3, 2, 96, 100, (3, 3), 1, 1),
    (9, 4, 7, 7, (3, 3), 1, 1),
]


def layer(case: tuple, dtype: DType = dtypes.float32) -> tuple[list[Node], list[Node]]:
    """A depthwise convolution and its gradients."""
    batch, channels, height, width, window, stride, padding = case
    x = input_node(0, (batch, channels, height, width), dtype)
    w = input_node(1, (channels, 1, *window), dtype)
    pads = (padding, padding)
    y = convolution(x, w, None, (stride, stride), pads, pads, (1, 1), channels)
    g = input_node(2, y.shape, dtype)
    return [x, w, g], [y, *(part for part in pullback([y], [g], [x, w]) if part is not None)]


def exact(case: tuple, arrays: list[np.ndarray]) -> list[np.ndarray]:
    torch = pytest.importorskip("torch")
    x, w, g = (torch.from_numpy(array).double().requires_grad_() for array in arrays)
    y = torch.nn.functional.conv2d(x, w, None, *case[5:], groups=case[1])
    y.backward(g)
    return [value.detach().numpy() for value in (y, x.grad, w.grad)]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dtype, tolerance", [(dtypes.float32, 2e-6), (dtypes.float64, 1e-14)])
def test_depthwise_layers(case: tuple, dtype: DType, tolerance: float, target: str) -> None:
    nodes, outputs = layer(case, dtype)
    arrays = values(nodes)
    for output, wanted in zip(outputs, exact(case, arrays), strict=True):
        found = run(schedule(nodes, [output], host_machine()), arrays, output)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * np.abs(wanted).max())


@pytest.mark.parametrize("case", [CASES[0], CASES[4], CASES[7]], ids=str)
@pytest.mark.parametrize("lanes", [0, 16])
def test_windows_in_scratch_memory_and_in_place(case: tuple, lanes: int) -> None:
    nodes, outputs = layer(case)
    arrays = values(nodes)
    machine = replace(host_machine(), lanes=lanes)
    for output, wanted in zip(outputs, exact(case, arrays), strict=True):
        found = run(schedule(nodes, [output], machine), arrays, output)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())


@pytest.mark.skipif(sys.platform != "linux", reason="pages are closed by a call of Linux")
def test_nothing_beside_a_factor_is_touched() -> None:
    """Factors that begin behind a closed page, and that end in front of one."""
    case = (1, 2, 22, 40, (3, 3), 2, 1)
    nodes, outputs = layer(case)
    arrays = values(nodes)
    libc, page = ctypes.CDLL(None), mmap.PAGESIZE
    for at_end in (False, True):
        buffers, maps = [], []
        for array in arrays:
            whole = -(-array.nbytes // page) * page
            maps.append(mmap.mmap(-1, whole + 2 * page))
            start = ctypes.addressof(ctypes.c_char.from_buffer(maps[-1]))
            place = page + (whole - array.nbytes) // 16 * 16 * at_end
            copy = np.frombuffer(maps[-1], array.dtype, array.size, place).reshape(array.shape)
            copy[...] = array
            for closed in (start, start + page + whole):
                assert libc.mprotect(ctypes.c_void_p(closed), page, 0) == 0
            buffers.append(Buffer.from_numpy(copy))
        for output, wanted in zip(outputs, exact(case, arrays), strict=True):
            plan = schedule(nodes, [output], host_machine())
            found = LLVMProgram(plan).run(buffers)[0].view(output.shape, output.dtype.numpy)
            np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-5)


def test_nests_mean_the_layer() -> None:
    case = (1, 2, 5, 7, (3, 3), 1, 1)
    nodes, outputs = layer(case)
    arrays = values(nodes)
    for output, wanted in zip(outputs, exact(case, arrays), strict=True):
        plan = schedule(nodes, [output], host_machine())
        assert [launch.nest.name for launch in plan.launches] == ["stencil_add"]
        (found,) = run_schedule(plan, arrays)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


def test_residues_of_a_stride_share_a_plane(target: str) -> None:
    """In the gradient by the input each residue has a sum of its own, of the taps there."""
    case = (2, 3, 16, 40, (3, 3), 2, 1)
    nodes, outputs = layer(case)
    plan = schedule(nodes, [outputs[1]], host_machine())
    assert [launch.nest.name for launch in plan.launches] == ["stencil_add"]
    arrays = values(nodes)
    (found,) = run_schedule(plan, arrays)
    np.testing.assert_allclose(found, exact(case, arrays)[1], rtol=0, atol=1e-5)


@pytest.mark.parametrize("stride", [1, 2])
def test_several_weights_for_a_channel(stride: int, target: str) -> None:
    torch = pytest.importorskip("torch")
    x = input_node(0, (2, 3, 18, 35), dtypes.float32)
    w = input_node(1, (6, 1, 3, 3), dtypes.float32)
    y = convolution(x, w, None, (stride, stride), (1, 1), (1, 1), (1, 1), 3)
    plan = schedule([x, w], [y], host_machine())
    assert [launch.nest.name for launch in plan.launches] == ["stencil_add"]
    arrays = values([x, w])
    ours, weight = (torch.from_numpy(array).double() for array in arrays)
    wanted = torch.nn.functional.conv2d(ours, weight, None, stride, 1, groups=3).numpy()
    np.testing.assert_allclose(run(plan, arrays, y), wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("groups, outputs, stride", [(2, 6, 1), (1, 3, 2), (4, 8, 1)])
def test_few_channels_in_a_group(groups: int, outputs: int, stride: int, target: str) -> None:
    torch = pytest.importorskip("torch")
    x = input_node(0, (2, 8, 30, 37), dtypes.float32)
    w = input_node(1, (outputs, 8 // groups, 3, 3), dtypes.float32)
    strides, pads = (stride, stride), (1, 1)
    y = convolution(x, w, None, strides, pads, pads, (1, 1), groups)
    g = input_node(2, y.shape, dtypes.float32)
    (by_input,) = pullback([y], [g], [x])
    assert by_input is not None
    arrays = values([x, w, g])
    ours, weight, cotangent = (torch.from_numpy(one).double().requires_grad_() for one in arrays)
    wanted = torch.nn.functional.conv2d(ours, weight, None, stride, 1, groups=groups)
    wanted.backward(cotangent)
    for output, exactly in ((y, wanted.detach()), (by_input, ours.grad)):
        plan = schedule([x, w, g], [output], host_machine())
        found = run(plan, arrays, output)
        np.testing.assert_allclose(found, exactly.numpy(), rtol=0, atol=2e-5)
    names = [launch.nest.name for launch in schedule([x, w], [y], host_machine()).launches]
    assert names == ["stencil_add"]


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("window", [(3, 3), (5, 5), (7, 2)], ids=str)
@pytest.mark.parametrize("filters, channels, groups", [(16, 1, 1), (6, 3, 1), (12, 4, 2)])
def test_filters_share_the_planes_that_their_gradients_read(
    monkeypatch: pytest.MonkeyPatch,
    filters: int,
    channels: int,
    groups: int,
    window: tuple[int, int],
    stride: int,
    target: str,
) -> None:
    torch = pytest.importorskip("torch")
    # Whatever packing costs on this machine.
    monkeypatch.setattr(geometry, "_PACKING", 1000)
    x = input_node(0, (3, channels, 19, 29), dtypes.float32)
    w = input_node(1, (filters, channels // groups, *window), dtypes.float32)
    y = convolution(x, w, None, (stride, stride), (1, 2), (1, 2), (1, 1), groups)
    g = input_node(2, y.shape, dtypes.float32)
    (by_weight,) = pullback([y], [g], [w])
    assert by_weight is not None
    arrays = values([x, w, g])
    ours, weight, cotangent = (torch.from_numpy(one).double().requires_grad_() for one in arrays)
    torch.nn.functional.conv2d(ours, weight, None, stride, (1, 2), 1, groups).backward(cotangent)
    plan = schedule([x, w, g], [by_weight], host_machine())
    assert [launch.nest.name for launch in plan.launches] == ["stencil_add"]
    found = run(plan, arrays, by_weight)
    wanted = weight.grad.numpy()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_what_is_fused_behind_is_computed_in_each_row(groups: int) -> None:
    torch = pytest.importorskip("torch")
    x = input_node(0, (3, 4, 5, 9), dtypes.float32)
    w = input_node(1, (4, 4 // groups, 2, 2), dtypes.float32)
    bias = input_node(2, (4,), dtypes.float32)
    y = convolution(x, w, bias, (1, 1), (1, 1), (1, 1), (1, 1), groups)
    arrays = values([x, w, bias])
    plan = schedule([x, w, bias], [y], host_machine())
    assert {launch.nest.parameters[-1].role for launch in plan.launches} == {"write"}
    exactly = [torch.from_numpy(one).double() for one in arrays]
    wanted = torch.nn.functional.conv2d(*exactly, 1, 1, groups=groups).numpy()
    np.testing.assert_allclose(run(plan, arrays, y), wanted, rtol=0, atol=1e-5)


def test_nests_over_channels_mean_the_layer() -> None:
    x, w = input_node(0, (1, 4, 6, 7), dtypes.float32), input_node(1, (4, 2, 3, 3), dtypes.float32)
    y = convolution(x, w, None, (1, 1), (1, 1), (1, 1), (1, 1), 2)
    plan = schedule([x, w], [y], host_machine())
    assert [launch.nest.name for launch in plan.launches] == ["stencil_add"]
    arrays = values([x, w])
    (found,) = run_schedule(plan, arrays)
    torch = pytest.importorskip("torch")
    wanted = torch.nn.functional.conv2d(*map(torch.from_numpy, arrays), None, 1, 1, groups=2)
    np.testing.assert_allclose(found, wanted.numpy(), rtol=0, atol=1e-5)


def test_zero_weights_do_not_meet_what_their_tap_does_not_see() -> None:
    """Infinities spoil those results only whose windows see them, in the gradient as well."""
    nodes, outputs = layer((1, 1, 8, 8, (3, 3), 2, 1))
    arrays = values(nodes)
    arrays[2][0, 0, 1, 1] = np.inf
    found = run(schedule(nodes, [outputs[1]], host_machine()), arrays, outputs[1])
    spoilt = np.zeros((8, 8), bool)
    spoilt[1:4, 1:4] = True
    np.testing.assert_array_equal(~np.isfinite(found[0, 0]), spoilt)


def test_what_is_fused_in_front_and_behind() -> None:
    case = CASES[0]
    x, w = (
        input_node(0, (2, 5, 14, 14), dtypes.float32),
        input_node(1, (5, 1, 3, 3), dtypes.float32),
    )
    bias, rest = input_node(2, (5,), dtypes.float32), input_node(3, x.shape, dtypes.float32)
    y = convolution(apply("relu", x), w, bias, (1, 1), (1, 1), (1, 1), (1, 1), 5)
    output = apply("relu", y + rest)
    nodes = [x, w, bias, rest]
    arrays = values(nodes)
    plain, *_ = exact(case, [np.maximum(arrays[0], 0), arrays[1], arrays[3]])
    wanted = np.maximum(plain + arrays[2][:, None, None] + arrays[3], 0)
    found = run(schedule(nodes, [output], host_machine()), arrays, output)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-5)


@pytest.mark.parametrize("dilation", [2, 3])
def test_other_windows_are_left_alone(dilation: int) -> None:
    x = input_node(0, (2, 4, 16, 16), dtypes.float32)
    w = input_node(1, (4, 1, 3, 3), dtypes.float32)
    y = convolution(x, w, None, (1, 1), (0, 0), (0, 0), (dilation, dilation), 4)
    names = [launch.nest.name for launch in schedule([x, w], [y], host_machine()).launches]
    assert not any(name.startswith("stencil") for name in names)
