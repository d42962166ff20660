"""The input axes whose sizes may vary, and the sizes at which a function is recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, NamedTuple

from metaop.errors import ArgumentError, ExportError
from metaop.export.numbers import LARGEST


class Hint(Enum):
    """What an axis without a name does: see `Dim`."""

    AUTO = "AUTO"
    DYNAMIC = "DYNAMIC"
    STATIC = "STATIC"


@dataclass(frozen=True)
class Dim:
    """A named axis whose size is from `min` to `max`, and a multiple of `multiple`.

    Without a `min`, it starts from 1 if that is possible. Axes with the same name have the same
    size. A plain name means `Dim(name)`.

    An axis without a name is `Dim.STATIC`, or varies if it can with `Dim.AUTO`. `Dim.DYNAMIC` is
    an error if it cannot. Such axes have the same size where the function needs that.
    """

    AUTO: ClassVar[Hint] = Hint.AUTO
    DYNAMIC: ClassVar[Hint] = Hint.DYNAMIC
    STATIC: ClassVar[Hint] = Hint.STATIC

    name: str
    min: int | None = None
    max: int | None = None
    multiple: int = 1


# An input and an axis of it.
Place = tuple[int, int]


class Axis(NamedTuple):
    """A named axis of the examples: where it is, and its size there."""

    dim: Dim
    places: tuple[Place, ...]
    size: int

    @property
    def least(self) -> int:
        return 1 if self.dim.min is None else self.dim.min

    @property
    def most(self) -> int:
        return LARGEST if self.dim.max is None else self.dim.max

    def admits(self, size: int) -> bool:
        """Whether the axis may have a size."""
        return self.least <= size <= self.most and size % self.dim.multiple == 0


def axes_of(
    dynamic: Any, names: Sequence[str], groups: Sequence[str], shapes: Sequence[tuple[int, ...]]
) -> tuple[list[Axis], dict[Place, Hint]]:
    """The named axes of inputs with these names and shapes, and the hints for others.

    `groups` are names of the parameters. Raises ArgumentError if a name matches no axis, and
    ExportError if example sizes differ.
    """
    found: dict[str, tuple[Dim, list[Place]]] = {}
    hints: dict[Place, Hint] = {}
    for number, axis, dim in _named(dynamic, names, groups, shapes):
        if isinstance(dim, Hint):
            if dim is not Hint.STATIC:
                hints[number, axis] = dim
            continue
        known = found.setdefault(dim.name, (dim, []))
        if known[0] != dim:
            raise ArgumentError(f"axis {dim.name!r} is both {known[0]} and {dim}")
        known[1].append((number, axis))
    axes = []
    for dim, places in found.values():
        sizes = {shapes[number][axis] for number, axis in places}
        if len(sizes) > 1:
            raise ExportError(
                f"the axes named {dim.name!r} have the sizes {sorted(sizes)} in the examples",
                fix="use different names for axes of different sizes",
            )
        axes.append(Axis(dim, tuple(places), sizes.pop()))
    for one in axes:
        _check(one)
    return axes, hints


def varying(
    hints: Mapping[Place, Hint],
    shapes: Sequence[tuple[int, ...]],
    works: Callable[[Axis, int], bool],
) -> list[Axis]:
    """The axes with a hint for which the function works when only they have another size.

    An axis varies alone, or together with others of its size; first axes, which usually count
    examples, preferably vary together. Axes of size 1, which are usually broadcast, are fixed
    otherwise. Raises ExportError for an axis that has to vary and cannot.
    """
    found: list[Axis] = []
    for place, hint in hints.items():
        if any(place in axis.places for axis in found):
            continue
        number, position = place
        size = shapes[number][position]
        free = [one for one in hints if not any(one in axis.places for axis in found)]
        alike = tuple((k, axis) for k, axis in free if shapes[k][axis] == size)
        first = tuple(one for one in alike if one[1] == 0)
        if size > 1:
            groups = [first, (place,), alike] if position == 0 else [(place,), alike]
        elif position == 0 or hint is Hint.DYNAMIC:
            groups = [first, (place,)] if position == 0 else [(place,)]
        else:
            continue
        name = f"axis{position}_of_input{number}"
        candidates = [Axis(Dim(name), places, size) for places in dict.fromkeys(groups)]
        sizes = [other for other in (2 * size, size + 1, size - 1) if other > 1]
        chosen = next(
            (one for one in candidates if any(works(one, other) for other in sizes)), None
        )
        if chosen is not None:
            found.append(chosen)
        elif hint is Hint.DYNAMIC:
            raise ExportError(
                f"axis {position} of input {number} is Dim.DYNAMIC, but the function works for no "
                f"other size than {size} that was tried",
                fix="use Dim.AUTO, or name the axes that have the same size",
            )
    return found


def _check(axis: Axis) -> None:
    dim = axis.dim
    if not dim.name.isidentifier():
        raise ArgumentError(f"{dim.name!r} is not a valid axis name", fix="use a name like 'batch'")
    if axis.least < 1 or dim.multiple < 1 or not axis.admits(axis.size):
        raise ArgumentError(f"axis {dim.name!r} is {axis.size} in the examples, and may be {dim}")
    if max(axis.least, 2) >= axis.most:
        raise ArgumentError(
            f"axis {dim.name!r} has fewer than two sizes in 2 to {axis.most}", fix="leave it fixed"
        )


def _named(
    dynamic: Any, names: Sequence[str], groups: Sequence[str], shapes: Sequence[tuple[int, ...]]
) -> Iterator[tuple[int, int, Dim | Hint]]:
    if not isinstance(dynamic, Mapping):
        if not isinstance(dynamic, (tuple, list)) or len(dynamic) > len(groups):
            raise ArgumentError(
                f"dynamic is {dynamic!r}",
                fix='name the axes of each input: dynamic={"x": {0: "batch"}}',
            )
        dynamic = dict(zip(groups, dynamic))
    for name, wanted in dynamic.items():
        if name not in names:
            raise ArgumentError(f"no input is called {name!r}", fix=f"they are {', '.join(names)}")
        if wanted is None:
            continue
        number = names.index(name)
        pairs = wanted.items() if isinstance(wanted, Mapping) else enumerate(wanted)
        for axis, dim in pairs:
            ndim = len(shapes[number])
            if type(axis) is not int or not -ndim <= axis < ndim:
                raise ArgumentError(f"input {name!r} of {ndim} axes has no axis {axis!r}")
            if dim is not None:
                yield number, axis % ndim, _dim(dim)


def _dim(wanted: Any) -> Dim | Hint:
    if isinstance(wanted, str):
        return Dim(wanted)
    if isinstance(wanted, (Dim, Hint)):
        return wanted
    raise ArgumentError(f"{wanted!r} names no axis", fix='use a name, or Dim("batch", min=1)')


Sizes = dict[str, int]
_FACTORS = (2, 3, 5, 7, 11, 13, 17, 19)


def two_choices(axes: Sequence[Axis], works: Callable[[Sizes], bool]) -> tuple[Sizes, Sizes]:
    """Two choices of sizes, all at least 2 and all different, for which the function works.

    Sizes of different axes have different ratios and differences, so that numbers derived from one
    are not mistaken for numbers derived from another. Raises ExportError for an axis without a
    second size.
    """
    first = {axis.dim.name: axis.size for axis in axes}
    for axis in axes:
        if axis.size < 2:
            first[axis.dim.name] = _working(axis, first, works, range(2, 33), first)
    second = dict(first)
    for position, axis in enumerate(axes):
        here = first[axis.dim.name]
        factors = [*_FACTORS[position:], *_FACTORS[:position]]
        wanted = [here * factor for factor in factors]
        wanted += [here // factor for factor in factors if here % factor == 0]
        wanted += [here + k * axis.dim.multiple for k in (1, -1, 2, -2, 3, -3)]
        usable = [size for size in wanted if size >= 2 and not _is_alike(here, size, first, second)]
        second[axis.dim.name] = _working(axis, first, works, usable, second)
    return first, second


def _is_alike(here: int, there: int, first: Sizes, second: Sizes) -> bool:
    """Whether another axis changed by the same factor or by the same amount."""
    return any(
        here * second[name] == there * first[name] or here - there == first[name] - second[name]
        for name in first
        if second[name] != first[name]
    )


def _working(
    axis: Axis, base: Sizes, works: Callable[[Sizes], bool], wanted: Sequence[int], others: Sizes
) -> int:
    for size in dict.fromkeys(wanted):
        if axis.admits(size) and size != base[axis.dim.name]:
            if works({**others, axis.dim.name: size}):
                return size
    raise ExportError(
        f"axis {axis.dim.name!r} works for the size {base[axis.dim.name]} of the examples, and for "
        "none of the others that were tried",
        fix="leave it fixed, or restrict its sizes: Dim(name, min, max)",
    )


def further_choices(axes: Sequence[Axis], first: Sizes, second: Sizes) -> list[Sizes]:
    """More choices of sizes, to check conclusions from the first two."""
    found: list[Sizes] = []
    for axis in axes:
        name = axis.dim.name
        ends = [end for end in (axis.dim.min, axis.dim.max) if end is not None and end <= 1 << 16]
        step = axis.dim.multiple
        near = [first[name] + step, second[name] - step, first[name] + 2 * step, 2 * second[name]]
        for size in dict.fromkeys([*ends, *near]):
            if axis.admits(size) and size >= 2:
                choice = {**first, name: size}
                if choice not in (first, second, *found):
                    found.append(choice)
    return found
