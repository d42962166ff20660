"""Programs under a memory budget: the same bits in less memory, or a refusal that says how much."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaop
from metaop import nn, optim
from metaop.errors import ArgumentError, CaptureError, MemoryBudgetError, UnsupportedError
from metaop.execution import executor, specialisation
from metaop.execution.executor import clear_programs
from metaop.nn import functional as F
from metaop.settings import bytes_of

Step = Callable[[], Any]
_STEPS = 2


class Block(nn.Module):
    """Attention and a perceptron, each with dropout, added to what they read."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.heads = nn.Linear(width, 3 * width)
        self.mixed = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.2)
        )

    def forward(self, x: Any) -> Any:
        parts = self.heads(self.first(x)).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        found = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        x = x + F.dropout(found.transpose(1, 2).flatten(2), 0.1)
        return x + self.mixed(self.second(x))


class Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(17, 32)
        self.blocks = nn.Sequential(*[Block(32) for _ in range(3)])
        self.logits = nn.Linear(32, 17)

    def forward(self, tokens: Any) -> Any:
        return self.logits(self.blocks(self.words(tokens))).flatten(0, 1)


class UNet(nn.Module):
    """Two scales, of which the finer goes around the coarser."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.coarse, self.up = layers(3, 8), layers(8, 16), layers(24, 8)
        self.last = nn.Conv2d(8, 2, 1)

    def forward(self, x: Any) -> Any:
        fine = self.down(x)
        coarse = self.coarse(F.max_pool2d(fine, 2))
        wide = F.interpolate(coarse, scale_factor=2.0)
        return self.last(self.up(metaop.cat([fine, wide], 1)))


def layers(inputs: int, outputs: int) -> Any:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


def convolutions() -> Any:
    body = [layers(3, 8)] + [layers(8, 8) for _ in range(4)]
    return nn.Sequential(*body, nn.Dropout(0.3), nn.Flatten(), nn.Linear(8 * 256, 5))


def step_of(name: str) -> tuple[Step, Any]:
    """A training step, and the network that it trains; always the same one."""
    metaop.manual_seed(3)
    x: Any
    if name == "gpt":
        net, x, y = Gpt(), metaop.randint(0, 17, (4, 32)), metaop.randint(0, 17, (128,))
    elif name == "unet":
        net, x, y = UNet(), metaop.randn(4, 3, 16, 16), metaop.randint(0, 2, (4, 16, 16))
    else:
        net, x, y = convolutions(), metaop.randn(4, 3, 16, 16), metaop.randint(0, 5, (4,))
    optimizer = optim.SGD(net.parameters(), lr=0.05, momentum=0.9)

    def step() -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    for tensor in (x, y, *net.parameters()):
        tensor.detach().numpy()
    return step, net


def trained(step: Step, net: Any) -> list[np.ndarray]:
    """Losses, then parameters, their gradients, and running means."""
    found = [step().detach().numpy().copy() for _ in range(_STEPS)]
    found += [value.numpy().copy() for value in net.state_dict().values()]
    return found + [p.grad.numpy().copy() for p in net.parameters()]


def planned() -> int:
    """The bytes that the largest program takes of those that were made since all were forgotten."""
    return max(bytes_of_program(one.program) for one in executor._programs.values())


def bytes_of_program(program: Any) -> int:
    written_over = {program._results[number][1] for number in program.donors}
    made = (nbytes for k, nbytes in enumerate(program.made) if k not in written_over)
    return sum(made, program.arena_bytes)


# The widest stage of the U-Net takes two thirds by itself.
SHARES = {"convolutions": 0.5, "gpt": 0.5, "unet": 0.7}


@pytest.mark.parametrize("name", SHARES)
def test_the_same_bits_in_less_memory(name: str) -> None:
    """Of what lies between the arguments and the results of a step, a share is enough."""
    clear_programs()
    step, net = step_of(name)
    expected = trained(step, net)
    gradients = sum(4 * p.numel() for p in net.parameters())
    limit = gradients + int((planned() - gradients) * SHARES[name])
    clear_programs()
    step, net = step_of(name)
    with metaop.memory_budget(limit):
        actual = trained(step, net)
    assert limit // 2 < planned() <= limit
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def chain(rows: int = 64, layers: int = 6) -> tuple[Step, Any]:
    """A step of layers with an activation that cannot be had from its result."""
    metaop.manual_seed(4)
    net = nn.Sequential(*[nn.Sequential(nn.Linear(32, 32), nn.Mish()) for _ in range(layers)])
    x = metaop.randn(rows, 32)
    for tensor in (x, *net.parameters()):
        tensor.detach().numpy()

    def step() -> Any:
        net.zero_grad()
        loss = net(x).square().sum()
        loss.backward()
        return metaop.stack([loss, *(p.grad.sum() for p in net.parameters())])  # type: ignore

    return step, net


def unbounded() -> tuple[list[float], int]:
    """What a step of the chain returns without a budget, and the bytes that it takes."""
    clear_programs()
    return chain()[0]().tolist(), planned()


def test_what_cannot_fit_is_refused_with_what_would() -> None:
    expected, _ = unbounded()
    step, _ = chain()
    with metaop.memory_budget("1 KiB"), pytest.raises(MemoryBudgetError) as caught:
        step().tolist()
    message = str(caught.value)
    least = re.search(r"fix: set a budget of at least ([0-9.]+ M?B)", message)
    assert least is not None and "its budget is 1024 B" in message
    clear_programs()
    with metaop.memory_budget(least[1]):
        assert step().tolist() == expected
        assert planned() <= bytes_of(least[1])


def test_the_budget_of_a_captured_function() -> None:
    expected, whole = unbounded()
    step, _ = chain()
    captured = metaop.jit(step, memory_budget=whole * 3 // 4)
    clear_programs()
    for _ in range(4):
        assert captured().tolist() == expected
    assert planned() <= whole * 3 // 4
    assert captured.traces == 3, "the first call finds no gradients"


def test_a_function_that_runs_as_it_is_keeps_its_budget() -> None:
    _, whole = unbounded()
    step, _ = chain()
    read = metaop.jit(lambda: step().tolist(), fallback=True, memory_budget=whole * 3 // 4)
    clear_programs()
    read()
    assert planned() <= whole * 3 // 4


def test_a_captured_function_has_a_program_for_each_budget() -> None:
    expected, whole = unbounded()
    step, _ = chain()
    captured = metaop.jit(step)
    for _ in range(3):
        captured()
    clear_programs()
    with metaop.memory_budget(whole * 3 // 4):
        assert captured().tolist() == expected
        assert planned() <= whole * 3 // 4


def test_the_budget_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    expected, whole = unbounded()
    monkeypatch.setenv("METAOP_MEMORY_BUDGET", f"{whole * 3 // 4}")
    clear_programs()
    found = chain()[0]().tolist()
    assert found == expected and planned() <= whole * 3 // 4
    with metaop.memory_budget(None):
        found = chain()[0]().tolist()
    assert found == expected and planned() == whole


def test_each_size_has_a_program_of_its_own() -> None:
    with metaop.memory_budget("100MB"):
        for rows in (64, 48, 40):
            chain(rows)[0]().tolist()
    before = specialisation.described()
    with metaop.memory_budget("100MB"):
        chain(56)[0]().tolist()
    assert specialisation.described() == before
    assert not any(one.trial for one in executor._programs.values())


def test_a_loop_reads_what_is_made_again() -> None:
    """The values before a loop wait for its gradient, and are made anew for it."""

    def run() -> tuple[list[float], int]:
        metaop.manual_seed(5)
        weight = (metaop.randn(48, 48) / 8).requires_grad_()
        x = metaop.randn(96, 48)
        weight.detach().numpy(), x.numpy()
        clear_programs()
        found = F.mish(F.mish(F.mish(x @ weight) @ weight) @ weight)
        last, _ = metaop.scan(lambda c, y: ((c * y).tanh(), c), metaop.ones(48), found)
        (last.sum() + (found @ weight).square().mean()).backward()
        gradient = weight.grad.flatten().tolist()  # type: ignore[union-attr]
        return gradient, planned()

    expected, whole = run()
    with metaop.memory_budget(whole - 2 * 96 * 48 * 4):
        actual, less = run()
    assert actual == expected
    assert less <= whole - 2 * 96 * 48 * 4


def test_steps_of_iterate_run_one_by_one() -> None:
    weight = metaop.randn(8).requires_grad_()

    @metaop.iterate(iterations=6)
    def step() -> Any:
        weight.grad = None
        loss = (weight * 2).square().sum()
        loss.backward()
        with metaop.no_grad():
            weight.sub_(0.01 * weight.grad)
        return loss.detach()

    with metaop.memory_budget("1MB"), pytest.warns(UserWarning, match="memory budget"):
        losses = [*step().tolist(), *step().tolist()]
    assert losses == sorted(losses, reverse=True)


@pytest.mark.parametrize("size", ["much", "", "-1MB", "5 PB", "inf MB", 0, -3, 1.5])
def test_no_number_of_bytes(size: Any) -> None:
    with pytest.raises(ArgumentError, match="not a number of bytes"), metaop.memory_budget(size):
        pass
    with pytest.raises(ArgumentError, match="not a number of bytes"):
        metaop.jit(lambda: None, memory_budget=size)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("500MB", 500e6), ("1.5 GiB", 1.5 * 2**30), ("2kb", 2000), ("77", 77), ("1_000 B", 1000)],
)
def test_numbers_of_bytes(text: str, expected: float) -> None:
    assert bytes_of(text) == expected


def test_refused_inside_of_a_captured_function() -> None:
    def step(x: Any) -> Any:
        with metaop.memory_budget("1MB"):
            return x + 1

    with pytest.raises(CaptureError, match=r"metaop.jit\(memory_budget"):
        metaop.jit(step)(metaop.ones(2))


def test_refused_by_what_keeps_no_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAOP_BACKEND", "reference")
    with metaop.memory_budget("1MB"), pytest.raises(UnsupportedError, match="reference backend"):
        (metaop.ones(3) + 4.25).tolist()
