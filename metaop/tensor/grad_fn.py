"""The graph of gradient functions, for those who want to look at it."""

from __future__ import annotations

from typing import Any

from metaop.unified_graph.recording import Call


class GradFn:
    """One recorded call, seen from the backward side.

    `next_functions` lists what it passes gradients to, as (function, output index) pairs; leaves
    appear as `AccumulateGrad`.
    """

    def __init__(self, call: Call) -> None:
        self._call = call

    def name(self) -> str:
        """`MulBackward0`-like: the recorded operator."""
        call = self._call
        if call.signature is None and call.inputs:
            call = call.inputs[0]
        if call.tape is not None and call.tape.accumulate is not None:
            return "AccumulateGrad"
        if call.tape is not None and call.tape.function is not None:
            return call.tape.name or "Backward"
        if call.signature is None:
            return "Backward"
        words = call.signature.composite.name.replace(".", "_").split("_")
        return "".join(word[:1].upper() + word[1:] for word in words) + "Backward0"

    @property
    def next_functions(self) -> tuple[tuple[GradFn | None, int], ...]:
        """Where gradients go next; (None, 0) for inputs that need none."""
        call = self._call
        if call.tape is not None and call.tape.accumulate is not None:
            return ()
        if call.signature is None and call.inputs:
            call = call.inputs[0]
        function = call.tape is not None and call.tape.function is not None
        sources = call.tape.sources if function else call.inputs
        return tuple(
            [
                (GradFn(x), x.index) if x is not None and x.requires_grad else (None, 0)
                for x in sources
            ]
        )

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, GradFn) and other._call is self._call

    def __hash__(self) -> int:
        return hash(self._call)

    def __repr__(self) -> str:
        return f"<{self.name()} object>"
