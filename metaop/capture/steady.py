"""Captured calls that find everything as the last call left it, as in a training loop."""

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
    """A stand-in for a tensor, to count the references to a value that nothing else holds."""

    def __init__(self) -> None:
        self.value = object()


_held = _Held()
_values = [_held.value]
# What getrefcount returns for a value that only a tensor (or a call) and a list hold.
HELD_ALONE = next(map(getrefcount, _values))


def are_alone(held: Sequence[Any]) -> bool:
    """Whether nothing but this list and one other object holds each of its elements."""
    return list(map(getrefcount, held)) == [HELD_ALONE] * len(held)


class Steady:
    """A captured call whose tensors keep their values' memory from call to call.

    `targets` are the tensors whose values come first among those of the call and are overwritten in
    place; `owners` are those whose gradients are. Values are identified by the numbers of their
    calls, because references to the calls themselves would count as uses.
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
        """The memory of the values, unless something was replaced or has other references."""
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
        """Runs the program, asynchronously with `undo`; returns the results in new memory."""
        made = self._repeatable.run(arguments, undo)
        for tensor in self._targets:
            tensor._writes += 1
        return made

    def takes(self, arguments: Sequence[Any]) -> bool:
        """Whether the arguments that change with each call have the same kinds as before."""
        return self._repeatable.takes(arguments)
