"""The graph of gradient functions, for those who want to look at it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metaop.differentiation.entries import Cotangents, Passed, TapeEntry
from metaop.differentiation.tape import origin
from metaop.tensor.gradient_names import gradient_name, represented
from metaop.tensor.handles import HandleInList, RemovableHandle
from metaop.tensor.sparse.tensors import cotangent_of_gradient, wrap_gradient
from metaop.unified_graph.recording import Call

# Gradients as hooks see them: None where none flows.
Gradients = tuple[Any, ...]


class GradFn:
    """One recorded call, seen from the backward side.

    `next_functions` lists what it passes gradients to, as (function, output index) pairs; leaves
    appear as `AccumulateGrad`.
    """

    def __init__(self, call: Call) -> None:
        self._call, self._index = represented(call)

    def name(self) -> str:
        """`MulBackward0`-like: the recorded operator, or `MyFunctionBackward`."""
        return gradient_name(self._call)

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

    def register_prehook(self, fn: Callable[[Gradients], Gradients | None]) -> RemovableHandle:
        """Calls `fn(grad_outputs)` before this passes gradients on; what it returns replaces them.

        The gradients are those of all outputs, None for one that has none.
        """
        entry, outputs = self._entry()

        def before(cotangents: Cotangents) -> Cotangents:
            replaced = fn(tuple(_shown(cotangents.get(k)) for k in range(outputs)))
            if replaced is None:
                return cotangents
            return {k: cotangent_of_gradient(x) for k, x in enumerate(replaced) if x is not None}

        entry.before.append(before)
        return HandleInList(entry.before, before)

    def register_hook(
        self, fn: Callable[[Gradients, Gradients], Gradients | None]
    ) -> RemovableHandle:
        """Calls `fn(grad_inputs, grad_outputs)`; what it returns replaces the gradients of inputs.

        The inputs are those of `next_functions`; a leaf has none, and adds its gradient first.
        """
        entry, outputs = self._entry()
        if entry.accumulate is not None:

            def after(gradient: Any) -> None:
                fn((), (wrap_gradient(gradient),))

            entry.after.append(after)
            return HandleInList(entry.after, after)

        def passed(gradients: Passed, cotangents: Cotangents) -> Passed:
            given = tuple(_shown(cotangents.get(k)) for k in range(outputs))
            replaced = fn(tuple(_shown(x) for x in gradients), given)
            if replaced is None:
                return gradients
            return [None if x is None else cotangent_of_gradient(x) for x in replaced]

        entry.passed.append(passed)
        return HandleInList(entry.passed, passed)

    def _entry(self) -> tuple[TapeEntry, int]:
        """The tape entry of the call, and the number of its outputs."""
        call = origin(self._call).maker
        if call.tape is None:
            call.tape = TapeEntry()
        count = call.tape.outputs if call.signature is None else call.signature.result_count
        return call.tape, count

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, GradFn) and other._call is self._call

    def __hash__(self) -> int:
        return hash(self._call)

    def __repr__(self) -> str:
        return f"<{self.name()} object>"


def _shown(gradient: Any) -> Any:
    return None if gradient is None else wrap_gradient(gradient)
