"""Many steps as one program do what as many calls of the step do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import metaop
from metaop import nn, optim
from metaop.capture.repeated import Repeated
from metaop.codegen.caches.kernels import KernelCache
from metaop.codegen.llvm import kernels, rows
from metaop.errors import CaptureError
from metaop.execution import executor
from metaop.nn import functional as F

STEPS = 5
OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "ASGD": lambda p: optim.ASGD(p, lr=0.05),
    "LAMB": lambda p: optim.LAMB(p, lr=0.01),
    "SGD": lambda p: optim.SGD(p, lr=0.1),
    "momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "Adadelta": lambda p: optim.Adadelta(p),
    "Adagrad": lambda p: optim.Adagrad(p),
    "Adam": lambda p: optim.Adam(p, lr=0.01),
    "AMSGrad": lambda p: optim.Adam(p, lr=0.01, amsgrad=True),
    "AdamW": lambda p: optim.AdamW(p, lr=0.01),
    "Adamax": lambda p: optim.Adamax(p),
    "NAdam": lambda p: optim.NAdam(p),
    "RAdam": lambda p: optim.RAdam(p),
    "RMSprop": lambda p: optim.RMSprop(p, momentum=0.5, centered=True),
    "Rprop": lambda p: optim.Rprop(p),
}


class Training:
    """A small network and its step; `iterates` says whether many steps are one program."""

    def __init__(self, iterates: bool, make: Callable[[Any], Any] = OPTIMIZERS["Adam"]) -> None:
        metaop.manual_seed(3)
        self.net: Any = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
        self.optimizer = make(self.net.parameters())
        self.iterates = iterates
        self.iterated = metaop.iterate(self.step)

    def step(self, x: Any, y: Any) -> Any:
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.net(x), y)
        loss.backward()
        self.optimizer.step()
        return loss

    def run(self, rounds: int = 4, steps: int = STEPS) -> list[np.ndarray]:
        """Losses of all steps, and what the training leaves behind."""
        generator = np.random.default_rng(0)
        metaop.manual_seed(rounds)
        losses: list[float] = []
        for _ in range(rounds):
            x = metaop.tensor(generator.standard_normal((steps, 4, 6)).astype(np.float32))
            y = metaop.tensor(generator.integers(0, 3, (steps, 4)))
            if self.iterates:
                found = self.iterated(x, y)
                assert found.shape == (steps,) and not found.requires_grad
                losses += found.tolist()
            else:
                losses += [self.step(*pair).item() for pair in zip(x, y)]
        return [np.array(losses), *self.left()]

    def left(self) -> list[np.ndarray]:
        values = [*self.net.state_dict().values(), metaop.get_rng_state()]
        values += [p.grad for p in self.net.parameters() if p.grad is not None]
        values += [
            value
            for state in self.optimizer.state.values()
            for value in state.values()
            if isinstance(value, metaop.Tensor)
        ]
        return [value.detach().numpy().copy() for value in values]


def is_one_program(iterated: Any) -> bool:
    return iterated._last is not None and isinstance(iterated._last[1], Repeated)


def check_alike(kind: Any = Training, *args: Any, rounds: int = 4) -> Any:
    """Compares a training with one whose steps run alone."""
    one, many = kind(False, *args), kind(True, *args)
    expected, found = one.run(rounds), many.run(rounds)
    assert len(expected) == len(found)
    for a, b in zip(expected, found):
        np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-7)
    assert is_one_program(many.iterated)
    return many


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer(name: str) -> None:
    check_alike(Training, OPTIMIZERS[name])


def test_muon() -> None:
    class Matrices(Training):
        def __init__(self, iterates: bool) -> None:
            super().__init__(iterates)
            self.net = nn.Sequential(nn.Linear(6, 8, bias=False), nn.Linear(8, 3, bias=False))
            self.optimizer = optim.Muon(self.net.parameters(), lr=0.01)

    check_alike(Matrices)


class Whole(Training):
    """Dropout, running statistics, a schedule and clipping."""

    def __init__(self, iterates: bool) -> None:
        super().__init__(iterates)
        self.net = nn.Sequential(
            nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.4), nn.Linear(8, 3)
        )
        self.optimizer = optim.AdamW(self.net.parameters(), lr=0.05)
        self.schedule: Any = optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 30)

    def step(self, x: Any, y: Any) -> Any:
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.net(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 0.5)
        self.optimizer.step()
        self.schedule.step()
        return loss


def test_random_numbers_statistics_schedules_and_clipping() -> None:
    many = check_alike(Whole)
    assert many.net[1].num_batches_tracked.item() == many.schedule.last_epoch == 4 * STEPS
    expected = 0.05 / 2 * (1 + np.cos(np.pi * 4 * STEPS / 30))
    np.testing.assert_allclose(many.optimizer.param_groups[0]["lr"], expected)


def test_the_same_as_in_pytorch() -> None:
    many = Training(True, lambda p: optim.SGD(p, lr=0.1, momentum=0.9))
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    own = zip(net.parameters(), many.net.parameters())
    with torch.no_grad():
        for theirs, ours in own:
            theirs.copy_(torch.tensor(ours.detach().numpy()))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    generator = np.random.default_rng(0)
    losses = []
    for _ in range(4):
        xs = generator.standard_normal((STEPS, 4, 6)).astype(np.float32)
        ys = generator.integers(0, 3, (STEPS, 4))
        for x, y in zip(torch.tensor(xs), torch.tensor(ys)):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    np.testing.assert_allclose(many.run()[0], losses, rtol=1e-5)
    for theirs, ours in zip(net.parameters(), many.net.parameters()):
        np.testing.assert_allclose(ours.detach(), theirs.detach(), rtol=1e-4, atol=1e-6)


class Accumulating(Training):
    def step(self, x: Any, y: Any) -> Any:
        loss = F.cross_entropy(self.net(x), y)
        loss.backward()
        self.optimizer.step()
        return loss


class Filling(Training):
    def step(self, x: Any, y: Any) -> Any:
        self.optimizer.zero_grad(set_to_none=False)
        return Accumulating.step(self, x, y)  # type: ignore[arg-type]


class Forgetting(Training):
    def step(self, x: Any, y: Any) -> Any:
        loss = super().step(x, y)
        self.optimizer.zero_grad()
        return loss


@pytest.mark.parametrize("kind", [Accumulating, Filling, Forgetting])
def test_gradients_are_what_the_last_step_leaves(kind: type[Training]) -> None:
    check_alike(kind)


def test_the_formula_of_an_optimizer_may_change_in_between() -> None:
    """RAdam takes another formula in its first steps, which then run apart."""
    many = check_alike(Training, OPTIMIZERS["RAdam"], rounds=5)
    assert many.iterated.step.traces > 2


@pytest.mark.filterwarnings("ignore:metaop.jit runs")  # the schedule may change what it reads
def test_a_schedule_that_the_step_reads() -> None:
    class Reading(Whole):
        def step(self, x: Any, y: Any) -> Any:
            rate = self.optimizer.param_groups[0]["lr"]
            return super().step(x, y) * rate

    one, many = Reading(False), Reading(True)
    for reading in (one, many):
        reading.schedule = optim.lr_scheduler.StepLR(reading.optimizer, 7, 0.5)
    for a, b in zip(one.run(6), many.run(6)):
        np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-7)


def test_settings_may_change_between_calls() -> None:
    one, many = Whole(False), Whole(True)
    for change in (
        lambda t: None,
        lambda t: t.optimizer.param_groups[0].update(lr=0.01),
        lambda t: t.net.eval(),
        lambda t: t.net[0].weight.requires_grad_(False),
        lambda t: t.net.train(),
    ):
        for training in (one, many):
            change(training)
        for a, b in zip(one.run(3), many.run(3)):
            np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-7)
    assert is_one_program(many.iterated)


def test_fewer_and_more_steps() -> None:
    one, many = Training(False), Training(True)
    for steps in (4, 4, 7, 1, 3):
        for a, b in zip(one.run(1, steps), many.run(1, steps)):
            np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-7)


def test_all_results_are_stacked() -> None:
    weight = metaop.randn(3, requires_grad=True)

    @metaop.iterate
    def step(batch: dict[str, Any], scale: float) -> Any:
        loss = (batch["x"] * weight * scale).sum()
        loss.backward()
        with metaop.no_grad():
            weight.sub_(0.1 * weight.grad)  # type: ignore[operator]
        weight.grad = None
        return {"loss": loss, "weight": weight, "nothing": None, "pair": (loss, loss * 2)}

    generator = np.random.default_rng(0)
    expected = weight.detach().numpy().astype(np.float64)
    for _ in range(4):
        x = generator.standard_normal((6, 3)).astype(np.float32)
        found = step({"x": metaop.tensor(x)}, scale=0.5)
        for k in range(6):
            np.testing.assert_allclose(found["loss"][k], (x[k] * expected).sum() / 2, atol=1e-5)
            expected = expected - 0.1 * 0.5 * x[k]
            np.testing.assert_allclose(found["weight"][k], expected, rtol=1e-4, atol=1e-5)
        assert found["nothing"] is None
        np.testing.assert_array_equal(found["pair"][1], found["loss"] * 2)
    assert is_one_program(step)


def test_steps_without_arguments() -> None:
    total = metaop.zeros(3)

    @metaop.iterate(iterations=8)
    def step() -> Any:
        total.add_(metaop.rand(3))

    metaop.manual_seed(0)
    for _ in range(3):
        assert step() is None
    metaop.manual_seed(0)
    expected = sum(metaop.rand(3) for _ in range(24))
    np.testing.assert_allclose(total, expected, rtol=1e-6)
    assert is_one_program(step)


def test_a_counter_that_steps_read() -> None:
    weight = nn.Parameter(metaop.ones(3))
    optimizer = optim.Adam([weight], lr=0.1)
    weight.sum().backward()
    optimizer.step()
    count = optimizer.state[weight]["step"]

    @metaop.iterate
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        found = x.sum() * count
        (weight * x).sum().backward()
        optimizer.step()
        return found

    found = [step(metaop.ones(4, 3)) / 3 for _ in range(3)]
    np.testing.assert_array_equal(metaop.cat(found), np.arange(1, 13))
    assert is_one_program(step)


def test_compilation_does_not_grow_with_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []

    def counting(nest: Any) -> Any:
        names.append(nest.name)
        return kernels.start_compiling(nest)

    monkeypatch.setenv("METAOP_DISK_CACHE", "false")
    counts = []
    for steps in (3, 40):
        cache = KernelCache(counting)
        monkeypatch.setattr(rows, "kernel_cache", lambda cache=cache: cache)
        executor.clear_programs()
        many = Training(True)
        many.run(1, steps)
        names.clear()
        many.run(2, steps)
        assert is_one_program(many.iterated)
        counts.append(len(names))
    assert counts[0] == counts[1] > 0


def test_inside_a_captured_function() -> None:
    weight = metaop.ones(2)

    @metaop.iterate
    def step(x: Any) -> Any:
        weight.add_(x)
        return weight.sum()

    outer = metaop.jit(lambda x: step(x) * 2)
    x = metaop.tensor([[1.0, 2.0], [3.0, 4.0]])
    found = [outer(x).tolist() for _ in range(4)]
    assert found == [[10 + 20 * k, 24 + 20 * k] for k in range(4)]


# --- what is refused, or runs step by step --------------------------------------------------------


def test_parameters_that_share_memory_run_step_by_step() -> None:
    flat = metaop.zeros(4)
    halves = flat[:2], flat[2:]

    @metaop.iterate
    def step(x: Any) -> Any:
        halves[0].add_(x)
        halves[1].add_(flat[:2])
        return flat.sum()

    with pytest.warns(UserWarning, match="step by step|as it is"):
        found = [value for _ in range(6) for value in step(metaop.ones(2, 2)).tolist()]
    sums, expected = [0.0, 0.0], []
    for _ in range(12):
        sums[0] += 1
        sums[1] += sums[0]
        expected.append(2 * sum(sums))
    assert found == expected


def test_a_wrong_label_changes_nothing() -> None:
    many = Training(True, OPTIMIZERS["SGD"])
    many.run(2)
    before = many.left()
    x, y = metaop.ones(STEPS, 4, 6), metaop.zeros(STEPS, 4, dtype=metaop.int64)
    y[3, 1] = 7
    with pytest.raises(IndexError, match="7"):
        many.iterated(x, y)
    for a, b in zip(before, many.left()):
        np.testing.assert_array_equal(a, b)
    y[3, 1] = 2
    assert many.iterated(x, y).isfinite().all()


@metaop.iterate
def doubled(x: Any, y: Any = None) -> Any:
    return x * 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: doubled(metaop.ones(3, 2), metaop.ones(4)), r"\[3, 4\] steps"),
        (lambda: doubled(metaop.ones(0, 2)), r"\[0\] steps"),
        (lambda: doubled(metaop.tensor(1.0)), "no dimension"),
        (lambda: doubled(3.0), "how many steps"),
        (lambda: metaop.iterate(lambda x: x, iterations=2)(metaop.ones(3)), r"\[2, 3\] steps"),
        (lambda: metaop.iterate(lambda x: x, iterations=0), "iterations = 0"),
        (lambda: metaop.iterate(lambda x: 3)(metaop.ones(2)), "returns a int"),
    ],
)
def test_refused_calls(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError, RuntimeError), match=message):
        call()


def test_steps_that_read_a_value() -> None:
    def step(x: Any) -> Any:
        return x * 2 if x.sum() > 2 else x

    x = metaop.tensor([[1.0, 2.0], [0.5, 0.5]])
    with pytest.raises(CaptureError, match="reads a value"):
        metaop.iterate(step)(x)
    for _ in range(2):
        np.testing.assert_array_equal(metaop.iterate(step, fallback=True)(x), [[2, 4], [0.5, 0.5]])


def test_steps_that_write_an_argument() -> None:
    with pytest.raises(CaptureError, match="writes an argument"):
        metaop.iterate(lambda x: x.mul_(2))(metaop.ones(2, 2))
