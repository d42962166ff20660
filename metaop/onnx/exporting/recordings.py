"""Records a network for several sizes of its dynamic axes, without computing anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import metaop
from metaop.errors import ArgumentTypeError, MetaopError, UnsupportedError
from metaop.execution.executor import realize
from metaop.onnx.exporting.sizes import Binding, Sizes, bindings_of
from metaop.tensor.core import Tensor
from metaop.unified_graph.recording import Call
from metaop.unified_graph.tensor_type import TensorType
from metaop.unified_graph.tracing import Trace, state

# The name of each dynamic size, by input and axis.
DynamicAxes = Mapping[str, Mapping[int, str]]


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors in nested sequences and dicts, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from tensors_in(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from tensors_in(one)
    elif value is not None and not isinstance(value, (bool, int, float, str)):
        raise ArgumentTypeError(f"a network returns or takes a {type(value).__name__}")


def replaced(value: Any, tensors: Iterator[Tensor]) -> Any:
    """The same structure with other tensors."""
    if isinstance(value, Tensor):
        return next(tensors)
    if isinstance(value, Mapping):
        return {key: replaced(one, tensors) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        parts = [replaced(one, tensors) for one in value]
        return type(value)(*parts) if hasattr(value, "_make") else type(value)(parts)
    return value


class Recording(NamedTuple):
    """Inputs and outputs of a network for one size of each dynamic axis."""

    inputs: list[Call]
    outputs: list[Call]
    order: list[Call]


def recorded(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    names: Sequence[str],
    axes: DynamicAxes,
) -> tuple[list[Recording], Sizes]:
    """One recording per binding of the dynamic axes, enough to distinguish sizes."""
    given = list(tensors_in([args, kwargs]))
    # Gives values to parameters that are only drawn so far: they are constants of the file.
    realize()
    extents: dict[str, int] = {}
    for name, tensor in zip(names, given):
        for axis, symbol in axes.get(name, {}).items():
            extents.setdefault(symbol, max(1, tensor.shape[axis]))
    first: Exception | None = None
    for choose in _CHOICES if extents else _CHOICES[:1]:
        bindings = bindings_of({symbol: choose(extent) for symbol, extent in extents.items()})
        try:
            found = [
                _recorded_once(function, args, kwargs, given, names, axes, binding)
                for binding in bindings
            ]
        except (MetaopError, AssertionError, ValueError, IndexError) as error:
            # A network may have a maximum size, or sizes that must be divisible.
            first = first or error
            continue
        counts = {len(one.order) for one in found}
        if len(counts) == 1:
            return found, Sizes(bindings)
        first = first or UnsupportedError(
            f"the network records {' or '.join(map(str, sorted(counts)))} operators, depending on "
            "the sizes of the dynamic axes",
            fix="remove the axis that a loop or a condition depends on from dynamic_axes",
        )
    assert first is not None
    raise first


# Sizes to record with, from that of the example: never 1, and rarely equal to other sizes.
_CHOICES: tuple[Callable[[int], tuple[int, int, int]], ...] = (
    lambda extent: (7 * extent, 11 * extent, 13 * extent),
    lambda extent: (2 * extent, 3 * extent, 5 * extent),
    lambda extent: (extent, extent + 1, extent + 2),
    lambda extent: (extent, extent - 1, extent - 2) if extent > 3 else (2, 3, 5),
)


def _recorded_once(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    given: Sequence[Tensor],
    names: Sequence[str],
    axes: DynamicAxes,
    binding: Binding,
) -> Recording:
    tensors = [_resized(one, axes.get(name, {}), binding) for name, one in zip(names, given)]
    inner_args, inner_kwargs = replaced([args, dict(kwargs)], iter(tensors))
    return _record(function, inner_args, inner_kwargs, tensors)


def _resized(tensor: Tensor, axes: Mapping[int, str], binding: Binding) -> Tensor:
    """A tensor with other sizes and values of the same kind, which must not be read."""
    found: Any = tensor.detach()
    for axis, symbol in axes.items():
        places = metaop.arange(binding[symbol]) % max(1, tensor.shape[axis])
        found = found.index_select(axis, places.to(device=tensor.device))
    return found.clone()


def _refuse() -> None:
    raise UnsupportedError(
        "the network reads a value that it computes, so its graph may depend on data",
        fix="use metaop.where instead of a condition on values; sizes may be read",
    )


def _record(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    inputs: Sequence[Tensor],
) -> Recording:
    calls = [tensor.call for tensor in inputs]
    trace = Trace(_refuse)
    state.trace = trace
    try:
        with metaop.no_grad():
            outputs = list(tensors_in(function(*args, **kwargs)))
            results = [tensor.call for tensor in outputs]
    finally:
        state.trace = None
    if trace.reasons:
        raise UnsupportedError(f"the network cannot be exported: {trace.reasons[0]}")
    return Recording(calls, results, _order(results, set(calls)))


def _order(outputs: Sequence[Call], given: set[Call]) -> list[Call]:
    """All calls that the outputs need, operands first, in an order independent of sizes.

    Calls that computed the inputs are excluded.
    """
    found: dict[Call, None] = {}
    for output in outputs:
        stack = [(output, 0)]
        while stack:
            call, position = stack.pop()
            if call in found:
                continue
            is_made = call.buffer is None and call not in given
            if is_made and position < len(call.inputs):
                stack += [(call, position + 1), (call.inputs[position], 0)]
            else:
                found[call] = None
    return list(found)


class Together:
    """One call in all recordings: their common part, and sizes where numbers differ."""

    def __init__(self, calls: Sequence[Call], sizes: Sizes) -> None:
        self.calls, self.sizes = calls, sizes
        first = calls[0].signature
        self.composite = None if first is None else first.composite
        for call in calls[1:]:
            other = None if call.signature is None else call.signature.composite
            if other is not self.composite:
                raise UnsupportedError(
                    f"the network records {self.composite} or {other}, depending on the sizes of "
                    "the dynamic axes"
                )
        self._signatures = [one.signature for one in calls if one.signature is not None]
        self.types = [
            self._type([one.types[k] for one in self._signatures])
            for k in range(0 if first is None else first.result_count)
        ]

    @property
    def attributes(self) -> tuple[Any, ...]:
        """The attributes, with sizes where numbers differ."""
        found = self.sizes.unified([_plain(one.attributes) for one in self._signatures])
        return found  # type: ignore[no-any-return]

    def input_types(self) -> list[Typed | None]:
        """The types of the operands; None for absent ones."""
        rows = zip(*(signature.input_types for signature in self._signatures))
        return [None if row[0] is None else self._type(row) for row in rows]  # type: ignore[arg-type]

    def _type(self, kinds: Sequence[TensorType]) -> Typed:
        return Typed(self.sizes.unified([tuple(kind.shape) for kind in kinds]), kinds[0].dtype)


class Typed(NamedTuple):
    """Sizes and element type of a value."""

    shape: tuple[Any, ...]
    dtype: Any


def _plain(attributes: Any) -> Any:
    if isinstance(attributes, (tuple, list)) and not hasattr(attributes, "_fields"):
        return tuple(_plain(one) for one in attributes)
    return attributes
