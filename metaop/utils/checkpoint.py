"""Checkpointing: parts of a model that are computed again in backward instead of remembered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from metaop.autograd.function import output_of
from metaop.differentiation.entries import Cotangent, TapeEntry
from metaop.differentiation.tape import backward, pass_through
from metaop.errors import ArgumentError
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.generator import get_rng_state, set_rng_state
from metaop.tensor.grad_mode import enable_grad
from metaop.trees import tree_leaves
from metaop.unified_graph.recording import Call, modes, next_sequence
from metaop.utils.selective_checkpoint import (
    CheckpointPolicy,
    SelectiveCheckpointContext,
    create_selective_checkpoint_contexts,
)

__all__ = [
    "CheckpointPolicy",
    "SelectiveCheckpointContext",
    "checkpoint",
    "checkpoint_sequential",
    "create_selective_checkpoint_contexts",
    "get_device_states",
    "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop",
    "set_device_states",
]


def noop_context_fn() -> tuple[Any, Any]:
    """Two context managers that change nothing: `checkpoint`'s default."""
    return nullcontext(), nullcontext()


@contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Whether the second run of a function stops once backward has what it needs.

    The function itself always runs to its end, but what it records is computed only where backward
    needs it, whatever `enable` is. Raises ArgumentError unless that is a truth value.

    >>> x = metaop.ones(2, requires_grad=True)
    >>> with metaop.utils.checkpoint.set_checkpoint_early_stop(False):
    ...     y = metaop.utils.checkpoint.checkpoint(metaop.exp, x, use_reentrant=False)
    """
    _require_truth_value("set_checkpoint_early_stop", enable)
    yield


@contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None) -> Iterator[None]:
    """Whether `checkpoint` compares what both runs of a function record.

    There is no such bookkeeping here, whatever `enabled` is. Raises ArgumentError unless that is a
    truth value or None.

    >>> with metaop.utils.checkpoint.set_checkpoint_debug_enabled(True):
    ...     pass
    """
    _require_truth_value("set_checkpoint_debug_enabled", enabled, None)
    yield


def _require_truth_value(name: str, value: Any, *others: Any) -> None:
    if value not in (True, False, *others):
        raise ArgumentError(f"{name}: {value!r} is no truth value", fix="pass True or False")


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    context_fn: Callable[[], tuple[Any, Any]] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    **kwargs: Any,
) -> Any:
    """`function(*args, **kwargs)`, of which only the arguments are kept until backward.

    Parameters that the function reads get their gradients as always. Random numbers are drawn
    again from the same state unless `preserve_rng_state` is False. `context_fn` returns two context
    managers: the function runs in the first one, and in the second one when it runs again.
    `determinism_check` and `debug` are for PyTorch's bookkeeping, of which there is none.

    Raises ArgumentError for a `determinism_check` that there is not, and for a `context_fn` with
    `use_reentrant=True`, as in PyTorch.

    >>> x = metaop.tensor([1.0, 2.0], requires_grad=True)
    >>> metaop.utils.checkpoint.checkpoint(metaop.exp, x, use_reentrant=False).sum().backward()
    >>> x.grad
    tensor([2.7183, 7.3891])
    """
    if determinism_check not in ("default", "none"):
        raise ArgumentError(
            f"there is no determinism_check {determinism_check!r}", fix='use "default" or "none"'
        )
    if use_reentrant and context_fn is not noop_context_fn:
        raise ArgumentError(
            "checkpoint: context_fn with use_reentrant=True", fix="pass use_reentrant=False"
        )
    if not modes.gradients:
        return function(*args, **kwargs)
    first, again = context_fn()
    segment = _Segment(function, args, kwargs, preserve_rng_state, again)
    started = next_sequence()
    with first:
        results = function(*args, **kwargs)
    outputs = _listed(results)
    places = [k for k, x in enumerate(outputs) if isinstance(x, Tensor) and x.requires_grad]
    if not places:
        return results
    sources = [x.call for x in args if isinstance(x, Tensor) and x.requires_grad]
    leaves, inside = _survey([outputs[k].call for k in places], set(sources), started)
    for call in inside:
        call.requires_grad = False
    hub = Call(None, (), outputs[places[0]].call.type, True)
    hub.tape = TapeEntry(
        function=lambda cotangents: segment.gradients(places, sources, leaves, cotangents),
        sources=(*sources, *leaves),
        outputs=len(places),
        name="CheckpointBackward",
    )
    for position, k in enumerate(places):
        outputs[k] = wrap(output_of(outputs[k].call, hub, position))
    return type(results)(outputs) if isinstance(results, (tuple, list)) else outputs[0]


def _listed(results: Any) -> list[Any]:
    return list(results) if isinstance(results, (tuple, list)) else [results]


class _Segment:
    """A call that is made again in backward, from the state in which it was made first."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Any,
        keep_state: bool,
        context: Any,
    ) -> None:
        self.context = context
        self.function, self.args, self.kwargs = function, args, kwargs
        self.state = get_rng_state() if keep_state else None
        self.casts = modes.casts

    def gradients(
        self,
        places: list[int],
        originals: list[Call],
        leaves: list[Call],
        cotangents: Sequence[Call | None],
    ) -> Sequence[Cotangent | None]:
        """The gradients of the `originals` (arguments) and `leaves`, from those at `places`."""
        copies, arguments = _copied(self.args)
        outputs = self._run(arguments)
        roots = [
            (outputs[k].call, cotangent)
            for k, cotangent in zip(places, cotangents)
            if cotangent is not None
        ]
        sources = [copy.call for copy in copies]
        targets = sources + leaves
        found = backward(
            roots,
            retain_graph=True,
            create_graph=modes.gradients,
            targets=targets,
            accumulate=False,
            is_part=True,
        )
        for source, original in zip(sources, originals):  # for gradients of these gradients
            source.tape = TapeEntry(function=pass_through, sources=(original,))
        return [found.get(call) for call in targets]

    def _run(self, arguments: list[Any]) -> list[Any]:
        later, previous = get_rng_state(), modes.casts
        modes.casts = self.casts
        try:
            if self.state is not None:
                set_rng_state(self.state)
            with enable_grad(), self.context:
                return _listed(self.function(*arguments, **self.kwargs))
        finally:
            modes.casts = previous
            if self.state is not None:
                set_rng_state(later)


