"""Workloads on a GPU, in metaop and in PyTorch, and what they take there."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import metaop
from benchmarks.frameworks import Framework, MetaOp, Torch
from benchmarks.workload import Workload

_WARMING, _TURNS, _STEPS = 4, 5, 10


class _OnGpu(Framework):
    """What frameworks do alike where all tensors are on the current GPU."""

    device = "cuda"

    def tensor(self, array: np.ndarray, requires_grad: bool = False) -> Any:
        """A tensor with a copy of `array` on the GPU."""
        result = super().tensor(array).to(self.device)
        return result.requires_grad_() if requires_grad else result

    def module(self, module: Any) -> Any:
        """The module with the weights that all frameworks share, on the GPU."""
        return super().module(module).to(self.device)

    def numpy(self, value: Any) -> np.ndarray:
        """The values as an array of its own."""
        return np.array(value.detach().cpu().numpy())


class OnGpu(_OnGpu, MetaOp):
    """This repository on a GPU."""


class TorchOnGpu(_OnGpu, Torch):
    """PyTorch on a GPU."""

    def __init__(self, weights: list[dict[str, np.ndarray]], mode: str) -> None:
        super().__init__(weights, mode)
        # Products and convolutions of float32 with the precision of float32, as in metaop.
        self.library.backends.cudnn.allow_tf32 = False
        self.library.backends.cuda.matmul.allow_tf32 = False


class KernelTime(NamedTuple):
    """The launches of a kernel in a step, and the seconds that they take together."""

    name: str
    launches: int
    seconds: float


class Measured(NamedTuple):
    """A step: its seconds when many run behind each other, and those of its kernels alone."""

    seconds: float
    kernels: Sequence[KernelTime]
    observed: Sequence[np.ndarray]

    @property
    def busy(self) -> float:
        """The seconds in which the GPU works."""
        return sum(kernel.seconds for kernel in self.kernels)

    @property
    def launches(self) -> int:
        """The launches of a step."""
        return sum(kernel.launches for kernel in self.kernels)


def measured(workload: Workload, framework: Framework) -> Measured:
    """What a workload takes in a framework on the GPU.

    A step waits for the one before nowhere, unless the program reads a value; the device is waited
    for once, after all steps.
    """
    prepared = workload.prepare(framework)
    synchronize = framework.library.cuda.synchronize

    def step() -> Any:
        result = prepared.run()
        framework.finish()
        return result

    first = step()
    values = prepared.observe() if prepared.observe else first
    observed = [framework.numpy(value) for value in _tensors(values)]
    for _ in range(_WARMING):
        step()
    times = []
    for _ in range(_TURNS):
        synchronize()
        start = time.perf_counter()
        for _ in range(_STEPS):
            step()
        synchronize()
        times.append((time.perf_counter() - start) / _STEPS)
    profiled = kernel_times if isinstance(framework, MetaOp) else kernel_times_of_torch
    return Measured(statistics.median(times), profiled(step), observed)


def _tensors(values: Any) -> list[Any]:
    return list(values) if isinstance(values, (list, tuple)) else [values]


def kernel_times(step: Callable[[], Any]) -> list[KernelTime]:
    """The kernels of a step of metaop, the longest first."""
    with metaop.profile() as profile:
        step()
    found: dict[str, list[int]] = {}
    for run in profile.runs:
        for kernel in run.kernels:
            found.setdefault(kernel.name, []).append(kernel.end - kernel.start)
    return _sorted(KernelTime(name, len(t), sum(t) / 1e9) for name, t in found.items())


def kernel_times_of_torch(step: Callable[[], Any]) -> list[KernelTime]:
    """The kernels of a step of PyTorch, the longest first."""
    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step()
        torch.cuda.synchronize()
    events = [x for x in profile.key_averages() if x.self_device_time_total > 0]
    return _sorted(KernelTime(x.key, x.count, x.self_device_time_total / 1e6) for x in events)


def _sorted(kernels: Any) -> list[KernelTime]:
    return sorted(kernels, key=lambda kernel: -kernel.seconds)
