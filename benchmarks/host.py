"""The overhead of Python around kernels: of recording, and of a whole training step."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.frameworks import Framework, MetaOp, frameworks
from benchmarks.report import Metric
from benchmarks.whole_steps import training
from benchmarks.workload import WORKLOADS

_RECORDED = 200
_ROUNDS = 60
# Training steps of which the host's share is told; each is run so often.
_LARGER = (
    "MLP 784-512-256-10, batch 128, Adam",
    "LSTM 2 x 256, 32 x 64 steps, Adam",
    "ResNet-18 CIFAR, batch 32, SGD",
)
_LARGER_ROUNDS = 10


class _KernelTime:
    """An observer that sums up the time inside kernels, in seconds."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.runs: list[int] = []

    def ran(self, program: Any, names: Sequence[str], times: Sequence[int]) -> None:
        self.seconds += (times[-1] - times[0]) * 1e-9
        self.runs.append(len(names))


def measure() -> list[Metric]:
    """Recording a call, and the host's share of a cached step of a small network."""
    ours, theirs = frameworks()
    return [
        *_recording(ours, 4.0),
        *_recording(theirs, None),
        *_steps(ours, theirs),
        *_shares(ours),
    ]


def _recording(framework: Framework, target: float | None) -> list[Metric]:
    """Microseconds of one call on tensors so small that nothing is computed in it."""
    x, y = framework.normal(4, 4), framework.normal(4, 4, seed=1)
    weight = framework.normal(4, 4, requires_grad=True)
    cases: dict[str, Callable[[], Any]] = {
        "x + y": lambda: x + y,
        "relu(x)": lambda: framework.functional.relu(x),
        "softmax(x, 1)": lambda: framework.functional.softmax(x, 1),
        "linear(x, weight) with gradient": lambda: framework.functional.linear(x, weight),
    }
    return [
        Metric(f"recording {name}", framework.name, _call_time(call, framework), "µs", target)
        for name, call in cases.items()
    ]


def _call_time(call: Callable[[], Any], framework: Framework) -> float:
    times = []
    for _ in range(_ROUNDS):
        kept = []
        start = time.perf_counter()
        for _ in range(_RECORDED):
            kept.append(call())
        times.append((time.perf_counter() - start) / _RECORDED)
        kept.clear()  # what nobody holds is never computed
        framework.finish()
    return statistics.median(times) * 1e6


def _steps(*participants: Framework) -> list[Metric]:
    metrics = []
    for framework in participants:
        model = framework.load("models.mlp").MLP(16, 16, 16, 4)
        inputs, labels = framework.normal(8, 16), framework.integers(4, 8)

        def loss_of(model: Any, x: Any, y: Any, functional: Any = framework.functional) -> Any:
            return functional.cross_entropy(model(x), y)

        run = training(framework, model, loss_of, "Adam", lr=1e-3)(inputs, labels).run
        whole = _step_time(run, framework)
        name = "cached step of a 3-layer MLP (forward, backward, Adam)"
        metrics.append(Metric(f"{name}, whole", framework.name, whole * 1e6, "µs"))
        if isinstance(framework, MetaOp):
            kernels, launches = _kernel_time(run, framework)
            host = (whole - kernels) * 1e6
            metrics.append(Metric(f"{name}, host", framework.name, host, "µs", 200.0))
            metrics.append(Metric(f"{name}, kernels", framework.name, kernels * 1e6, "µs"))
            metrics.append(Metric(f"{name}, launches", framework.name, launches, ""))
            captured = _step_time(_captured(model, inputs, labels), framework)
            name = f"{name}, captured by jit, whole"
            metrics.append(Metric(name, framework.name, captured * 1e6, "µs", 30.0))
    return metrics


def _shares(framework: Framework) -> list[Metric]:
    """Per cent of a step outside its kernels: no more could be hidden by recording the next step
    meanwhile, and half of it where kernels use all cores."""
    from metaop.codegen.backend import observers

    metrics = []
    for name in _LARGER:
        run = WORKLOADS[name].prepare(framework).run
        run(), framework.finish()
        hosts, wholes = [], []
        for _ in range(_LARGER_ROUNDS):
            observer = _KernelTime()
            observers.append(observer)
            start = time.perf_counter()
            run()
            framework.finish()
            wholes.append(time.perf_counter() - start)
            hosts.append(wholes[-1] - observer.seconds)
            observers.remove(observer)
        share = 100 * statistics.median(hosts) / statistics.median(wholes)
        metrics.append(Metric(f"{name}, host's share", framework.name, share, "%"))
    return metrics


def _captured(model: Any, inputs: Any, labels: Any) -> Callable[[], Any]:
    """The same step as one captured function."""
    import metaop

    optimizer = metaop.optim.Adam(model.parameters(), lr=1e-3)

    @metaop.jit
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = metaop.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return lambda: step(inputs, labels)


def _step_time(run: Callable[[], Any], framework: Framework) -> float:
    times = []
    for _ in range(5 * _ROUNDS):
        start = time.perf_counter()
        run()
        framework.finish()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _kernel_time(run: Callable[[], Any], framework: Framework) -> tuple[float, float]:
    """Median seconds inside kernels, and launches, of a step; the observer itself costs time,
    so the whole is measured without it."""
    from metaop.codegen.backend import observers

    seconds, launches = [], []
    for _ in range(_ROUNDS):
        observer = _KernelTime()
        observers.append(observer)
        run()
        framework.finish()
        observers.remove(observer)
        seconds.append(observer.seconds)
        launches.append(sum(observer.runs))
    return statistics.median(seconds), statistics.median(launches)
