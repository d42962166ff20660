"""A training loop whose shapes do not change compiles nothing after its first iteration."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import metaop
import metaop.nn.functional as F
from metaop import nn
from metaop.compiler import compile_subgraph
from metaop.execution import executor, specialisation
from metaop.unified_graph.cut import Subgraph

_ITERATIONS = 4
Model = nn.Module
Loop = Callable[[Model, metaop.optim.Optimizer], Iterator[None]]


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Subgraph]:
    """The subgraphs that were compiled so far; programs of other tests are forgotten."""
    executor.clear_programs()
    found: list[Subgraph] = []

    def counting(subgraph: Subgraph) -> object:
        found.append(subgraph)
        return compile_subgraph(subgraph)

    monkeypatch.setattr(specialisation, "compile_subgraph", counting)
    return found


def _model() -> Model:
    """A network whose parameters got their first values in another order than they stand in."""
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(64, 3),
    )
    for parameter in reversed(list(model.parameters())):
        nn.init.uniform_(parameter)
    return model


def _batches() -> Iterator[tuple[metaop.Tensor, metaop.Tensor]]:
    random = np.random.default_rng(0)
    for _ in range(_ITERATIONS):
        images = random.standard_normal((5, 1, 4, 4)).astype(np.float32)
        yield metaop.from_numpy(images), metaop.from_numpy(random.integers(0, 3, 5))


def _reads_the_loss_last(model: Model, optimizer: metaop.optim.Optimizer) -> Iterator[None]:
    for images, labels in _batches():
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
        yield


def _reads_the_loss_before_backward(
    model: Model, optimizer: metaop.optim.Optimizer
) -> Iterator[None]:
    losses = []
    for images, labels in _batches():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
        yield


def _reads_nothing(model: Model, optimizer: metaop.optim.Optimizer) -> Iterator[None]:
    losses = []
    for images, labels in _batches():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        yield


def _clips_and_schedules(model: Model, optimizer: metaop.optim.Optimizer) -> Iterator[None]:
    schedule = metaop.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.7)
    for images, labels in _batches():
        logits = model(images)
        loss = F.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        (logits.argmax(1) == labels).float().mean().item()
        yield


def _accumulates_gradients(model: Model, optimizer: metaop.optim.Optimizer) -> Iterator[None]:
    for images, labels in _batches():
        for part in range(3):
            loss = F.cross_entropy(model(images + part), labels) / 3
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield


@pytest.mark.parametrize(
    "loop",
    [
        _reads_the_loss_last,
        _reads_the_loss_before_backward,
        _reads_nothing,
        _clips_and_schedules,
        _accumulates_gradients,
    ],
)
def test_later_iterations_compile_nothing(loop: Loop, compiled: list[Subgraph]) -> None:
    metaop.manual_seed(0)
    model = _model()
    optimizer = metaop.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    _assert_steady(loop(model, optimizer), compiled)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SGD", {}),
        ("SGD", {"momentum": 0.9, "dampening": 0.1, "weight_decay": 1e-4}),
        ("Adam", {"amsgrad": True}),
        ("AdamW", {}),
        ("Adamax", {}),
        ("NAdam", {}),
        ("RAdam", {}),
        ("LAMB", {}),
        ("RMSprop", {"centered": True, "momentum": 0.9}),
        ("Adagrad", {}),
        ("Adadelta", {}),
        ("ASGD", {}),
        ("Rprop", {}),
    ],
)
def test_every_optimizer_is_steady(
    name: str, options: dict[str, float], compiled: list[Subgraph]
) -> None:
    model = nn.Sequential(nn.Linear(16, 4), nn.Tanh(), nn.Linear(4, 3))
    flat = nn.Sequential(nn.Flatten(), model)
    optimizer = getattr(metaop.optim, name)(model.parameters(), **options)
    _assert_steady(_reads_the_loss_last(flat, optimizer), compiled)


def _assert_steady(iterations: Iterator[None], compiled: list[Subgraph]) -> None:
    next(iterations)
    assert compiled
    compiled.clear()
    for _ in iterations:
        assert not compiled
