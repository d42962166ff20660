"""Captured functions: the same values as the uncaptured loop, and errors where it must be so."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaop
from metaop import nn, optim
from metaop.capture import Captured, jit
from metaop.errors import CaptureError
from metaop.nn import functional as F

Step = Callable[..., Any]


class Network(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.norm = nn.BatchNorm1d(8)
        self.second = nn.Linear(8, 3)
        self.dropout = dropout

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        x = F.relu(self.norm(self.first(x)))
        return self.second(F.dropout(x, self.dropout, self.training))


def _batches(count: int, rows: int = 10) -> list[tuple[metaop.Tensor, metaop.Tensor]]:
    random = np.random.default_rng(3)
    return [
        (
            metaop.tensor(random.standard_normal((rows, 6)).astype("f")),
            metaop.tensor(random.integers(0, 3, rows)),
        )
        for _ in range(count)
    ]


_OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda p: optim.SGD(p, lr=0.1),
    "momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.3, weight_decay=1e-3),
    "adam": lambda p: optim.Adam(p, lr=0.01),
    "adamw": lambda p: optim.AdamW(p, lr=0.01, amsgrad=True),
    "nadam": lambda p: optim.NAdam(p, lr=0.01),
    "rmsprop": lambda p: optim.RMSprop(p, lr=0.01),
}


def _train(
    optimizer: str, captured: bool, dropout: float, schedule_inside: bool, zero_inside: bool
) -> tuple[list[float], dict[str, np.ndarray], dict[str, np.ndarray], Any]:
    metaop.manual_seed(5)
    net = Network(dropout)
    opt = _OPTIMIZERS[optimizer](net.parameters())
    schedule = optim.lr_scheduler.StepLR(opt, 3, 0.5)

    def step(x: metaop.Tensor, y: metaop.Tensor) -> metaop.Tensor:
        if zero_inside:
            opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        if schedule_inside:
            schedule.step()
        return loss

    run: Any = jit(step) if captured else step
    losses = []
    for x, y in _batches(9):
        loss = run(x, y)
        losses.append(loss.item())
        if not zero_inside:
            opt.zero_grad()
        if not schedule_inside:
            schedule.step()
    state = {name: value.detach().numpy().copy() for name, value in net.state_dict().items()}
    gradients = {
        name: value.grad.numpy().copy()
        for name, value in net.named_parameters()
        if value.grad is not None
    }
    return losses, state, gradients, run


@pytest.mark.parametrize("zero_inside", [True, False])
@pytest.mark.parametrize("schedule_inside", [True, False])
@pytest.mark.parametrize("optimizer", _OPTIMIZERS)
def test_training_as_uncaptured(optimizer: str, schedule_inside: bool, zero_inside: bool) -> None:
    expected = _train(optimizer, False, 0.4, schedule_inside, zero_inside)
    actual = _train(optimizer, True, 0.4, schedule_inside, zero_inside)
    assert actual[3].traces <= 3
    assert actual[0] == expected[0]
    for k in (1, 2):
        assert actual[k].keys() == expected[k].keys()
        for name in actual[k]:
            np.testing.assert_array_equal(actual[k][name], expected[k][name], err_msg=name)


def test_another_shape_is_traced_again() -> None:
    double = jit(lambda x: x * 2 + 1)
    for rows in (3, 4, 3, 4, 3):
        x = metaop.rand(rows, 2)
        np.testing.assert_array_equal(double(x).numpy(), x.numpy() * 2 + 1)
    assert double.traces == 4  # twice for each shape


def test_python_values_are_part_of_the_signature() -> None:
    power = jit(lambda x, n, *, scale: (x**n) * scale)
    x = metaop.tensor([1.5, 2.0, 3.0])
    for n, scale in 3 * ((2, 3.0), (3, 3.0), (2, 4.0)):
        np.testing.assert_allclose(power(x, n, scale=scale).numpy(), x.numpy() ** n * scale)
    assert power.traces == 6


def test_values_of_the_closure_are_watched() -> None:
    factor = 2.5

    @jit
    def scaled(x: metaop.Tensor) -> metaop.Tensor:
        return x * factor

    x = metaop.ones(2)
    assert scaled(x).tolist() == [2.5, 2.5] == scaled(x).tolist()
    factor = 3.5
    assert scaled(x).tolist() == [3.5, 3.5]


def test_train_and_eval() -> None:
    net = Network(0.5)
    forward = jit(lambda x: net(x))
    x = metaop.rand(10, 6)
    with metaop.no_grad():
        forward(x), forward(x)
        net.eval()
        expected = net(x).numpy()
        for _ in range(3):
            np.testing.assert_array_equal(forward(x).numpy(), expected)
        net.train()
        assert not np.array_equal(forward(x).numpy(), forward(x).numpy())
    assert forward.traces == 5


def _reads(x: metaop.Tensor) -> metaop.Tensor:
    y = x * 2
    if y.sum() > 0:  # the line that the error names
        return y
    return -y


def test_control_flow_on_values_is_an_error() -> None:
    line = _reads.__code__.co_firstlineno + 2
    with pytest.raises(CaptureError, match=rf"test_capture.py:{line} in _reads"):
        jit(_reads)(metaop.ones(3))
    # Arguments that exist already are no different.
    with pytest.raises(CaptureError):
        jit(lambda x: x * x.item())(metaop.tensor(3.0))
    assert _reads(metaop.ones(3)).tolist() == [2.0, 2.0, 2.0]


def test_control_flow_with_fallback() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        function = jit(_reads, fallback=True)
        for value in (1.0, -1.0, 2.0, -2.0, 3.0, -3.0):
            assert function(metaop.full((2,), value)).tolist() == [2 * abs(value)] * 2


def test_random_numbers_advance() -> None:
    noise = jit(lambda x: x + metaop.rand(4))
    metaop.manual_seed(0)
    captured = [noise(metaop.zeros(4)).tolist() for _ in range(5)]
    metaop.manual_seed(0)
    expected = [(metaop.zeros(4) + metaop.rand(4)).tolist() for _ in range(5)]
    assert captured == expected and noise.traces == 2


def test_tensors_of_the_closure_are_read_anew_and_written() -> None:
    total = metaop.zeros(3)

    @jit
    def add(x: metaop.Tensor) -> metaop.Tensor:
        total.add_(x)
        x.mul_(2)
        return total.sum()

    for k in range(1, 5):
        x = metaop.ones(3)
        assert add(x).item() == 3.0 * k
        assert x.tolist() == [2.0, 2.0, 2.0]
    total.zero_()
    assert add(metaop.ones(3)).item() == 3.0 and total.tolist() == [1.0] * 3
    assert add.traces == 2


def test_results_of_earlier_calls_stay() -> None:
    function = jit(lambda x: (x + 1, {"twice": x * 2, "name": "n"}, x))
    inputs = [metaop.full((2,), float(k)) for k in range(4)]
    outputs = [function(x) for x in inputs]
    for k, (more, named, same) in enumerate(outputs):
        assert more.tolist() == [k + 1.0] * 2 and named["twice"].tolist() == [2.0 * k] * 2
        assert same is inputs[k] and named["name"] == "n"


def test_constants_are_kept_and_changing_data_is_not_frozen() -> None:
    weighted = jit(lambda x: x * metaop.tensor([1.0, 2.0]))
    for _ in range(4):
        assert weighted(metaop.ones(2)).tolist() == [1.0, 2.0]
    assert weighted.traces == 2
    counter = iter(range(100))
    changing = jit(lambda x: x + metaop.tensor([float(next(counter))]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert [changing(metaop.zeros(1)).item() for _ in range(7)] == [float(k) for k in range(7)]


def test_escaping_tensors_are_not_frozen() -> None:
    kept: list[metaop.Tensor] = []

    def step(x: metaop.Tensor) -> metaop.Tensor:
        kept.append(x * 3)
        return x + 1

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        function = jit(step)
        for k in range(6):
            function(metaop.full((1,), float(k)))
    assert [one.item() for one in kept] == [3.0 * k for k in range(6)]


def test_gradients_outside_fall_back() -> None:
    w = metaop.ones(3, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loss = jit(lambda x: (w * x).sum())
        for k in range(6):
            w.grad = None
            loss(metaop.full((3,), float(k))).backward()
            assert w.grad is not None and w.grad.tolist() == [float(k)] * 3


def test_gradients_accumulate_outside_the_optimizer() -> None:
    w = metaop.ones(2, requires_grad=True)

    @jit
    def accumulate(x: metaop.Tensor) -> None:
        (w * x).sum().backward()

    for k in range(1, 6):
        accumulate(metaop.ones(2))
        assert w.grad is not None and w.grad.tolist() == [float(k)] * 2
    w.grad = None
    accumulate(metaop.ones(2))
    assert w.grad is not None and w.grad.tolist() == [1.0] * 2


def test_learning_rate_and_weight_decay_changed_by_hand() -> None:
    w = metaop.ones(2, requires_grad=True)
    opt = optim.SGD([w], lr=0.5)

    @jit
    def step() -> None:
        opt.zero_grad()
        (w * 2).sum().backward()
        opt.step()

    step(), step()
    assert w.tolist() == [-1.0, -1.0]
    opt.param_groups[0]["lr"] = 0.25
    step()
    assert w.tolist() == [-1.5, -1.5]
    opt.param_groups[0]["weight_decay"] = 2.0
    step()
    assert w.tolist() == [-1.25, -1.25]


def test_loaded_state_is_used() -> None:
    w = metaop.ones(2, requires_grad=True)
    opt = optim.Adam([w], lr=0.1)

    def plain() -> None:
        opt.zero_grad()
        (w * w).sum().backward()
        opt.step()

    step: Captured = jit(plain)
    for _ in range(4):
        step()
    saved, at = opt.state_dict(), w.detach().clone()
    saved["state"] = {0: {name: one.detach().clone() for name, one in opt.state[w].items()}}
    at.tolist()
    for _ in range(2):
        plain()
    expected = w.tolist()
    with metaop.no_grad():
        w.copy_(at)
    opt.load_state_dict(saved)
    for _ in range(2):
        step()
    assert w.tolist() == expected


def test_methods() -> None:
    class Model:
        def __init__(self, bias: float) -> None:
            self.bias = metaop.tensor([bias])

        @jit
        def forward(self, x: metaop.Tensor) -> metaop.Tensor:
            return x + self.bias

    first, second = Model(1.0), Model(2.0)
    for _ in range(3):
        assert first.forward(metaop.zeros(1)).item() == 1.0
        assert second.forward(metaop.zeros(1)).item() == 2.0


def test_deep_copies_go_their_own_way() -> None:
    original = metaop.ones(2) * 1
    copied = copy.deepcopy(original)
    original.add_(1)
    assert copied.tolist() == [1.0, 1.0] and original.tolist() == [2.0, 2.0]
