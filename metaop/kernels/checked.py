"""The values of an interpreted kernel: typed scalars, and memories with checked accesses."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from metaop.elementwise.functions import FUNCTIONS
from metaop.elementwise.meta_op import cast_reference
from metaop.kernels.values import common_type, operand_type
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType

if TYPE_CHECKING:
    from metaop.kernels.interpreter import Interpreter


class Scalar:
    """A typed number, computed by the tables; `weak` ones promote like Python's numbers."""

    __slots__ = ("number", "dtype", "weak")

    def __init__(self, number: Any, dtype: DType, weak: bool = False) -> None:
        self.number = np.asarray(number).astype(dtype.numpy)
        self.dtype = dtype
        self.weak = weak

    def __pos__(self) -> Scalar:
        return self

    def __bool__(self) -> bool:
        return bool(self.number)

    def __index__(self) -> int:
        if self.dtype.kind != "int":
            raise TypeError(f"an index is an integer, not {self.dtype.name}")
        return int(self.number)

    def __repr__(self) -> str:
        return f"{self.number}"


class Counter(int):
    """A loop variable or a task number: an integer whose quotients are typed numbers."""


def scalar(item: Any) -> Scalar:
    """A Python number, or a scalar, as a scalar."""
    if isinstance(item, Scalar):
        return item
    if isinstance(item, (bool, np.bool_)):
        return Scalar(item, dtypes.bool_, True)
    return Scalar(item, dtypes.int64 if isinstance(item, int) else dtypes.float32, True)


def compute(function: str, *operands: Any) -> Scalar:
    """A function of the tables."""
    items = [scalar(operand) for operand in operands]
    if function == "where":
        return choose(items[0], *items[1:])
    dtype = operand_type(function, [(item.dtype, item.weak) for item in items])
    numbers = [to_type(one, dtype).number for one in items]
    row = FUNCTIONS[function]
    with np.errstate(all="ignore"):
        return Scalar(row.numpy(*numbers), row.result(dtype))


def choose(test: Any, first: Any, second: Any) -> Scalar:
    """`first` or `second`, in their common type."""
    pair = scalar(first), scalar(second)
    dtype = common_type([(item.dtype, item.weak) for item in pair])
    return to_type(pair[0] if test else pair[1], dtype)


def to_type(item: Any, dtype: DType) -> Scalar:
    """A number converted to another type, as in C."""
    if isinstance(item, Scalar) and item.dtype is dtype:
        return item if not item.weak else Scalar(item.number, dtype)
    return Scalar(cast_reference(np.asarray(scalar(item).number), dtype), dtype)


def _operator(function: str, reflected: bool = False) -> Any:
    def run(self: Any, other: Any = None) -> Any:
        if not isinstance(other, (Scalar, int, float, np.bool_)):
            return NotImplemented
        return compute(function, other, self) if reflected else compute(function, self, other)

    return run


def _single(function: str) -> Any:
    return lambda self: compute(function, self)


_ARITHMETIC = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "pow", "and": "bitwise_and", "or": "bitwise_or",
    "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift",
}  # fmt: skip
for _python, _table in _ARITHMETIC.items():
    setattr(Scalar, f"__{_python}__", _operator(_table))
    setattr(Scalar, f"__r{_python}__", _operator(_table, reflected=True))
for _python in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Scalar, f"__{_python}__", _operator(_python))
for _python, _table in {"neg": "neg", "invert": "bitwise_not"}.items():
    setattr(Scalar, f"__{_python}__", _single(_table))


def _counted(python: str, table: str) -> Any:
    plain = getattr(int, python)

    def run(self: Counter, other: Any) -> Any:
        if isinstance(other, float) or (python == "__truediv__" and isinstance(other, int)):
            return compute(table, int(self), other)
        found = plain(self, other)
        return found if found is NotImplemented else Counter(found)

    return run


for _python in ("add", "sub", "mul", "truediv", "floordiv", "mod"):
    for _name in (f"__{_python}__", f"__r{_python}__"):
        if hasattr(int, _name):
            setattr(Counter, _name, _counted(_name, _ARITHMETIC[_python]))


