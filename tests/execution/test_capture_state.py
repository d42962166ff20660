"""Captured functions notice when the state of Python that they read has changed."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import metaop
from metaop import Tensor, jit, nn, optim

# A function of one tensor, and what changes the state that it reads.
Case = tuple[Callable[[Tensor], Tensor], Callable[[], Any]]
CASES: dict[str, Callable[[], Case]] = {}
FACTOR = 2.0
WEIGHT = metaop.tensor([1.0, 1.0, 1.0])


def case(function: Callable[[], Case]) -> Callable[[], Case]:
    CASES[function.__name__] = function
    return function


class Setting:
    rate = 2.0

    def __init__(self) -> None:
        self.own = 2.0
        self.weight = metaop.ones(3)

    @property
    def derived(self) -> float:
        return self.own + 1

    def __call__(self, x: Tensor) -> Tensor:
        return x * self.own


class Slotted:
    __slots__ = ("own",)

    def __init__(self) -> None:
        self.own = 2.0


@dataclasses.dataclass
class Nested:
    setting: Setting = dataclasses.field(default_factory=Setting)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.options = {"factor": 2.0}
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Tanh()])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x) * self.options["factor"]
        return x


def scaled(x: Tensor) -> Tensor:
    return x * FACTOR


def set_global(name: str, value: Any) -> None:
    globals()[name] = value


@pytest.fixture(autouse=True)
def same_globals_afterwards() -> Iterator[None]:
    before = {name: globals()[name] for name in ("FACTOR", "WEIGHT", "scaled")}
    rate = Setting.rate
    yield
    globals().update(before)
    Setting.rate = rate
    metaop.set_default_dtype(metaop.float32)


@case
def global_number() -> Case:
    return lambda x: x * FACTOR, lambda: set_global("FACTOR", 3.0)


@case
def global_number_of_a_called_function() -> Case:
    return lambda x: scaled(x), lambda: set_global("FACTOR", 5.0)


@case
def global_function() -> Case:
    return lambda x: scaled(x), lambda: set_global("scaled", lambda x: x + 1)


@case
def global_tensor() -> Case:
    return lambda x: x * WEIGHT, lambda: set_global("WEIGHT", metaop.full((3,), 5.0))


@case
def closure_of_a_called_function() -> Case:
    factor = 2.0

    def inner(x: Tensor) -> Tensor:
        return x * factor

    def change() -> None:
        nonlocal factor
        factor = 7.0

    return lambda x: inner(x), change


@case
def closure_tensor() -> Case:
    weight = metaop.ones(3)

    def change() -> None:
        nonlocal weight
        weight = metaop.full((3,), 5.0)

    return lambda x: x * weight, change


@case
def closure_of_numpy() -> Case:
    factor = np.float32(2)

    def change() -> None:
        nonlocal factor
        factor = np.float32(3)

    return lambda x: x * factor, change


@case
def type_of_an_equal_number() -> Case:
    factor: float = 1

    def change() -> None:
        nonlocal factor
        factor = 1.0

    return lambda x: x.long() * factor, change


@case
def attribute() -> Case:
    setting = Setting()
    return lambda x: x * setting.own, lambda: setattr(setting, "own", 3.0)


@case
def attribute_behind_a_property() -> Case:
    setting = Setting()
    return lambda x: x * setting.derived, lambda: setattr(setting, "own", 3.0)


@case
def attribute_of_a_class() -> Case:
    setting = Setting()
    return lambda x: x * setting.rate, lambda: setattr(Setting, "rate", 3.0)


@case
def attribute_of_an_attribute() -> Case:
    nested = Nested()
    return lambda x: x * nested.setting.own, lambda: setattr(nested.setting, "own", 3.0)


@case
def attribute_with_a_slot() -> Case:
    setting = Slotted()
    return lambda x: x * setting.own, lambda: setattr(setting, "own", 3.0)


@case
def attribute_of_a_module() -> Case:
    module = types.ModuleType("some_settings")
    module.rate = 2.0  # type: ignore[attr-defined]
    return lambda x: x * module.rate, lambda: setattr(module, "rate", 3.0)


@case
def tensor_of_an_attribute() -> Case:
    setting = Setting()
    return lambda x: x * setting.weight, lambda: setattr(setting, "weight", metaop.zeros(3))


@case
def bound_argument() -> Case:
    setting = Setting()
    function = functools.partial(lambda one, x: x * one.own, setting)
    return function, lambda: setattr(setting, "own", 3.0)


@case
def attribute_of_any_name() -> Case:
    setting = Setting()
    return (
        lambda x: x * getattr(setting, "".join(["o", "wn"])),
        lambda: setattr(setting, "own", 3.0),
    )


@case
def attribute_of_a_tensor() -> Case:
    weight = metaop.ones(3)
    weight.factor = 2.0  # type: ignore[attr-defined]
    return lambda x: x * weight.factor, lambda: setattr(weight, "factor", 3.0)  # type: ignore


@case
def learning_rate_that_is_read() -> Case:
    optimizer = optim.SGD([metaop.ones(3, requires_grad=True)], lr=0.5)
    return (
        lambda x: x * optimizer.param_groups[0]["lr"],
        lambda: optimizer.param_groups[0].update(lr=2.0),
    )


@case
def epoch_of_a_schedule() -> Case:
    optimizer = optim.SGD([metaop.ones(3, requires_grad=True)], lr=0.5)
    schedule = optim.lr_scheduler.StepLR(optimizer, 100)
    return lambda x: x * 2 if schedule.last_epoch < 1 else x * 3, lambda: (
        optimizer.step(),
        schedule.step(),
    )


@case
def callable_object() -> Case:
    setting = Setting()
    return setting, lambda: setattr(setting, "own", 3.0)


@case
def dictionary() -> Case:
    settings = {"rate": 2.0}
    return lambda x: x * settings["rate"], lambda: settings.update(rate=3.0)


@case
def length_of_a_list() -> Case:
    factors = [2.0]
    return lambda x: x * sum(factors) * len(factors), lambda: factors.append(3.0)


@case
def numpy_array() -> Case:
    factors = np.ones(3, np.float32)
    return lambda x: x * metaop.tensor(factors), lambda: factors.fill(5)


@case
def container_of_a_network() -> Case:
    net = Net()
    return lambda x: net(x).detach(), lambda: net.options.update(factor=3.0)


@case
def exchanged_layer() -> Case:
    net = Net()
    return lambda x: net(x).detach(), lambda: net.layers.__setitem__(1, nn.Sigmoid())


@case
def appended_layer() -> Case:
    net = Net()
    return lambda x: net(x).detach(), lambda: net.layers.append(nn.Sigmoid())


@case
def exchanged_parameter() -> Case:
    net = Net()
    return (
        lambda x: net(x).detach(),
        lambda: setattr(net.layers[0], "weight", nn.Parameter(metaop.ones(3, 3))),
    )


@case
def added_hook() -> Case:
    net = Net()
    return (
        lambda x: net(x).detach(),
        lambda: net.layers[0].register_forward_hook(lambda module, inputs, output: output + 1),
    )


@case
def frozen_parameter() -> Case:
    layer = nn.Linear(3, 3)

    def step(x: Tensor) -> Tensor:
        layer.zero_grad()
        layer(x).sum().backward()
        return layer.bias.grad.clone() + (0 if layer.weight.grad is None else 1)

    return step, lambda: layer.weight.requires_grad_(False)


@case
def default_dtype() -> Case:
    return lambda x: x + metaop.ones(3), lambda: metaop.set_default_dtype(metaop.float64)


@pytest.mark.parametrize("name", CASES)
def test_changed_state_is_seen(name: str) -> None:
    function, change = CASES[name]()
    captured = jit(function)
    x = metaop.tensor([1.0, 2.0, 3.0])
    before = function(x)
    for _ in range(4):
        np.testing.assert_allclose(captured(x).numpy(), before.numpy(), rtol=1e-5)
    assert captured.traces == 2
    change()
    after = function(x)
    differs = after.dtype is not before.dtype or not np.allclose(after.numpy(), before.numpy())
    for _ in range(3):
        result = captured(x)
        assert result.dtype is after.dtype
        np.testing.assert_allclose(result.numpy(), after.numpy(), rtol=1e-5)
    assert differs and captured.traces == 4


def own_count() -> Callable[[Tensor], Tensor]:
    setting = Setting()

    def counted(x: Tensor) -> Tensor:
        setting.own += 1
        return x * setting.own

    return counted


def own_dictionary() -> Callable[[Tensor], Tensor]:
    seen: dict[str, int] = {}

    def counted(x: Tensor) -> Tensor:
        seen["calls"] = seen.get("calls", 0) + 1
        return x * 2 if seen["calls"] % 2 else x * 3

    return counted


def an_iterator() -> Callable[[Tensor], Tensor]:
    factors = itertools.cycle([3.0, 4.0, 5.0])
    return lambda x: x * next(factors)


def numbers_of_python() -> Callable[[Tensor], Tensor]:
    source = random.Random(0)
    return lambda x: x * source.random()


def numbers_of_numpy() -> Callable[[Tensor], Tensor]:
    source = np.random.default_rng(0)
    return lambda x: x * float(source.random())


def own_attribute() -> Callable[[Tensor], Tensor]:
    def counted(x: Tensor) -> Tensor:
        counted.calls = getattr(counted, "calls", 0) + 1  # type: ignore[attr-defined]
        return x * counted.calls  # type: ignore[attr-defined]

    return counted


@pytest.mark.parametrize(
    "make",
    (own_attribute, own_count, own_dictionary, an_iterator, numbers_of_python, numbers_of_numpy),
)
def test_what_differs_from_call_to_call_is_not_frozen(
    make: Callable[[], Callable[[Tensor], Tensor]],
) -> None:
    plain, captured = make(), jit(make())
    x = metaop.ones(2)
    with pytest.warns(UserWarning, match="runs .* as it is: .* differ"):
        for _ in range(7):
            assert captured(x).tolist() == plain(x).tolist()


def seeded(x: Tensor) -> Tensor:
    metaop.manual_seed(3)
    return x + metaop.rand(3)


def seeded_by_a_generator(x: Tensor) -> Tensor:
    return x + metaop.rand(3, generator=metaop.Generator().manual_seed(3))


def seeded_by_a_state(x: Tensor) -> Tensor:
    state = metaop.get_rng_state()
    first = metaop.rand(3)
    metaop.set_rng_state(state)
    return x * 0 + (first - metaop.rand(3))


@pytest.mark.parametrize("function", (seeded, seeded_by_a_generator, seeded_by_a_state))
def test_seeds_are_set_in_every_call(function: Callable[[Tensor], Tensor]) -> None:
    captured, expected = jit(function), function(metaop.ones(3)).tolist()
    with pytest.warns(UserWarning, match="generator"):
        for _ in range(6):
            assert captured(metaop.ones(3)).tolist() == expected


def test_settings_that_the_function_makes_itself() -> None:
    """What a state of Python brings about beside the program is no state in which it was traced."""

    def made() -> tuple[Setting, Tensor, Callable[[Tensor], None]]:
        setting, weight = Setting(), metaop.zeros(3, requires_grad=True)
        optimizer = optim.SGD([weight], lr=0.1)

        def step(x: Tensor) -> None:
            for group in optimizer.param_groups:
                group["lr"] = setting.own
            optimizer.zero_grad()
            (weight * x).sum().backward()
            optimizer.step()

        return setting, weight, step

    (first, captured_weight, captured), (second, weight, plain) = made(), made()
    captured = jit(captured)
    x = metaop.ones(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k in range(16):
            first.own = second.own = 0.25 if k > 5 and k % 2 else 0.5
            captured(x), plain(x)
            assert captured_weight.tolist() == weight.tolist()


def test_arguments_that_are_reached_by_another_name() -> None:
    kept = metaop.ones(3)

    def grown(x: Tensor, y: Tensor) -> Tensor:
        kept.add_(1)
        return x * (2 if x is kept else 3) + y

    captured = jit(grown)
    y = metaop.zeros(3)
    for x in (metaop.ones(3), metaop.ones(3), metaop.ones(3), kept, kept, kept, metaop.ones(3)):
        before = kept.tolist()[0]
        factor = 2 * (before + 1) if x is kept else 3
        assert captured(x, y).tolist() == [factor] * 3
        assert kept.tolist() == [before + 1] * 3


def test_attributes_of_arguments_are_not_frozen() -> None:
    x = metaop.ones(2)
    captured = jit(lambda x: x * x.factor)
    with pytest.warns(UserWarning, match="attributes of a tensor"):
        for k in range(6):
            x.factor = float(k)  # type: ignore[attr-defined]
            assert captured(x).tolist() == [float(k)] * 2


def test_too_much_state_is_not_frozen() -> None:
    data = np.zeros(100_000, np.float32)
    captured = jit(lambda x: x + metaop.tensor(data[:2]))
    with pytest.warns(UserWarning, match="400000 bytes"):
        for k in range(7):
            data[0] = k
            assert captured(metaop.zeros(2)).tolist() == [float(k), 0.0]


def test_states_that_come_back_are_known() -> None:
    setting = Setting()
    captured = jit(lambda x: x * setting.own)
    for k in range(20):
        setting.own = 2.0 + k % 3
        assert captured(metaop.ones(1)).item() == setting.own
    assert captured.traces <= 6


def test_what_the_function_does_not_read_may_change() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.losses: list[float] = []
            self.epoch = 0
            self.weight = metaop.ones(3, requires_grad=True)
            self.optimizer = optim.SGD([self.weight], lr=0.1)
            self.step = jit(self.plain_step)

        def plain_step(self, x: Tensor) -> Tensor:
            self.optimizer.zero_grad()
            loss = (self.weight * x).sum()
            loss.backward()
            self.optimizer.step()
            return loss

    trainer = Trainer()
    for k in range(8):
        trainer.epoch = k
        trainer.losses.append(trainer.step(metaop.ones(3)).item())
    np.testing.assert_allclose(trainer.losses, [3 - 0.3 * k for k in range(8)], rtol=1e-5)
    assert trainer.step.traces == 2


def test_optimizers_of_users_are_read_anew() -> None:
    class Descent(optim.Optimizer):
        def step(self, closure: Any = None) -> None:
            with metaop.no_grad():
                for group in self.param_groups:
                    for parameter in group["params"]:
                        parameter.add_(parameter.grad, alpha=-group["lr"])

    weight = metaop.zeros(2, requires_grad=True)
    optimizer = Descent([weight], {"lr": 0.5})

    @jit
    def step() -> None:
        optimizer.zero_grad()
        weight.sum().backward()
        optimizer.step()

    for _ in range(4):
        step()
    assert weight.tolist() == [-2.0, -2.0] and step.traces == 2
    optimizer.param_groups[0]["lr"] = 1.0
    for _ in range(3):
        step()
    assert weight.tolist() == [-5.0, -5.0]


def test_profilers_go_on() -> None:
    import cProfile
    import pstats

    captured = jit(lambda x: scaled(x) + 1)
    profile = cProfile.Profile()
    with profile:
        for _ in range(3):
            captured(metaop.ones(2))
        random.Random(0).shuffle([1, 2])
    names = {name for _, _, name in pstats.Stats(profile).stats}  # type: ignore[attr-defined]
    assert "shuffle" in names


def test_an_error_inside_leaves_no_trace() -> None:
    import sys

    fails = True

    @jit
    def step(x: Tensor) -> Tensor:
        if fails:
            raise ValueError("not yet")
        return x + 1

    with pytest.raises(ValueError, match="not yet"):
        step(metaop.ones(2))
    assert sys.getprofile() is None
    fails = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            assert step(metaop.ones(2)).tolist() == [2.0, 2.0]


@pytest.mark.filterwarnings("ignore:metaop.jit runs")
@pytest.mark.parametrize("is_inside", [False, True])
@pytest.mark.parametrize(
    "read",
    [
        lambda opt, schedule: opt.param_groups[0]["lr"],
        lambda opt, schedule: opt.state_dict()["param_groups"][0]["lr"],
        lambda opt, schedule: schedule.get_last_lr()[0],
        lambda opt, schedule: schedule._last_lr[0],
        lambda opt, schedule: schedule.last_epoch,
    ],
)
def test_learning_rates_that_a_schedule_changes(
    read: Callable[[Any, Any], float], is_inside: bool
) -> None:
    """Also those that change in the call that reads them, after other calls that changed none."""

    def rates(is_captured: bool) -> list[float]:
        layer = nn.Linear(2, 1)
        opt = optim.SGD(layer.parameters(), lr=1.0)
        schedule = optim.lr_scheduler.StepLR(opt, 3, 0.5)

        def step(x: Tensor) -> Tensor:
            loss = layer(x).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            if is_inside:
                schedule.step()
            return metaop.ones(()) * read(opt, schedule)

        run = jit(step, fallback=True) if is_captured else step
        found = []
        for _ in range(10):
            found.append(run(metaop.zeros(3, 2)).item())
            if not is_inside:
                schedule.step()
        return found

    assert rates(True) == rates(False)
