"""Smaller programs that fail in the same way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

from tests.fuzz.training.compare import Failure, failure
from tests.fuzz.training.program import Operation, Program, Unfit, text
from tests.fuzz.training.worker import Worker

_MOST_TRIALS = 250
_PLAIN = {"loss": ("power", "mse"), "optimizer": ("SGD(parameters, lr=0.1)",)}
# The small values that an option of an operation is tried with.
_SMALL_OPTIONS = {
    "out": (1, 2),
    "kernel": (1, 2, 3),
    "stride": (1,),
    "padding": (0, 1),
    "dilation": (1,),
    "groups": (1,),
    "extra": (0,),
    "mode": ("zeros",),
    "bias": (False,),
    "affine": (False,),
    "hidden": (1, 2),
    "layers": (1,),
    "both": (False,),
    "keep": (False,),
    "heads": (1,),
}


def minimise(program: Program, found: Failure, worker: Worker) -> tuple[Program, Failure]:
    """The smallest program found whose failure has the same kind, and this failure."""
    trials = 0
    shrunk = True
    while shrunk:
        shrunk = False
        for candidate in smaller(program):
            if trials == _MOST_TRIALS:
                return program, found
            trials += 1
            result = _failure(candidate, worker)
            if result is not None and result.kind == found.kind:
                program, found, shrunk = candidate, result, True
                break
    return program, found


def minimise_changes(program: Program, found: Failure, worker: Worker) -> None:
    """Leaves the worker those changes of thresholds only that the failure needs."""
    for path in list(worker.changes or {}):
        changes = worker.changes
        worker.changes = {name: value for name, value in changes.items() if name != path}
        result = _failure(program, worker)
        if result is None or result.kind != found.kind:
            worker.changes = changes


def _failure(program: Program, worker: Worker) -> Failure | None:
    try:
        written = text(program)
    except Unfit:
        return None
    return failure(written, worker)


def smaller(program: Program) -> Iterator[Program]:
    """Programs with one thing less, those that leave most away first."""
    for count in range(1, len(program.batches)):
        yield replace(program, batches=program.batches[:count])
    for operations in _fewer(program.operations):
        yield replace(program, operations=operations)
    yield from _plainer(program)
    for position, extent in enumerate(program.shape):
        for less in {1, 2, extent - 1}:
            if 0 < less < extent:
                shape = (*program.shape[:position], less, *program.shape[position + 1 :])
                yield replace(program, shape=shape)
    for most in (1, 2):
        if max(program.batches) > most:
            yield replace(program, batches=tuple(min(b, most) for b in program.batches))
    for operations in _with_smaller_options(program.operations):
        yield replace(program, operations=operations)


def _plainer(program: Program) -> Iterator[Program]:
    """Programs with one field as most training loops have it."""
    for field in fields(program):
        name, value = field.name, getattr(program, field.name)
        if name in _PLAIN:
            plain = _PLAIN[name]
            known = plain.index(value) if value in plain else len(plain)
            for other in plain[:known]:
                yield replace(program, **{name: other})
        elif name not in ("shape", "operations", "batches", "tokens", "hold_kept"):
            if value != field.default:
                yield replace(program, **{name: field.default})
    if program.hold_kept != "no":
        yield replace(program, hold_kept="no")
    if program.hold_result:
        yield replace(program, hold_result=False)


def _fewer(operations: tuple[Operation, ...]) -> Iterator[tuple[Operation, ...]]:
    """The operations with one less, at any depth, or with a branch for both."""
    for k, one in enumerate(operations):
        before, after = operations[:k], operations[k + 1 :]
        yield (*before, *after)
        for branch in one.branches:
            yield (*before, *branch, *after)
    for k, one in enumerate(operations):
        for side, branch in enumerate(one.branches):
            for less in _fewer(branch):
                branches = (*one.branches[:side], less, *one.branches[side + 1 :])
                changed = replace(one, branches=branches)
                yield (*operations[:k], changed, *operations[k + 1 :])


def _with_smaller_options(operations: tuple[Operation, ...]) -> Iterator[tuple[Operation, ...]]:
    for k, one in enumerate(operations):
        for name, value in one.options:
            for small in _SMALL_OPTIONS.get(name, ()):
                if small == value or _is_smaller(value, small):
                    break
                options = tuple((n, small if n == name else v) for n, v in one.options)
                yield (*operations[:k], replace(one, options=options), *operations[k + 1 :])
        for side, branch in enumerate(one.branches):
            for changed in _with_smaller_options(branch):
                branches = (*one.branches[:side], changed, *one.branches[side + 1 :])
                yield (*operations[:k], replace(one, branches=branches), *operations[k + 1 :])


def _is_smaller(value: Any, other: Any) -> bool:
    """Whether an option is already smaller than another: only whole numbers are compared."""
    return isinstance(value, int) and isinstance(other, int) and value < other
