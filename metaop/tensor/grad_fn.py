"""The graph of gradient functions, for those who want to look at it."""

from __future__ import annotations

from typing import Any

from metaop.differentiation.tape import pass_through
from metaop.unified_graph.recording import Call


class GradFn:
    """One recorded call, seen from the backward side.

    `next_functions` lists what it passes gradients to, as (function, output index) pairs; leaves
    appear as `AccumulateGrad`.
    """

    def __init__(self, call: Call) -> None:
        self._call, self._index = call, call.index
        tape = call.tape
        if tape is not None and tape.function is pass_through:
            # A result of a user's function stands for the function, to which its tape passes on.
            self._call, self._index = tape.sources[0], tape.index

    def name(self) -> str:
        """`MulBackward0`-like: the recorded operator, or `MyFunctionBackward`."""
        call = self._call.maker
        if call.tape is not None and call.tape.accumulate is not None:
            return "AccumulateGrad"
        if call.tape is not None and call.tape.function is not None and call.tape.name:
            return call.tape.name
        if call.signature is None:
            return "FunctionBackward0"
        words = call.signature.composite.name.replace(".", "_").split("_")
        return "".join(word[:1].upper() + word[1:] for word in words) + "Backward0"

    @property
    def next_functions(self) -> tuple[tuple[GradFn | None, int], ...]:
        """Where gradients go next; (None, 0) for inputs that need none."""
        call = self._call
        if call.tape is not None and call.tape.accumulate is not None:
            return ()
        call = call.maker
        function = call.tape is not None and call.tape.function is not None
        sources = call.tape.sources if function else call.inputs
        found = [GradFn(x) if x is not None and x.requires_grad else None for x in sources]
        return tuple([(None, 0) if x is None else (x, x._index) for x in found])

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, GradFn) and other._call is self._call

    def __hash__(self) -> int:
        return hash(self._call)

    def __repr__(self) -> str:
        return f"<{self.name()} object>"
