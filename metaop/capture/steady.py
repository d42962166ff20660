"""Captured calls that find everything where the last one left it, as in a training loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from sys import getrefcount
from typing import Any

from metaop.codegen.backend import Repeatable
from metaop.tensor.core import Tensor
from metaop.unified_graph.recording import Call

_sequence = attrgetter("sequence")
_call = attrgetter("call")
_buffer = attrgetter("buffer")


class _Held:
    """Stands for a tensor, to count how often a value is held that nothing else holds."""

    def __init__(self) -> None:
        self.value = object()


_held = _Held()
_values = [_held.value]
# What getrefcount says of a value that only a tensor (or a call) and a list hold.
HELD_ALONE = next(map(getrefcount, _values))


def are_alone(held: Sequence[Any]) -> bool:
    """Whether nothing but this list and one other object holds each of its elements."""
    return list(map(getrefcount, held)) == [HELD_ALONE] * len(held)


class Steady:
    """A captured call whose tensors keep their values' memory from call to call.

    `targets` are the tensors whose values come first among those of the call and are written where
    they are, `owners` the tensors whose gradients are. Values are known by the numbers of their
    calls: holding the calls themselves would look like a use.
    """

    def __init__(
        self,
        repeatable: Repeatable,
        calls: Sequence[Call],
        targets: Sequence[Tensor],
        owners: Sequence[Tensor],
    ) -> None:
        self._repeatable = repeatable
        self._sequences = list(map(_sequence, calls))
        self._targets = targets
        self._owners = owners
        self._gradients = [owner._grad.call.sequence for owner in owners]  # type: ignore[union-attr]
        self._alone = [HELD_ALONE] * len(targets)

    def values(self, calls: Sequence[Call]) -> list[Any] | None:
        """The memory of the values, unless something was replaced or is held by others."""
        count, known = len(self._targets), self._sequences
        if list(map(_sequence, calls))[: len(known)] != known:
            return None
        if list(map(getrefcount, calls))[:count] != self._alone:
            return None
        values = list(map(_buffer, calls))
        if list(map(getrefcount, values))[:count] != self._alone or None in values:
            return None
        return values if self._gradients_are_alone() else None

    def _gradients_are_alone(self) -> bool:
        found = [owner._grad for owner in self._owners]
        if True in [gradient is None for gradient in found] or not are_alone(found):
            return False
        calls = list(map(_call, found))
        if list(map(_sequence, calls)) != self._gradients or not are_alone(calls):
            return False
        return are_alone(list(map(_buffer, calls)))

    def run(self, arguments: Sequence[Any], undo: Callable[[], None] | None) -> Mapping[int, Any]:
        """Runs the program, or with `undo` has it run; the results that were made anew."""
        made = self._repeatable.run(arguments, undo)
        for tensor in self._targets:
            tensor._writes += 1
        return made

    def takes(self, arguments: Sequence[Any]) -> bool:
        """Whether the arguments that every call brings are of the kind that they were."""
        return self._repeatable.takes(arguments)