@dataclass
class Accesses:
    """The tasks that accessed an element since the last barrier."""

    writers: set[int] = field(default_factory=set)
    readers: set[int] = field(default_factory=set)
    updaters: set[int] = field(default_factory=set)

    def conflict(self, who: int, how: str) -> tuple[int, str] | None:
        """Another task whose access conflicts with this one, and the kind of its access."""
        kinds = {"reads": self.readers, "writes": self.writers, "updates": self.updaters}
        for verb, others in kinds.items():
            # Two reads do not conflict, nor do two atomic updates.
            if verb == f"{how}s" and how != "write":
                continue
            for other in others:
                if other != who:
                    return other, verb
        return None

    def note(self, who: int, how: str) -> None:
        """Records an access; two tasks of a kind are enough to detect a conflict with any third."""
        kept = {"read": self.readers, "write": self.writers, "update": self.updaters}[how]
        if len(kept) < 2:
            kept.add(who)


class CheckedMemory:
    """A parameter, scratch or shared memory; indexing reads, assigning writes, both checked.

    `places` has the positions of this part's elements in the whole memory.
    """

    def __init__(
        self,
        owner: Interpreter,
        name: str,
        values: np.ndarray,
        dtype: DType,
        places: np.ndarray,
        written: np.ndarray | None,
        is_private: bool = False,
        is_read_only: bool = False,
    ) -> None:
        self.owner = owner
        self.name = name
        self.values = values
        self.dtype = dtype
        self.places = places
        self.written = written
        self.is_private = is_private
        self.is_read_only = is_read_only

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents, as integers that kernels compute with."""
        return tuple(map(int, self.places.shape))

    @property
    def ndim(self) -> int:
        return self.places.ndim

    def part(self, items: Any) -> np.ndarray:
        """The positions of the elements that an index selects."""
        listed = items if isinstance(items, tuple) else (items,)
        fixed: list[Any] = []
        for dim, item in enumerate(listed):
            extent = self.places.shape[dim]
            if isinstance(item, slice):
                start, stop = (
                    int(end) if end is not None else default
                    for end, default in ((item.start, 0), (item.stop, extent))
                )
                if stop > start:
                    self._check(start, extent, dim)
                    self._check(stop - 1, extent, dim)
                fixed.append(slice(start, stop))
            else:
                position = int(item)
                self._check(position, extent, dim)
                fixed.append(position)
        return np.asarray(self.places[tuple(fixed)])

    def _check(self, position: int, extent: int, dim: int) -> None:
        if not 0 <= position < extent:
            raise IndexError(
                f"index {position} is out of range for dimension {dim} of {self.name}, which has "
                f"size {extent}, in task {self.owner.task} at {here(self.owner.file)}"
            )

    def __getitem__(self, items: Any) -> Any:
        found = self.part(items)
        if found.ndim:
            arguments = (self.dtype, found, self.written, self.is_private, self.is_read_only)
            return CheckedMemory(self.owner, self.name, self.values, *arguments)
        return self.read(int(found))

    def __setitem__(self, items: Any, value: Any) -> None:
        self.write(int(self.part(items)), value)

    def read(self, place: int) -> Scalar:
        """The element at a position."""
        self.owner.touch(self, place, "read")
        if self.written is not None and not self.written[place]:
            raise self.owner.error(
                f"element {self.at(place)} of {self.name} is read before it is written",
                "write it first, with a barrier() between if another task writes it, or give "
                "the output an initial value",
            )
        return Scalar(self.values[place], self.dtype)

    def write(self, place: int, value: Any, how: str = "write") -> None:
        """Writes the element at a position."""
        if self.is_read_only:
            raise self.owner.error(f"{self.name} is an input", "write to an output")
        self.owner.touch(self, place, how)
        self.values[place] = to_type(value, self.dtype).number
        if self.written is not None:
            self.written[place] = True

    def at(self, place: int) -> list[int]:
        """The index of an element in the whole memory."""
        shape: Sequence[int] = self.owner.shapes[id(self.values)]
        return [int(one) for one in np.unravel_index(place, shape)] if shape else []


def here(file: str) -> str:
    """The line of a file that is being executed."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != file:
        frame = frame.f_back  # type: ignore[assignment]
    return f"{file}:{frame.f_lineno}" if frame is not None else file
