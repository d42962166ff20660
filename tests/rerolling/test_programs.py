"""Loops that Python has written out give the values of their copies, and become loops."""

from __future__ import annotations

import numpy as np
import pytest

import metaop as mo
from metaop import Tensor, rerolling
from metaop.execution import executor
from metaop.operators.repetition import repeat
from metaop.rerolling.program import Rerolled
from metaop.unified_graph.cut import Subgraph, recorder
from tests.rerolling.programs import PROGRAMS, Program

_STEPS = 11


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Rerolled]:
    """The subgraphs with loops that are made."""
    found = []

    def watched(subgraph: Subgraph, whole: bool = False) -> Rerolled | None:
        one = rerolling.rerolled(subgraph, whole)
        found.extend([] if one is None else [one])
        return one

    monkeypatch.setattr(executor, "rerolled", watched)
    return found


def run(program: Program) -> list[np.ndarray]:
    """The values of a program that is compiled anew."""
    executor.clear_programs()
    mo.manual_seed(0)
    return [one.detach().numpy() for one in program(_STEPS)]


def loops_in(made: list[Rerolled]) -> list[int]:
    """The number of loops in each subgraph."""
    return [sum(_is_loop(call) for call in one.subgraph.order) for one in made]


def _is_loop(call: object) -> bool:
    signature = call.signature  # type: ignore[attr-defined]
    return signature is not None and signature.composite is repeat


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_loops_give_the_values_of_their_copies(
    program: Program, made: list[Rerolled], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as context:
        context.setenv("METAOP_REROLL", "0")
        expected = run(program)
    assert not made
    found = run(program)
    assert sum(loops_in(made)) == PROGRAMS[program]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def small(x: Tensor, steps: int) -> Tensor:
    """Elementwise steps."""
    for _ in range(steps):
        x = x * x * 0.5 + 0.1
    return x


def test_values_of_elementwise_steps_stay_in_registers(made: list[Rerolled]) -> None:
    x = mo.rand(1 << 15)
    float(small(x, 20).sum())
    assert not made
    float(small(x[:100], 20).sum())
    assert loops_in(made) == [1]


def test_layers_that_are_made_in_a_loop_own_their_weights(made: list[Rerolled]) -> None:
    layers = [mo.nn.Linear(8, 8) for _ in range(12)]
    float(layers[0].weight.sum())
    assert not made


def test_states_of_all_steps_share_one_stack() -> None:
    executor.clear_programs()
    w = mo.rand(16, 16)
    h = mo.rand(16, 16)
    w.tolist(), h.tolist()
    states = []
    for _ in range(20):
        h = mo.tanh(h @ w)
        states.append(h)
    addresses = [one.data_ptr() for one in states]
    assert set(np.diff(addresses[:-1])) == {16 * 16 * 4}
    # A write through one of them changes no other.
    kept = states[3].clone()
    states[4].zero_()
    states[5].numpy()[...] = 1
    assert mo.equal(states[3], kept) and float(states[4].sum()) == 0
    assert not mo.equal(states[6], mo.ones(16, 16))


def test_a_stack_and_the_states_in_it_have_memory_of_their_own(made: list[Rerolled]) -> None:
    w, h = mo.rand(16, 16), mo.rand(16, 16)
    for leaf in (w, h):
        leaf.tolist()
    executor.clear_programs()
    states = []
    for _ in range(20):
        h = mo.tanh(h @ w)
        states.append(h)
    stack = mo.stack(states)
    kept = stack.clone()
    stack.numpy()[...] = 7
    assert loops_in(made) == [1]
    assert all(mo.equal(one, other) for one, other in zip(states, kept))
    states[5].numpy()[...] = 8
    assert float(stack.max()) == 7 and float(states[6].max()) < 2


def test_joined_rows_of_an_argument_have_memory_of_their_own(made: list[Rerolled]) -> None:
    x, w, h = mo.rand(20, 16, 16), mo.rand(16, 16), mo.zeros(16, 16)
    for leaf in (x, w, h):
        leaf.tolist()
    executor.clear_programs()
    rows = list(x)
    for row in rows:
        h = mo.tanh(h @ w + row)
    stack = mo.stack(rows)
    kept = x.clone()
    stack.numpy()[...] = 7
    assert loops_in(made) == [1]
    assert mo.equal(x, kept) and float(h.max()) < 2


def test_joined_rows_of_an_earlier_program_have_memory_of_their_own(made: list[Rerolled]) -> None:
    x, w, h = mo.rand(16, 20, 16), mo.rand(16, 16), mo.zeros(16, 16)
    for leaf in (x, w, h):
        leaf.tolist()
    executor.clear_programs()
    rows = list(x.unbind(1))
    for row in rows:
        h = mo.tanh(h @ w + row)
    h.tolist()
    for row in rows:
        h = mo.tanh(h @ w - row)
    stack = mo.stack(rows)
    kept = x.clone()
    stack.numpy()[...] = 7
    assert loops_in(made) == [1, 1]
    assert all(mo.equal(row, kept[:, t]) for t, row in enumerate(rows)) and float(h.max()) < 2


def test_an_error_names_the_line_within_the_steps() -> None:
    executor.clear_programs()
    table, index, h = mo.rand(5, 4), mo.tensor([0, 7]), mo.zeros(2, 4)
    for _ in range(10):
        h = mo.tanh(h @ mo.rand(4, 4)) + table[index]
    with pytest.raises(IndexError, match=r"test_programs\.py"):
        h.tolist()


def test_more_steps_than_may_be_pending(
    made: list[Rerolled], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first part of the steps runs earlier; the gradient reads two stacks of each value."""
    x, w = mo.rand(4, 90, 3, dtype=mo.float64), mo.rand(3, 3, dtype=mo.float64) * 0.5
    for leaf in (x, w.requires_grad_()):
        leaf.tolist()
    gradients = []
    for limit in ("100", "4000"):
        monkeypatch.setenv("METAOP_PENDING_LIMIT", limit)
        monkeypatch.setattr(recorder.own, "room", 0)
        executor.clear_programs()
        h, states = mo.zeros(4, 3, dtype=mo.float64), []
        for t in range(90):
            h = mo.tanh(h @ w + x[:, t])
            states.append(h)
        gradients += mo.autograd.grad(mo.stack(states, 1).pow(2).sum(), w)
    np.testing.assert_allclose(gradients[0].numpy(), gradients[1].numpy(), rtol=1e-10)
    assert len(made) > 2 and sum(loops_in(made)) > 6, loops_in(made)
