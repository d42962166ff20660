"""Tensors on a device: an emulated one always, and the machine's own GPU where there is one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
import metaop.nn.functional as functional
from metaop.codegen.cuda import backend
from metaop.codegen.cuda import device as devices
from metaop.cuda import any_device, graphs
from metaop.errors import (
    ArgumentError,
    CaptureError,
    DeviceError,
    DimensionError,
    UnsupportedError,
)
from metaop.execution.executor import clear_programs, realize
from metaop.kernels import copy, lanes, scratch, task
from metaop.nn.utils import clip_grad_norm_
from metaop.tensor import devices as moving
from tests.cuda import emulator
from tests.cuda.emulator.runtime import EmulatedRuntime


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> EmulatedRuntime:
    if not emulator.is_available():
        pytest.skip("the emulator needs g++")
    return EmulatedRuntime(tmp_path_factory.mktemp("device"))


@pytest.fixture(params=("emulated", pytest.param("gpu", marks=pytest.mark.cuda)))
def device(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[metaop.device]:
    if request.param == "gpu":
        if not metaop.cuda.is_available():
            pytest.skip("this machine has no CUDA device that cupy can use")
    else:
        runtime = request.getfixturevalue("emulated")
        for module in (devices, backend, moving, metaop.cuda, any_device, graphs):
            monkeypatch.setattr(module, "runtime", lambda index: runtime)
    clear_programs()
    yield metaop.device("cuda")
    clear_programs()


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def test_there_and_back(device: metaop.device) -> None:
    values = normal(3, 4)
    there = metaop.tensor(values).to(device)
    assert there.device == "cuda:0" and there.is_leaf
    assert there.to("cuda") is there
    np.testing.assert_array_equal(there.cpu().numpy(), values)
    assert there.cpu().device == "cpu"


def test_arithmetic(device: metaop.device) -> None:
    x, y = normal(5, 6), normal(6)
    result = (metaop.tensor(x, device=device) * 2.5 + metaop.tensor(y, device=device)).exp()
    assert result.device == "cuda:0"
    np.testing.assert_allclose(result.cpu().numpy(), np.exp(x * 2.5 + y), rtol=1e-5)


def test_changed_sizes_and_numbers_share_kernels(device: metaop.device) -> None:
    for rows in (4, 7, 12, 5):
        x = normal(rows, 33)
        result = metaop.tensor(x, device=device) * rows - 1.0
        np.testing.assert_allclose(result.cpu().numpy(), x * rows - 1, rtol=1e-5, atol=1e-6)
        softmax = metaop.tensor(x, device=device).softmax(1)
        expected = np.exp(x) / np.exp(x).sum(1, keepdims=True)
        np.testing.assert_allclose(softmax.cpu().numpy(), expected, rtol=1e-5)


def test_numbers_beyond_32_bits(device: metaop.device) -> None:
    places = metaop.tensor([0, 0, 1], device=device)
    values = metaop.tensor([-3, -7, -5], device=device)
    target = metaop.zeros(2, dtype=metaop.int64, device=device)
    expected = {"sum": [-10, -5], "amax": [-3, -5], "amin": [-7, -5], "prod": [21, -5]}
    for reduction, wanted in expected.items():
        found = target.scatter_reduce(0, places, values, reduction, include_self=False)
        assert found.tolist() == wanted
    values = metaop.tensor([3, -5, 127, 0], dtype=metaop.int8, device=device)
    assert values.sort().values.tolist() == [-5, 0, 3, 127]


def test_parts_are_taken_only_where_they_are_aligned(device: metaop.device) -> None:
    values = normal(70000)
    x = metaop.tensor(values, device=device)
    for start, stop in ((0, 65536), (0, 65540), (4, 65544), (2, 65538), (1, 65537), (0, 65537)):
        result = x[start:stop] * 2.0 + x[: stop - start]
        expected = values[start:stop] * 2 + values[: stop - start]
        np.testing.assert_allclose(result.cpu().numpy(), expected, rtol=1e-6)


def test_training_step(device: metaop.device) -> None:
    torch = pytest.importorskip("torch")
    x, target, weight = normal(9, 8), np.arange(9) % 4, normal(4, 8)

    def gradient(library: object, place: object) -> np.ndarray:
        w = library.tensor(weight, device=place, requires_grad=True)  # type: ignore[attr-defined]
        logits = library.tensor(x, device=place) @ w.T  # type: ignore[attr-defined]
        classes = library.tensor(target, device=place)  # type: ignore[attr-defined]
        cross_entropy = torch.nn.functional if library is torch else functional
        cross_entropy.cross_entropy(logits.relu(), classes).backward()
        with library.no_grad():  # type: ignore[attr-defined]
            w -= 0.1 * w.grad
        return w.detach().cpu().numpy()

    expected = gradient(torch, "cpu")
    np.testing.assert_allclose(gradient(metaop, device), expected, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("sizes", [(8, 3), (3, 300), (5, 1, 40), (2000, 700)], ids=str)
def test_a_result_over_an_operand_that_all_lanes_read(
    sizes: tuple[int, ...], device: metaop.device
) -> None:
    """The first lane of a row may store a norm over a part of it before the others read that."""
    gradients = [normal(size) for size in sizes]
    parameters = [metaop.zeros(size, device=device, requires_grad=True) for size in sizes]
    for parameter, gradient in zip(parameters, gradients):
        parameter.grad = metaop.tensor(gradient, device=device)
    clip_grad_norm_(parameters, 0.5)
    norm = np.sqrt(sum(np.square(gradient, dtype=np.float64).sum() for gradient in gradients))
    for parameter, gradient in zip(parameters, gradients):
        found = parameter.grad.cpu().numpy()
        np.testing.assert_allclose(found, gradient * (0.5 / norm), rtol=1e-5)


@pytest.mark.parametrize("images, channels, size, results", [(2, 16, 16, 64), (4, 3, 16, 64)])
def test_gradients_of_convolutions_of_bfloat16(
    images: int, channels: int, size: int, results: int, device: metaop.device
) -> None:
    """The weights are prepared, and a panel of them has fewer parts than the block has threads."""
    values = normal(images, channels, size, size), normal(results, channels, 3, 3) / 30

    def gradients(place: Any, dtype: Any) -> list[np.ndarray]:
        x, w = (metaop.tensor(one).bfloat16().to(place, dtype) for one in values)
        x, w = x.requires_grad_(), w.requires_grad_()
        y = functional.conv2d(x, w, padding=1)
        (y.float() ** 2).sum().backward()
        return [one.detach().float().cpu().numpy() for one in (y, x.grad, w.grad)]

    wanted = gradients("cpu", metaop.float32)
    for one, other in zip(gradients(device, metaop.bfloat16), wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-2, atol=2e-2 * np.abs(other).max())


def test_gradients_cross_devices(device: metaop.device) -> None:
    x = metaop.tensor(normal(4), requires_grad=True)
    (x.to(device) ** 2).sum().cpu().backward()
    assert x.grad is not None and x.grad.device == "cpu"
    np.testing.assert_allclose(x.grad.numpy(), 2 * normal(4), rtol=1e-6)


def test_an_index_out_of_range_names_the_operator(device: metaop.device) -> None:
    x = metaop.tensor(normal(4, 3), device=device)
    index = metaop.tensor([1, 7], device=device)
    with pytest.raises(DimensionError, match="index 7 is out of (range|bounds)"):
        x[index].cpu()


def test_a_bad_index_is_reported_when_the_program_waits(device: metaop.device) -> None:
    table = metaop.tensor(normal(4, 3), device=device)
    rows = table[metaop.tensor([1, 7], device=device)]
    realize(rows.call)
    with pytest.raises(DimensionError, match=r"index 7 is out of range .* of size 4") as found:
        table.cpu()
    assert "test_device.py" in str(found.value)
    np.testing.assert_array_equal(table.cpu().numpy(), normal(4, 3))
    realize(table[metaop.tensor([9], device=device)].call)
    with pytest.raises(DimensionError, match=r"index 9 is out of range"):
        # The device may be done only after some more runs.
        for _ in range(100):
            realize((table + 1).call)
            time.sleep(0.01)
    assert (table + 1).cpu().shape == (4, 3)


@pytest.mark.parametrize("of_any_device", [False, True])
def test_events_tell_when_the_device_came_to_them(
    device: metaop.device, of_any_device: bool
) -> None:
    given = (device,) if of_any_device else ()
    kind = metaop.Event if of_any_device else metaop.cuda.Event
    before, after = (kind(*given, enable_timing=True) for _ in range(2))
    assert before.query()
    with pytest.raises(ArgumentError, match="must be recorded"):
        before.elapsed_time(after)
    before.record()
    x = metaop.tensor(normal(50, 3), device=device).exp()
    after.record()
    assert not x.call.is_pending
    after.synchronize()
    assert after.query() and 0 < before.elapsed_time(after) < 60_000
    y = x + 1
    metaop.cuda.synchronize()
    assert not y.call.is_pending


def test_a_stream_records_events(device: metaop.device) -> None:
    for stream, kind in (
        (metaop.Stream(device), metaop.Event),
        (metaop.cuda.Stream(), metaop.cuda.Event),
    ):
        event = stream.record_event()
        assert type(event) is kind and stream.device == event.device == device
        event.synchronize()
        assert event.query()
        assert stream.record_event(event) is event


def test_launches_are_not_recorded_by_hand(device: metaop.device) -> None:
    layer = metaop.nn.Linear(3, 2).to(device)
    x = metaop.tensor(normal(4, 3), device=device)
    assert metaop.cuda.make_graphed_callables(layer, (x,)) is layer
    with pytest.raises(UnsupportedError, match="not recorded by hand.*\n.*\n.*metaop.jit"):
        metaop.cuda.CUDAGraph()


def test_lbfgs_takes_the_same_path(device: metaop.device) -> None:
    """The loops over its history, which a GPU runs unrolled."""
    losses = []
    for place in ("cpu", device):
        weight = metaop.nn.Parameter(metaop.tensor(normal(6), device=place))
        optimizer = metaop.optim.LBFGS([weight], lr=0.3, max_iter=3, history_size=3)

        def closure(weight: Any = weight, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = ((weight - 1) ** 2).sum() + 0.1 * (weight**4).sum()
            loss.backward()
            return loss

        losses.append([optimizer.step(closure).item() for _ in range(4)])
    np.testing.assert_allclose(*losses, rtol=1e-5)


def test_a_step_updates_states_in_place(device: metaop.device) -> None:
    parameter = metaop.tensor(normal(40), device=device, requires_grad=True)
    optimizer = metaop.optim.Adam([parameter], lr=0.1)
    expected = metaop.tensor(normal(40), requires_grad=True)
    alike = metaop.optim.Adam([expected], lr=0.1)
    places, kept = [], []
    for step in range(6):
        for one, updater in ((parameter, optimizer), (expected, alike)):
            updater.zero_grad()
            (one**2).sum().backward()
            updater.step()
        realize(parameter.call)
        places.append(optimizer.state[parameter]["exp_avg"].call.buffer.address)
        if step == 3:
            kept = [parameter.detach().clone(), parameter.detach()]
            values = parameter.detach().cpu().numpy().copy()
    assert places[1] == places[2] == places[3]
    np.testing.assert_allclose(parameter.detach().cpu().numpy(), expected.detach().numpy(), 1e-5)
    np.testing.assert_array_equal(kept[0].cpu().numpy(), values)


def test_numpy_needs_the_host(device: metaop.device) -> None:
    x = metaop.tensor([1.0, 2.0], device=device)
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
        x.numpy()
    assert x.tolist() == [1.0, 2.0] and x[1].item() == 2.0


def test_devices_do_not_mix(device: metaop.device) -> None:
    here, there = metaop.tensor([1.0]), metaop.tensor([1.0], device=device)
    with pytest.raises(DeviceError, match="operands are on cpu and cuda:0"):
        here + there
    np.testing.assert_array_equal((there + metaop.tensor(2.0)).cpu().numpy(), [3.0])


def test_pending_work_of_both_devices(device: metaop.device) -> None:
    here, there = metaop.tensor([1.0]) + 1, metaop.tensor([1.0], device=device) + 2
    assert (here.item(), there.item()) == (2.0, 3.0)


@metaop.kernel(
    tasks=lambda x, scale: x.shape[0],
    outputs=lambda x, scale: x,
    gradient=lambda inputs, outputs, cotangents: cotangents[0] * 3,
)
def reversed_rows(x: Any, scale: Any, y: Any) -> None:
    line = scratch(x.shape[1], x.dtype)
    copy(line, x[task()])
    for j in lanes(x.shape[1]):
        y[task(), j] = line[x.shape[1] - 1 - j] * scale


def test_custom_kernels(device: metaop.device) -> None:
    values = normal(5, 70)
    x = metaop.tensor(values, device=device, requires_grad=True)
    y = reversed_rows(x * 2, 0.5)
    y.sum().backward()
    np.testing.assert_allclose(y.detach().cpu().numpy(), values[:, ::-1], rtol=1e-6)
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.cpu().numpy(), np.full((5, 70), 6))


# --- without a GPU --------------------------------------------------------------------------------

without_gpu = pytest.mark.skipif(metaop.cuda.is_available(), reason="this machine has a GPU")


def test_loops_and_choices(device: metaop.device, tmp_path: Path) -> None:
    """Their steps run one after another, with the values and gradients of the CPU."""

    def loss(weight: metaop.Tensor, xs: metaop.Tensor) -> metaop.Tensor:
        def step(hidden: metaop.Tensor, x: metaop.Tensor) -> Any:
            hidden = (hidden @ weight + x).tanh()
            return hidden, metaop.cond(x.sum() > 0, lambda h: h * 2, lambda h: h.sin(), (hidden,))

        last, kept = metaop.scan(step, xs[0] * 0, xs)
        return last.sum() + (kept**2).sum()

    gradient = metaop.func.grad(loss, (0, 1))
    weight = normal(4, 4) * 0.3
    for rows in (2, 3):
        given = metaop.tensor(weight), metaop.tensor(normal(2, rows, 4))
        found = gradient(*(x.to(device) for x in given))
        for one, other in zip(found, gradient(*given), strict=True):
            assert one.device == "cuda:0"
            np.testing.assert_allclose(one.cpu().numpy(), other.numpy(), rtol=1e-4, atol=1e-5)
    program = metaop.export(loss, given, tmp_path / "m.mo", dynamic=({}, {1: "rows"}))
    there = program.to(device)(*(x.to(device) for x in given))
    np.testing.assert_allclose(there.cpu().numpy(), loss(*given).numpy(), rtol=1e-4)


def test_a_loop_that_values_end(device: metaop.device) -> None:
    def doubled(x: metaop.Tensor) -> metaop.Tensor:
        return metaop.while_loop(lambda x: x.sum() < 100, lambda x: (x * 2,), (x,))[0]

    found = doubled(metaop.ones(3, device=device))
    assert found.device == device
    np.testing.assert_array_equal(found.cpu().numpy(), [64, 64, 64])
    with pytest.raises(CaptureError, match="reads a value"):
        metaop.jit(doubled)(metaop.ones(3, device=device)).cpu().numpy()


@without_gpu
def test_moving_to_a_missing_gpu_says_what_to_do() -> None:
    with pytest.raises(DeviceError, match="fix: .*stay on the CPU"):
        metaop.ones(2).to("cuda")
    with pytest.raises(DeviceError, match="fix: .*stay on the CPU"):
        metaop.cuda.synchronize()


@without_gpu
def test_questions_about_missing_gpus_have_answers() -> None:
    assert not metaop.cuda.is_available()
    assert metaop.cuda.device_count() == 0
    assert metaop.cuda.memory_allocated() == metaop.cuda.memory_reserved() == 0
    metaop.cuda.empty_cache()
