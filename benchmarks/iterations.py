"""Many steps of small trainings as one program: `metaop.iterate` beside jit, eager and PyTorch."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.frameworks import Framework, MetaOp, frameworks
from benchmarks.report import Metric

_STEPS = 64
_ROUNDS = 15


class _Network(NamedTuple):
    """A network, and the shapes of one sample and of one batch of labels."""

    make: Callable[[Framework], Any]
    sample: tuple[int, ...]
    batch: int


def _lstm_cell(framework: Framework) -> Any:
    nn = framework.nn

    class Classifier(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.LSTMCell(32, 64)
            self.last = nn.Linear(64, 10)

        def forward(self, x: Any) -> Any:
            return self.last(self.cell(x)[0])

    return Classifier()


_NETWORKS = {
    "MLP 784-64-10, batch 32": _Network(
        lambda framework: framework.nn.Sequential(
            framework.nn.Linear(784, 64), framework.nn.ReLU(), framework.nn.Linear(64, 10)
        ),
        (784,),
        32,
    ),
    "LeNet, batch 16": _Network(
        lambda framework: framework.load("models.lenet").LeNet(), (1, 28, 28), 16
    ),
    "LSTM cell 32-64, batch 16": _Network(_lstm_cell, (32,), 16),
}


def measure() -> list[Metric]:
    """Microseconds of CPU time of a training step with Adam, one by one and many at once."""
    metrics = []
    for name, network in _NETWORKS.items():
        ours, theirs = frameworks()
        metrics.append(_one_by_one(name, network, ours, "eager"))
        metrics.append(_one_by_one(name, network, ours, "jit"))
        metrics += [_at_once(name, network, ours, steps) for steps in (1, 4, 16, 64)]
        metrics.append(_one_by_one(name, network, theirs, "eager"))
    return metrics


def _step(framework: Framework, network: _Network) -> Callable[[Any, Any], Any]:
    model = framework.module(network.make(framework))
    optimizer = framework.optimizer("Adam", model.parameters(), lr=1e-3)
    functional = framework.functional

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def _arrays(network: _Network) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    shape = (_STEPS, network.batch, *network.sample)
    samples = random.standard_normal(shape, np.float32)
    return samples, random.integers(0, 10, (_STEPS, network.batch))


def _one_by_one(name: str, network: _Network, framework: Framework, how: str) -> Metric:
    step = _step(framework, network)
    if how == "jit":
        step = framework.captured(step)
    pairs = [tuple(map(framework.tensor, pair)) for pair in zip(*_arrays(network))]
    return _metric(name, framework, how, lambda: [step(*pair) for pair in pairs])


def _at_once(name: str, network: _Network, framework: Framework, steps: int) -> Metric:
    assert isinstance(framework, MetaOp)
    iterated = framework.library.iterate(_step(framework, network))
    parts = [
        tuple(framework.tensor(array[start : start + steps]) for array in _arrays(network))
        for start in range(0, _STEPS, steps)
    ]
    run = lambda: [iterated(*part) for part in parts]  # noqa: E731
    return _metric(name, framework, f"iterate, {steps} at once", run)


def _metric(name: str, framework: Framework, how: str, run: Callable[[], Any]) -> Metric:
    times = []
    for _ in range(_ROUNDS + 2):
        start = time.process_time()
        run()
        framework.finish()
        times.append(time.process_time() - start)
    value = statistics.median(times[2:]) / _STEPS * 1e6
    return Metric(f"{name}, Adam, {how}", framework.name, value, "µs")
