"""Generalises recordings for some sizes to one graph for all sizes, with symbols.

Two choices of sizes give the graph: numbers that differ become symbols or expressions of symbols
(`unified_graph/symbolic_cut.py`). Further choices confirm it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from metaop.errors import ExportError, describe_location
from metaop.export.dimensions import Axis, Sizes
from metaop.export.leaves import used_at
from metaop.export.numbers import Numbers, NumberWriter, UnboundError
from metaop.export.recorded import Recorded
from metaop.fusion.split_complex import split_complex
from metaop.unified_graph.cut import Subgraph
from metaop.unified_graph.recording import Call
from metaop.unified_graph.structure import without_numbers
from metaop.unified_graph.symbolic import NotGeneralError, SymFloat, SymInt
from metaop.unified_graph.symbolic_cut import SymbolicCut, numbers_of

# The largest divisor that is tried for quotients of sizes.
_LARGEST_DIVISOR = 64
_LARGEST_FACTOR = 8
_POWERS = (-1.0, 1.0, -0.5, 0.5)


class Choice(NamedTuple):
    """A recording of a function for some sizes, and the numbers in it."""

    sizes: Sizes
    recorded: Recorded
    numbers: tuple[float, ...]

    @staticmethod
    def of(sizes: Sizes, recorded: Recorded) -> Choice:
        return Choice(sizes, recorded, numbers_of(recorded.subgraph))


class General:
    """The graph of a function, with symbols for its named axes.

    `choices` have one structure; the first two determine the symbols. `numbers` writes the numbers
    derived from the axes. Raises ExportError if a number cannot be derived from them.
    """

    def __init__(self, choices: Sequence[Choice], axes: Sequence[Axis]) -> None:
        second = choices[1]
        try:
            others = [choice.numbers for choice in choices if choice is not second]
            self.cut = SymbolicCut(second.recorded.subgraph, *others)
            _, self.outputs = split_complex(self.cut.inputs, self.cut.outputs)
        except NotGeneralError as reason:
            raise ExportError(
                f"the graph has no form for all sizes: {reason}",
                fix="name fewer axes in dynamic",
            ) from None
        self._choices = choices
        self.subgraph: Subgraph = second.recorded.subgraph
        names = self._axis_names(second.recorded, axes)
        self.numbers = NumberWriter(self.cut.env, names)
        self._bind_rest(names)
        self._check_numbers()

    def guards(self) -> list[list[Any]]:
        """The conditions of the graph: a number, its comparison with 0, and a text."""
        env = self.cut.env
        symbols = {str(symbol): k for k, symbol in self._atoms()}
        texts = {
            symbols[name]: reference
            for name, reference in self.numbers.names.items()
            if name in symbols
        }
        opposite = {"<": ">=", "==": "!="}
        return [
            [
                self.numbers.reference(guard.value),
                guard.relation if guard.holds else opposite[guard.relation],
                guard.text(texts),
            ]
            for guard in env.guards
        ]

    def value_like(self, values: Sequence[Any]) -> Any:
        """The reference of a number that had these values for the choices, in order."""
        if all(repr(value) == repr(values[0]) for value in values):
            return values[0]
        return fitted(values, [choice.sizes for choice in self._choices], self.numbers)

    def _atoms(self) -> Iterator[tuple[int, str]]:
        for number, (name, operands) in enumerate(self.cut.env.atoms):
            if not operands:
                yield number, name

    def _axis_names(self, recorded: Recorded, axes: Sequence[Axis]) -> dict[str, Any]:
        places = {place: axis.dim.name for axis in axes for place in axis.places}
        inputs = {id(buffer): number for number, buffer in enumerate(recorded.buffers)}
        found: dict[str, Any] = {}
        for leaf, node in zip(self.subgraph.leaves, self.cut.inputs):
            number = inputs.get(id(leaf.buffer))
            for axis, extent in enumerate(node.shape):
                if not isinstance(extent, SymInt):
                    continue
                name = places.get((number, axis)) if number is not None else None
                if name is None:
                    raise ExportError(
                        f"a tensor of shape {list(leaf.type.shape)} that the host makes depends on "
                        f"the sizes of inputs{used_at(self.subgraph, leaf)}",
                        fix="make it with metaop.arange, metaop.full and the like",
                    )
                if extent.is_atom and found.setdefault(str(extent), name) == name:
                    continue
                raise ExportError(
                    f"axis {name!r} is tied to another one: {extent}",
                    fix="use examples with unrelated sizes",
                )
        return found

    def _bind_rest(self, names: dict[str, Any]) -> None:
        """Finds dependencies on axes that two choices of sizes do not show."""
        for symbol in self.cut.env.symbols:
            if str(symbol) in names:
                continue
            place = next(k for k, one in enumerate(self.cut.expected) if _is_sign_of(one, symbol))
            sign = 1 if self.cut.expected[place] is symbol else -1
            values = [sign * choice.numbers[place] for choice in self._choices]
            try:
                names[str(symbol)] = self.value_like(values)
            except UnboundError as reason:
                raise ExportError(
                    f"{reason}{_call_at(self.subgraph, place)}",
                    fix="compute it from the sizes of tensors, or name fewer axes in dynamic",
                ) from None

    def _check_numbers(self) -> None:
        """Compares the derived numbers with the recorded ones for all choices."""
        references = [self.numbers.reference(one) for one in self.cut.expected]
        for choice in self._choices:
            numbers = Numbers(self.numbers.entries, choice.sizes)
            for place, (reference, wanted) in enumerate(zip(references, choice.numbers)):
                real = isinstance(wanted, float)
                found = numbers.real(reference) if real else numbers.signed(reference)
                if found != wanted and not (real and abs(found - wanted) <= 1e-12 * abs(wanted)):
                    raise ExportError(
                        f"the function does not follow the sizes of its inputs in one way: for "
                        f"{choice.sizes} a number is {wanted} in place of {found}"
                        f"{_call_at(self.subgraph, place)}",
                        fix="avoid branches that depend on sizes, or fix that axis",
                    )


def fitted(values: Sequence[Any], choices: Sequence[Sizes], numbers: NumberWriter) -> Any:
    """The reference of a number that follows from one or two sizes.

    Raises UnboundError if it follows from none in a known way.
    """
    axes = {name: [choice[name] for choice in choices] for name in choices[0]}
    axes = {name: sizes for name, sizes in axes.items() if len(set(sizes)) >= 4}
    is_integer = all(type(value) is int for value in values)
    found = (_integer_of if is_integer else _real_of)(axes, values, numbers)
    if found is None:
        raise UnboundError(
            f"a number is {_shortly(values)} for {_shortly(choices)}, in no known way"
        )
    return found


def _integer_of(
    axes: dict[str, list[int]], values: Sequence[int], numbers: NumberWriter
) -> str | None:
    """The reference of an integer with these values.

    It is `(factor * size + offset) // divisor`, or a factor times one or two quotients
    `(size + offset) // divisor`, and an offset.
    """
    for name, sizes in axes.items():
        for divisor in range(1, _LARGEST_DIVISOR + 1):
            for factor in range(1, _LARGEST_FACTOR + 1):
                # value * divisor <= factor * size + offset < (value + 1) * divisor
                bounds = [v * divisor - factor * s for s, v in zip(sizes, values)]
                low, high = max(bounds), min(bounds) + divisor - 1
                if low > high:
                    continue
                offset = min(max(low, 0), high)
                return numbers.entry("//", numbers.entry("sum", [factor, name], [offset]), divisor)
    quotients = [
        ([(size + offset) // divisor for size in sizes], (name, offset, divisor))
        for name, sizes in axes.items()
        for divisor in range(1, _LARGEST_FACTOR + 1)
        for offset in range(divisor)
    ]
    one = ([1] * len(values), None)
    for position, (first, quotient) in enumerate(quotients):
        for second, other in (one, *quotients[position:]):
            line = _line([a * b for a, b in zip(first, second)], values)
            if line is None:
                continue
            parts = [
                numbers.entry("//", numbers.entry("sum", [1, part[0]], [part[1]]), part[2])
                for part in (quotient, other)
                if part is not None
            ]
            return numbers.entry("sum", [line[0], *parts], [line[1]])
    return None


def _line(places: Sequence[int], values: Sequence[int]) -> tuple[int, int] | None:
    """The factor and the offset that give the values at these places."""
    low, high = places.index(min(places)), places.index(max(places))
    if places[low] == places[high]:
        return None
    factor = (values[high] - values[low]) // (places[high] - places[low])
    offset = values[low] - factor * places[low]
    is_right = all(factor * place + offset == value for place, value in zip(places, values))
    return (factor, offset) if is_right else None


def _real_of(
    axes: dict[str, list[int]], values: Sequence[float], numbers: NumberWriter
) -> str | None:
    """The reference of `factor * size ** power`, or of one with the product of two sizes."""
    names = list(axes)
    pairs = [(one, other) for k, one in enumerate(names) for other in names[k:]]
    for product in (*((name,) for name in names), *pairs):
        sizes = [math.prod(one) for one in zip(*(axes[name] for name in product))]
        for power in _POWERS:
            factors = [value / size**power for size, value in zip(sizes, values)]
            if max(factors) - min(factors) <= 1e-13 * abs(factors[0]):
                base = product[0] if len(product) == 1 else numbers.entry("sum", [1, *product])
                raised = numbers.entry("**", numbers.entry("real", base), power)
                return numbers.entry("*", factors[0], raised)
    return None


def _is_sign_of(expected: Any, symbol: SymInt | SymFloat) -> bool:
    if expected is symbol:
        return True
    return isinstance(symbol, SymInt) and isinstance(expected, SymInt) and expected is -symbol


def _shortly(values: Sequence[Any]) -> str:
    return ", ".join(map(str, values[:3]))


def _numbers_of_types(leaves: Sequence[Call]) -> list[float]:
    found: list[float] = []
    for leaf in leaves:
        without_numbers(leaf.type, found)
    return found


def _call_at(subgraph: Subgraph, place: int) -> str:
    """The operator and the line that a number belongs to, for a message."""
    place -= len(_numbers_of_types(subgraph.leaves))
    for call, signature in subgraph.operators:
        if place < len(signature.numbers):
            where = describe_location(call.location)
            return f", in {signature.composite.name}" + (f" (at {where})" if where else "")
        place -= len(signature.numbers)
    return ""
