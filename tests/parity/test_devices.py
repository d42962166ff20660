"""The modules of devices answer as PyTorch's do on a machine without GPUs."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

import metaop
from metaop.codegen.cuda.device import device_count

torch = pytest.importorskip("torch")

# Functions of PyTorch that need packages, compile for a device or describe a build.
LEFT_OUT = {
    *("MemPool", "XPUPluggableAllocator", "change_current_allocator", "clock_rate", "utilization"),
    *("default_generators", "device_memory_used", "get_arch_list", "get_gencode_flags", "graph"),
    *("graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables", "streams"),
    *("memory_snapshot", "memory_stats_as_nested_dict", "memory_usage", "power_draw", "profiler"),
    *("temperature", "use_mem_pool", "get_capabilities"),
}
NAMES = [
    f"{module}.{name}"
    for module in ("xpu", "mps")
    for name in getattr(torch, module).__all__
    if name not in LEFT_OUT
]
ARGUMENTS: dict[str, Any] = {
    "manual_seed": lambda library: [3],
    "manual_seed_all": lambda library: [3],
    "set_rng_state": lambda library: [library.zeros(3, dtype=library.uint8)],
    "set_rng_state_all": lambda library: [[]],
    "set_device": lambda library: [0],
    "set_stream": lambda library: [0],
    "stream": lambda library: [None],
    "StreamContext": lambda library: [None],
    "device": lambda library: [0],
    "device_of": lambda library: [library.ones(1)],
    "set_per_process_memory_fraction": lambda library: [0.5],
    "compile_shader": lambda library: [""],
    "load_metallib": lambda library: [""],
    "get_stream_from_external": lambda library: [0],
    "can_device_access_peer": lambda library: [0, 0],
}


def _outcome(library: ModuleType, module: str, name: str) -> Any:
    """What calling a function or entering its context gives, with one word for all errors."""
    arguments = ARGUMENTS.get(name, lambda library: [])(library)
    try:
        result = getattr(getattr(library, module), name)(*arguments)
        if hasattr(result, "__enter__"):
            with result as entered:
                return entered
    except (AssertionError, AttributeError, OSError, RuntimeError):
        return "an error"
    return result


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", NAMES)
def test_devices_that_are_absent(path: str) -> None:
    wanted, found = (_outcome(library, *path.split(".")) for library in (torch, metaop))
    assert found == wanted


def test_what_needs_an_absent_device_says_so() -> None:
    with pytest.raises(metaop.errors.DeviceError, match="metaop.xpu.synchronize.*no such device"):
        metaop.xpu.synchronize()
    assert isinstance(metaop.mps.Event, type)
    with pytest.raises(metaop.errors.DeviceError, match=r"ask metaop.mps.is_available\(\)"):
        metaop.mps.Event()


@pytest.mark.parametrize("name", [name for name in torch.cpu.__all__ if name not in LEFT_OUT])
def test_the_cpu_has_the_names_of_a_device(name: str) -> None:
    assert hasattr(metaop.cpu, name)


def test_the_cpu_as_a_device() -> None:
    for library in (torch, metaop):
        cpu = library.cpu
        assert cpu.is_available() and cpu.is_initialized() and cpu.device_count() == 1
        assert cpu.current_device() == "cpu"
        cpu.set_device(0)
        cpu.synchronize()
        own, event = cpu.Stream(), cpu.Event()
        before = cpu.current_stream()
        with cpu.stream(None):
            assert cpu.current_stream() is before
        with cpu.stream(own):
            assert cpu.current_stream() is own
        assert cpu.current_stream() is before
        own.wait_stream(before)
        own.wait_event(event)
        event.record()
        event.wait()
        event.synchronize()
        assert event.query() and own.record_event() is None


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:1", "mps", "xpu:0", None])
def test_modules_of_devices(device: str | None) -> None:
    if device is None and device_count():
        pytest.skip("the default is that of a machine without GPUs")
    wanted, found = (library.get_device_module(device) for library in (torch, metaop))
    assert found.__name__.split(".")[1:] == wanted.__name__.split(".")[1:]


@pytest.mark.parametrize("device", ["meta", 3, "tpu"])
def test_devices_without_a_module(device: Any) -> None:
    for library in (torch, metaop):
        with pytest.raises(RuntimeError):
            library.get_device_module(device)


without_gpus = pytest.mark.skipif(device_count() > 0, reason="asks for what GPUs are needed for")


@without_gpus
def test_streams_and_events_of_the_cpu() -> None:
    for library in (torch, metaop):
        for options in ({}, {"device": "cpu"}):
            stream, event = library.Stream(**options), library.Event(**options)
            assert stream.device == event.device == library.device("cpu")
            assert stream.query() and event.query()
            stream.synchronize()
            event.synchronize()
            event.wait()
            stream.wait_event(event)
            with stream as entered:
                assert entered is stream
            with pytest.raises(RuntimeError):
                stream.record_event()
            with pytest.raises(RuntimeError):
                event.record()
            with pytest.raises(ValueError):
                event.elapsed_time(event)


@without_gpus
@pytest.mark.parametrize("device", ["cuda", "cuda:0", "mps", "xpu", 0])
def test_streams_and_events_of_absent_devices(device: Any) -> None:
    for library in (torch, metaop):
        for kind in (library.Stream, library.Event):
            with pytest.raises(RuntimeError):
                kind(device)


def test_streams_of_gpus_are_streams() -> None:
    assert issubclass(metaop.cuda.Stream, metaop.Stream)
    assert issubclass(metaop.cuda.Event, metaop.Event)


@without_gpus
@pytest.mark.parametrize("library", [torch, metaop], ids=["torch", "metaop"])
def test_graphs_need_a_gpu(library: Any) -> None:
    assert isinstance(library.cuda.CUDAGraph, type)
    for function in (
        library.cuda.CUDAGraph,
        lambda: library.cuda.graph(None),
        lambda: library.cuda.make_graphed_callables(abs, (library.ones(1),)),
    ):
        with pytest.raises(RuntimeError):
            function()
