"""Loops and choices stay loops and choices in a file, for all sizes and lengths."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from metaop import nn
from metaop.errors import CheckpointError, ExportError
from metaop.export.container import as_read
from metaop.export.program import Program
from metaop.utils._pytree import tree_leaves
from tests.export.test_program import same


class Chosen(nn.Module):
    """A choice between two layers, whose parameters the branches close over."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        def other(x: metaop.Tensor) -> metaop.Tensor:
            return self.second(x).tanh()

        return metaop.cond(x.sum() > 0, lambda x: self.first(x).relu(), other, (x,))


class Recurrent(nn.Module):
    """A scan whose step closes over a parameter, looks up its position and chooses."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(metaop.randn(4, 4) * 0.3)

    def forward(self, x: metaop.Tensor) -> Any:
        def step(state: Any, row: metaop.Tensor) -> Any:
            hidden, count = state
            hidden = (hidden @ self.weight + row).tanh()
            kept = metaop.cond(row.sum() > 0, lambda h: h * 2, lambda h: h.sin(), (hidden,))
            return (hidden, count + 1), (kept, x[count, 0])

        start = (metaop.zeros(x.shape[1], 4), metaop.tensor(0))
        return metaop.scan(step, start, x, reverse=True)


def rows_of_rows(x: metaop.Tensor) -> metaop.Tensor:
    """A loop in a loop, the inner one as long as the rows."""

    def row(total: metaop.Tensor, values: metaop.Tensor) -> Any:
        last, sums = metaop.scan(lambda c, v: (c + v, c * v), total, values)
        return last / 2, sums

    return metaop.scan(row, metaop.tensor(0.0), x[:, :, 0])[1]


def doubled(x: metaop.Tensor) -> Any:
    def small(y: metaop.Tensor, count: metaop.Tensor) -> metaop.Tensor:
        return y.sum() < 50

    x = x.abs() + 0.1
    return metaop.while_loop(small, lambda y, count: (y * 2, count + 1), (x, metaop.tensor(0)))


def powers(x: metaop.Tensor) -> metaop.Tensor:
    return metaop.fori_loop(0, 5, lambda i, y: y * x + i, metaop.ones_like(x))


FORMS: dict[str, Callable[[], Any]] = {
    "cond": Chosen,
    "scan": Recurrent,
    "nested": lambda: rows_of_rows,
    "while": lambda: doubled,
    "for": lambda: powers,
    "map": lambda: lambda x: metaop.map(lambda row: row.softmax(-1).sum(0), x),
    "lstm": lambda: nn.LSTM(4, 5).eval(),
    "gru": lambda: nn.GRU(4, 5, num_layers=2, bidirectional=True).eval(),
}


@pytest.mark.parametrize("name", FORMS)
def test_all_lengths_and_sizes(name: str, tmp_path: Path) -> None:
    function, example = FORMS[name](), metaop.randn(6, 3, 4)
    if name == "cond":
        example = example[0]
    dynamic = [{0: "length", 1: "rows"}] if name != "cond" else [{0: "rows"}]
    metaop.export(function, example, tmp_path / "m.mo", dynamic=dynamic)
    program = metaop.load_program(tmp_path / "m.mo")
    shapes = [(6, 3, 4), (20, 2, 4), (9, 7, 4), (2, 5, 4), (1, 5, 4), (7, 1, 4), (1, 1, 4)]
    # The scan reads position 1 of its stack.
    for shape in shapes[:4] if name == "scan" else shapes:
        x = metaop.randn(*shape[-example.ndim :])
        for given in (x, -x):
            both = zip(tree_leaves(program(given)), tree_leaves(function(given)), strict=True)
            for found, wanted in both:
                same(found, wanted)


def test_files_and_time_do_not_grow_with_the_length(tmp_path: Path) -> None:
    sizes = []
    for length in (10, 1000):
        lstm = nn.LSTM(3, 5)
        metaop.export(lstm.eval(), metaop.rand(length, 2, 3), tmp_path / f"{length}.mo")
        sizes.append((tmp_path / f"{length}.mo").stat().st_size)
    assert sizes[1] - sizes[0] < 200


def test_gradients_and_second_ones_through_a_loaded_loop(tmp_path: Path) -> None:
    net = Recurrent()
    metaop.export(net, metaop.randn(5, 3, 4), tmp_path / "m.mo", dynamic=[{0: "length"}])
    program, x = metaop.load_program(tmp_path / "m.mo"), metaop.randn(8, 3, 4)

    def loss(function: Any) -> Any:
        def of(x: metaop.Tensor) -> metaop.Tensor:
            (hidden, _), (kept, _) = function(x)
            return (hidden**2).sum() + kept.sum()

        return of

    def slope(function: Any) -> Any:
        return lambda x: (metaop.func.grad(loss(function))(x) ** 2).sum()

    for derive in (loss, slope):
        same(metaop.func.grad(derive(program))(x), metaop.func.grad(derive(net))(x))


def test_a_loop_as_long_as_what_it_skips(tmp_path: Path) -> None:
    """A length of zero has another graph: the file refuses it."""

    def skipping(x: metaop.Tensor) -> metaop.Tensor:
        return metaop.scan(lambda c, v: (c + v, c), metaop.tensor(0.0), x[2:])[0]

    metaop.export(skipping, metaop.rand(6), tmp_path / "m.mo", dynamic=[{0: "length"}])
    program, x = metaop.load_program(tmp_path / "m.mo"), metaop.rand(11)
    same(program(x), x[2:].sum())
    with pytest.raises(metaop.errors.ShapeError):
        program(metaop.rand(2))


def test_a_scan_whose_calls_follow_the_length_is_refused(tmp_path: Path) -> None:
    def sums(x: metaop.Tensor) -> metaop.Tensor:
        return metaop.associative_scan(metaop.add, x, 0)

    with pytest.raises(ExportError, match="name fewer axes in dynamic"):
        metaop.export(sums, metaop.rand(12), tmp_path / "m.mo", dynamic=[{0: "length"}])


def loop_of(content: Any) -> Any:
    return next(node for node in content["nodes"] if node["op"] == "loop")


def changed(**fields: Any) -> Callable[[Any], None]:
    return lambda content: loop_of(content).update(fields)


def result(**fields: Any) -> Callable[[Any], None]:
    def change(content: Any) -> None:
        next(node for node in content["nodes"] if node["op"] == "result").update(fields)

    return change


def read_a_loop(content: Any) -> None:
    """A value is computed from a loop, which is none."""
    position = content["nodes"].index(loop_of(content))
    record = {"op": "elementwise", "function": "neg", "in": [position]}
    content["nodes"].append({**record, "dtype": "float32", "shape": [4]})


def nested_without_end(content: Any) -> None:
    loop = loop_of(content)
    for _ in range(20):
        inner = {**loop, "in": list(range(1, 1 + len(loop["in"])))}
        heads = [{"op": "input", "number": k} for k in range(1 + len(loop["in"]))]
        loop = {**loop, "nodes": [*heads, inner]}
    loop_of(content).update(loop)


def other_type(content: Any) -> None:
    """What a step hands on has another shape than what the first one is given."""
    loop = loop_of(content)
    loop["nodes"].append({"op": "constant", "bits": "00000000", "dtype": "float32", "shape": [7]})
    loop["carried"][0] = len(loop["nodes"]) - 1


HOSTILE: dict[str, tuple[Callable[[Any], None], str]] = {
    "no steps": (changed(length=0), "no steps|must be"),
    "a negative length": (changed(length=-2), "none of -1"),
    "more steps than slices": (changed(length=1000), r"must be \[1000\]"),
    "no end": (changed(length=-1), "loop without an end|must be"),
    "an end that is no truth": (changed(guarded=True, stacked=[]), "no truth value"),
    "stacks that end early": (changed(guarded=True), "no truth value|undefined|early"),
    "a flag that is code": (changed(reverse="eval"), "no truth value"),
    "operands too few": (changed(sliced=[]), "does not fit its operands"),
    "a weight inside": (
        changed(nodes=[{"op": "weight", "number": 0}]),
        "no weight 0|does not exist",
    ),
    "a result that is none": (result(number=99), "no result 99"),
    "a negative result": (result(number=-1), "no result -1"),
    "a result of a value": (result(of=0), "is no loop"),
    "a result of what comes": (result(of=10**6), "does not exist yet"),
    "a result of another shape": (result(shape=[1, 2, 3]), "must be"),
    "a loop as a value": (read_a_loop, "a loop and no value"),
    "loops without end": (nested_without_end, "too many others|damaged"),
    "a carry of another shape": (other_type, "must be"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_loops(name: str, tmp_path: Path) -> None:
    def sums(x: metaop.Tensor) -> Any:
        return metaop.scan(lambda c, v: (c + v, c * v), metaop.zeros(4), x)

    program = metaop.export(sums, metaop.rand(6, 4), tmp_path / "m.mo")
    tamper, message = HOSTILE[name]
    content = copy.deepcopy(program.content)
    tamper(content)
    assert content != program.content
    with pytest.raises(CheckpointError, match=message):
        Program(as_read(content), program.weights, "m.mo")


def test_a_stack_of_a_loop_that_may_end_early_is_refused(tmp_path: Path) -> None:
    """Its last elements would be memory that nobody has written."""

    def sums(x: metaop.Tensor) -> Any:
        flag = metaop.tensor(True)
        return metaop.scan(lambda c, v: ((c[0], c[1] + v), c[1] * v), (flag, metaop.zeros(4)), x)

    program = metaop.export(sums, metaop.rand(6, 4), tmp_path / "m.mo")
    content = copy.deepcopy(program.content)
    loop_of(content)["guarded"] = True
    with pytest.raises(CheckpointError, match="early"):
        Program(as_read(content), program.weights, "m.mo")


def test_garbled_loops_are_legal_or_refused(tmp_path: Path) -> None:
    program = metaop.export(Recurrent(), metaop.rand(5, 2, 4), tmp_path / "m.mo")
    random, values = np.random.default_rng(0), (-1, 0, 3, 10**9, True, "x", None, [], {})
    places: list[tuple[Any, Any]] = []

    def visit(value: Any) -> None:
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            places.append((value, key))
            if isinstance(inner, (dict, list)):
                visit(inner)

    content = copy.deepcopy(program.content)
    visit(loop_of(content))
    for number in random.choice(len(places), 150, replace=False):
        holder, key = places[number]
        before = holder[key]
        holder[key] = values[random.integers(len(values))]
        with contextlib.suppress(CheckpointError):
            Program(as_read(content), program.weights, "m.mo")
        holder[key] = before
