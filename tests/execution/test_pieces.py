"""Lines that bring ever new structures run call by call, with the values of whole programs."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch

import metaop
from metaop.errors import MetaopError
from metaop.execution import executor, specialisation
from metaop.execution.pieces import Pieces
from metaop.inspect import profile
from metaop.unified_graph.cut import Subgraph


@pytest.fixture(autouse=True)
def changing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("METAOP_PIECES", "changing")
    executor.clear_programs()
    yield
    executor.clear_programs()


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many calls each program has that was made for several."""
    made: list[int] = []
    compile_whole = specialisation.compile_subgraph

    def compiled(subgraph: Subgraph) -> Any:
        if len(subgraph.operators) > 1:
            made.append(len(subgraph.order))
        return compile_whole(subgraph)

    monkeypatch.setattr(specialisation, "compile_subgraph", compiled)
    monkeypatch.setattr(executor, "compile_subgraph", compiled)
    return made


def _tree(rng: random.Random, leaves: int) -> Any:
    if leaves == 1:
        return rng.randrange(9)
    left = rng.randint(1, leaves - 1)
    return _tree(rng, left), _tree(rng, leaves - left)


class TreeModel:
    """A network over trees, and its training, in metaop or in PyTorch."""

    def __init__(self, lib: Any) -> None:
        numbers = np.random.default_rng(0)
        self.lib = lib
        self.table, self.join, self.head = (
            lib.tensor(0.3 * numbers.normal(size=shape), dtype=lib.float32, requires_grad=True)
            for shape in ((9, 6), (12, 6), (6, 3))
        )
        self.parameters = [self.table, self.join, self.head]
        self.optimizer = lib.optim.Adam(self.parameters, lr=0.01)

    def state(self, tree: Any) -> Any:
        if isinstance(tree, int):
            return self.table[tree]
        pair = self.lib.cat([self.state(tree[0]), self.state(tree[1])])
        return (pair @ self.join).tanh()

    def step(self, tree: Any) -> float:
        scores = self.state(tree) @ self.head
        loss = self.lib.nn.functional.cross_entropy(scores[None], self.lib.tensor([1]))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())


def test_trees_train_as_in_pytorch(whole: list[int]) -> None:
    rng = random.Random(0)
    ours, theirs = TreeModel(metaop), TreeModel(torch)
    for leaves in [2, 3, 4, 5, 6] * 4:
        tree = _tree(rng, leaves)
        assert ours.step(tree) == pytest.approx(theirs.step(tree), rel=1e-4)
    for own, other in zip(ours.parameters, theirs.parameters):
        np.testing.assert_allclose(own.detach().numpy(), other.detach().numpy(), atol=1e-5)
    # Some trees are drawn twice; the first structures of the line have programs of their own.
    assert len(whole) <= 2 * specialisation._MOST_ONCE


def test_structures_that_come_again_have_whole_programs(whole: list[int]) -> None:
    rng = random.Random(1)
    trees, model = [_tree(rng, leaves) for leaves in (2, 3, 4)], TreeModel(metaop)
    for _ in range(4):
        for tree in trees:
            model.step(tree)
    for leaves in (5, 6, 7, 8):
        before = len(whole)
        model.step(_tree(rng, leaves))
        assert len(whole) > before


def _changed(steps: int) -> metaop.Tensor:
    x = metaop.arange(4.0)
    for step in range(steps):
        x = (x.sin() if step % 2 else x.cos()) * 0.5
    return x


def _read(x: metaop.Tensor) -> list[float]:
    values: list[float] = x.tolist()
    return values