def _copied(args: tuple[Any, ...]) -> tuple[list[Tensor], list[Any]]:
    """The arguments with fresh leaves in place of the tensors that require gradients."""
    copies: list[Tensor] = []
    arguments: list[Any] = []
    for value in args:
        if isinstance(value, Tensor) and value.requires_grad:
            value = value.detach().requires_grad_()  # type: ignore[attr-defined]
            copies.append(value)
        arguments.append(value)
    return copies, arguments


def _survey(roots: list[Call], arguments: set[Call], started: int) -> tuple[list[Call], list[Call]]:
    """The leaves that `roots` depend on past the arguments, and the calls recorded since."""
    leaves: list[Call] = []
    inside: list[Call] = []
    seen = set(roots)
    stack = list(roots)
    while stack:
        call = stack.pop()
        if call in arguments:
            continue
        tape = call.tape
        if tape is not None and tape.accumulate is not None:
            leaves.append(call)
            continue
        if call.sequence > started:
            inside.append(call)
        following = call.inputs if tape is None or tape.function is None else tape.sources
        for source in following:
            if source is not None and source.requires_grad and source not in seen:
                seen.add(source)
                stack.append(source)
    return leaves, inside


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """The numbers of the GPUs that tensors among `args` are on, and the random state of each.

    Both lists have the length of the number of these tensors.

    >>> metaop.utils.checkpoint.get_device_states(metaop.ones(1), [2])
    ([], [])
    """
    tensors = [x for x in tree_leaves(args) if isinstance(x, Tensor) and x.device.type == "cuda"]
    return [x.device.index or 0 for x in tensors], [get_rng_state() for _ in tensors]


def set_device_states(
    devices: Sequence[int], states: Sequence[Tensor], *, device_type: str | None = None
) -> None:
    """Continues from what `get_device_states` returned; one random state serves all devices.

    >>> metaop.utils.checkpoint.set_device_states([], [])
    """
    if device_type != "meta":
        for _, state in zip(devices, states):
            set_rng_state(state)


def checkpoint_sequential(
    functions: Any,
    segments: int,
    input: Any,
    use_reentrant: bool | None = None,
    **kwargs: Any,
) -> Any:
    """A Sequential, or a list of functions, in `segments` checkpointed parts.

    The last part keeps its values, because its backward pass comes first; shapes are those of the
    functions.

    >>> layers, x = nn.Sequential(nn.ReLU(), nn.Tanh(), nn.ReLU()), metaop.zeros(2)
    >>> metaop.utils.checkpoint.checkpoint_sequential(layers, 2, x, use_reentrant=False)
    tensor([0., 0.])
    """
    steps = list(functions.children()) if hasattr(functions, "children") else list(functions)
    size = max(1, len(steps) // segments)

    def part(chosen: list[Any]) -> Callable[[Any], Any]:
        def run(value: Any) -> Any:
            for step in chosen:
                value = step(value)
            return value

        return run

    for first in range(0, (segments - 1) * size, size):
        input = checkpoint(
            part(steps[first : first + size]), input, use_reentrant=use_reentrant, **kwargs
        )
    # The last part is remembered: backward begins with it.
    return part(steps[(segments - 1) * size :])(input)
