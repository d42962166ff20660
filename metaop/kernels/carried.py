"""Which variables a loop carries from one iteration to the next, and how."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from metaop.kernels.memory import Place
from metaop.unified_graph.dtype import DType

_OPERATORS: dict[type[ast.AST], str] = {ast.Add: "add", ast.Sub: "add", ast.Mult: "mul"}
_EXTREMES = {"maximum": "max", "minimum": "min"}
# Maps a call to its word in the kernel language.
WordOf = Callable[[ast.Call], "str | None"]


class Gathering(NamedTuple):
    """The statement `name = name ⊕ operand`; a subtraction adds the negative operand."""

    name: str
    reducer: str
    operand: ast.expr
    is_negative: bool = False


class Cell:
    """A variable that a loop carries from one iteration to the next: one element of scratch."""

    def __init__(self, name: str, place: Place, dtype: DType, weak: bool) -> None:
        self.name = name
        self.place = place
        self.dtype = dtype
        self.weak = weak


class Accumulating:
    """A variable in which the iterations of a loop accumulate a sum, a product or an extreme.

    `initial` is its value before the loop; `dtype` is None until the first operand is known.
    """

    def __init__(self, name: str, reducer: str, initial: Any) -> None:
        self.name = name
        self.reducer = reducer
        self.initial = initial
        self.dtype: DType | None = None


class RetypeError(Exception):
    """Raised when a carried variable has another type than was assumed."""

    def __init__(self, name: str, dtype: DType) -> None:
        super().__init__(name)
        self.name = name
        self.dtype = dtype


def gathering(statement: ast.stmt, word_of: WordOf) -> Gathering | None:
    """The statement as a step of a reduction, if it is one."""
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
        reducer = _OPERATORS.get(type(statement.op))
        negative = isinstance(statement.op, ast.Sub)
        name = statement.target.id
        return Gathering(name, reducer, statement.value, negative) if reducer else None
    if not (isinstance(statement, ast.Assign) and len(statement.targets) == 1):
        return None
    target, value = statement.targets[0], statement.value
    if not isinstance(target, ast.Name):
        return None
    if isinstance(value, ast.BinOp) and type(value.op) in _OPERATORS:
        negative = isinstance(value.op, ast.Sub)
        pairs = [(value.left, value.right), (value.right, value.left)]
        for own, operand in pairs[: 1 if negative else 2]:
            if _is_name(own, target.id):
                return Gathering(target.id, _OPERATORS[type(value.op)], operand, negative)
    if isinstance(value, ast.Call) and len(value.args) == 2:
        reducer = _EXTREMES.get(word_of(value) or "")
        for own, operand in (value.args, value.args[::-1]):
            if reducer and _is_name(own, target.id):
                return Gathering(target.id, reducer, operand)
    return None


def carried(body: Sequence[ast.stmt], known: Iterable[str], word_of: WordOf) -> dict[str, str]:
    """The names in `known` that the body of a loop assigns, and how.

    The value is the reducer if only its steps change the name, "carried" if iterations need the
    value of the previous one, or "own" if every iteration assigns it before reading it.
    """
    assigned = {node.id for node in _names(body) if isinstance(node.ctx, ast.Store)}
    result: dict[str, str] = {}
    for name in known:
        if name not in assigned:
            continue
        if _is_set_first(name, body):
            result[name] = "own"
            continue
        result[name] = _only_reducer(name, body, word_of) or "carried"
    return result


def assigned_in(body: Sequence[ast.stmt]) -> set[str]:
    """All names that a body assigns."""
    return {node.id for node in _names(body) if isinstance(node.ctx, ast.Store)}


def _only_reducer(name: str, body: Sequence[ast.stmt], word_of: WordOf) -> str | None:
    """The reducer of a name that occurs in steps of one reduction and nowhere else."""
    steps = [gathering(node, word_of) for node in _statements(body)]
    own = [(step, s) for step, s in zip(steps, _statements(body)) if step and step.name == name]
    inside = sum(1 if isinstance(statement, ast.AugAssign) else 2 for _, statement in own)
    everywhere = sum(1 for node in _names(body) if node.id == name)
    reducers = {step.reducer for step, _ in own}
    return reducers.pop() if len(reducers) == 1 and inside == everywhere else None


def _is_set_first(name: str, body: Sequence[ast.stmt]) -> bool:
    for statement in body:
        mentions = [node for node in _names([statement]) if node.id == name]
        if not mentions:
            continue
        if not (isinstance(statement, ast.Assign) and len(statement.targets) == 1):
            return False
        target = statement.targets[0]
        return _is_name(target, name) and mentions == [target]
    return False


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _names(body: Sequence[ast.stmt]) -> Iterator[ast.Name]:
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name):
                yield node


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.stmt):
                yield node