def test_a_structure_that_has_run_long_enough_gets_a_program(
    whole: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for steps in range(2, 8):
        _read(_changed(steps))
    count = len(whole)
    _read(_changed(12))
    expected = _read(_changed(12))
    assert len(whole) == count
    monkeypatch.setattr(specialisation.Trial, "is_over", property(lambda self: True))
    np.testing.assert_allclose(_read(_changed(12)), expected, rtol=1e-6)
    assert len(whole) == count + 1


def test_lines_whose_programs_cannot_be_made_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(subgraph: Subgraph) -> Any:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(specialisation, "compile_subgraph", refused)
        for steps in range(2, 9):
            with pytest.raises(MemoryError):
                _read(_changed(steps))
    assert _read(_changed(9))


def test_first_steps_in_pieces(whole: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAOP_PIECES", "first")
    expected = _read(_changed(20))
    assert not whole
    monkeypatch.setattr(specialisation.Trial, "is_over", property(lambda self: True))
    np.testing.assert_allclose(_read(_changed(20)), expected, rtol=1e-6)
    assert len(whole) == 1


def test_values_live_no_longer_than_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAOP_PIECES", "always")
    x = metaop.ones(64)
    y = x.exp() + 1
    reference = weakref.ref(y.call)
    assert y.sum().item() == pytest.approx(64 * (np.e + 1))
    del x, y
    gc.collect()
    assert reference() is None


PROGRAMS: dict[str, Any] = {
    "several results": lambda lib, x: [*x.sort(1), x.max(1).values + x.topk(2, 1)[0].sum(1)],
    "many operands": lambda lib, x: [lib.cat([x * k for k in range(12)] + [x, x, x.exp()], 1)],
    "views": lambda lib, x: [x.t()[1:], x.reshape(-1)[::2], (x[0] + x[:, :1]).squeeze()],
    "writes": lambda lib, x: (lambda y: [y[1].fill_(3), y, y.add_(x)])(x.clone()),
    "numbers": lambda lib, x: [x * 2 + 3, x.pow(2.5).clamp(max=1.5), lib.arange(3) + x.sum()],
    "gradients of gradients": lambda lib, x: lib.autograd.grad(
        lib.autograd.grad((x.exp() * x).sum(), x, create_graph=True)[0].square().sum(), x
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_all_in_pieces(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAOP_PIECES", "always")
    values = np.random.default_rng(0).random((5, 7)).astype(np.float32)
    found = []
    for lib in (metaop, torch):
        grad = nullcontext() if "gradients" in name else lib.no_grad()
        with grad:
            x = lib.tensor(values, requires_grad=True)
            found.append([one.detach().numpy() for one in PROGRAMS[name](lib, x)])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_random_numbers_are_those_of_whole_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for pieces in ("never", "always"):
        monkeypatch.setenv("METAOP_PIECES", pieces)
        executor.clear_programs()
        metaop.manual_seed(3)
        found.append((metaop.rand(4, 5) + metaop.nn.functional.dropout(metaop.ones(4, 5))).tolist())
    assert found[0] == found[1]


def test_a_refused_value_names_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAOP_PIECES", "always")
    places = metaop.tensor([1, 9])
    picked = (metaop.ones(3).exp() * 2)[places] + 1
    with pytest.raises(MetaopError, match="test_pieces.py"):
        picked.tolist()


def test_captured_functions_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAOP_PIECES", "always")
    square = metaop.jit(lambda x: (x * x).exp() + 1)
    for k in range(4):
        x = metaop.full((3,), float(k) / 4)
        np.testing.assert_allclose(square(x).numpy(), np.exp((k / 4) ** 2) + 1, rtol=1e-6)
    assert not any(isinstance(one.program, Pieces) for one in executor._programs.values())


def test_a_profile_names_the_lines_of_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAOP_PIECES", "always")
    x = metaop.rand(300, 300)
    x.sum().item()
    with profile() as found:
        y = x.exp()
        y.sum().item()
    assert len([run for run in found.runs if run.kernels]) == 2


def test_reads_within_an_optimizer_are_apart() -> None:
    """One line of the user's program; LBFGS reads at many places, with a structure at each."""
    weight = metaop.nn.Parameter(metaop.arange(5.0))
    # A history of one has few structures at each place.
    optimizer = metaop.optim.LBFGS([weight], lr=0.01, max_iter=6, history_size=1)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (weight**4 + weight).sum()
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    families = specialisation._families.values()
    assert families and not any(family.in_pieces for family in families)


class Writer:
    """Attention over all words written so far, or the last ones, in metaop or in PyTorch."""

    def __init__(self, lib: Any, window: int) -> None:
        numbers = np.random.default_rng(2)
        self.lib, self.window = lib, window
        self.table, self.inside, self.head = (
            lib.tensor(numbers.normal(size=shape), dtype=lib.float32)
            for shape in ((11, 8), (8, 24), (8, 11))
        )

    def write(self, words: Any, count: int) -> list[list[int]]:
        functions = self.lib.nn.functional
        with self.lib.no_grad():
            for _ in range(count):
                x = self.table[words[:, -self.window :] if words.shape[1] > self.window else words]
                for _ in range(2):
                    queries, keys, values = (functions.layer_norm(x, (8,)) @ self.inside).chunk(
                        3, 2
                    )
                    scores = queries @ keys.transpose(1, 2) / 8**0.5
                    x = x + functions.gelu(scores.softmax(2) @ values)
                chosen = (x[:, -1] @ self.head).argmax(1, keepdim=True)
                words = self.lib.cat([words, chosen], 1)
        found: list[list[int]] = words.tolist()
        return found


@pytest.mark.parametrize("window", [14, 100])
def test_steps_that_grow_share_programs(whole: list[int], window: int) -> None:
    ours, theirs = Writer(metaop, window), Writer(torch, window)
    for count in (30, 37):
        first = [[1, 2, 3], [4, 5, 6]]
        words = ours.write(metaop.tensor(first), count)
        assert words == theirs.write(torch.tensor(first), count)
        # Each is a part of a few steps; all steps together have hundreds of calls.
        assert whole and max(whole) < 120
        assert len(whole) <= 8


def test_growing_steps_that_have_run_long_enough_are_one_program(
    whole: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(metaop, 100)
    expected = writer.write(metaop.tensor([[1, 2, 3]]), 24)
    count = len(whole)
    monkeypatch.setattr(specialisation.Trial, "is_over", property(lambda self: True))
    assert writer.write(metaop.tensor([[1, 2, 3]]), 24) == expected
    assert len(whole) == count + 1 and whole[-1] > 400
