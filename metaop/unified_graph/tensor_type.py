"""The type of a recorded value: shape, dtype and device, interned so that equality is identity."""

from __future__ import annotations

from typing import Any, ClassVar

from metaop.errors import ArgumentError, ArgumentTypeError, UnsupportedError
from metaop.unified_graph.dtype import NAMED, DType
from metaop.unified_graph.interning import InternTable, with_plain_numbers
from metaop.unified_graph.node import Shape

_WIDER = "use a type with more bits, such as int32, int64 or bfloat16"


class Device:
    """Where values live: `Device("cpu")`, `Device("cuda", 0)`; one object per device.

    A device stands for itself, and a number for a GPU. Tensors on `Device("meta")` have no values,
    only shapes and dtypes. `str(device)` and comparison with strings follow PyTorch. Raises
    ArgumentError for other names, and ArgumentTypeError for what is not a name.

    >>> metaop.device("cuda:1").index, metaop.ones(1).device == "cpu"
    (1, True)
    >>> metaop.device(metaop.ones(1).device)
    device(type='cpu')
    """

    __slots__ = ("type", "index")
    _table: dict[tuple[str, int | None], Device] = {}
    type: str
    index: int | None
    # The number of the GPU that "cuda" means, if the program has set it.
    current: ClassVar[int | None] = None
    # The ranks that share the values of a global tensor (a Placement of the dist room).
    placement: Any = None

    def __new__(
        cls,
        type: Device | str | int | None = None,
        index: int | None = None,
        *,
        device: Device | str | int | None = None,
    ) -> Device:
        named = type if device is None else device
        if isinstance(named, Device) and index is None:
            return named
        if isinstance(named, int) and not isinstance(named, bool) and index is None:
            index, named = named, "cuda"
        if not isinstance(named, str):
            raise ArgumentTypeError(
                f"a device is named by a string, not by {named!r}",
                fix='use "cpu", "cuda" or "meta", a number of a GPU, or a device alone',
            )
        key = _kind_and_index(named, index)
        found = cls._table.get(key)
        if found is None:
            if key[0] not in ("cpu", "cuda", "meta"):
                fix = 'use "cpu", "cuda", "cuda:0" or "meta"'
                raise ArgumentError(f"unknown device {named!r}", fix=fix)
            found = object.__new__(cls)
            found.type, found.index = key
            cls._table[key] = found
        return found

    def __reduce__(self) -> tuple:
        return (Device, (self.type, self.index))

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        inside = f"type='{self.type}'"
        return (
            f"device({inside})" if self.index is None else f"device({inside}, index={self.index})"
        )

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return self.placement is None and (self.type, self.index) == _kind_and_index(
                other, None
            )
        return self is other

    # There is one object per device, so the fast identity hash is right; strings hash differently.
    __hash__ = object.__hash__


def _kind_and_index(type: str, index: int | None) -> tuple[str, int | None]:
    """Kind and number of a name like "cuda:1"; "cuda" is the current GPU, and there is one CPU."""
    kind, _, number = type.partition(":")
    if kind in ("cpu", "meta"):
        return kind, None
    if number:
        index = int(number)
    return kind, (Device.current or 0) if index is None and kind == "cuda" else index


CPU = Device("cpu")
META = Device("meta")


class TensorType:
    """Shape, dtype and device of a value; `parted` remembers its structure and its numbers."""

    __slots__ = ("shape", "dtype", "device", "differentiable", "parted", "__weakref__")
    # Fewer than expressions: a step with new sizes makes several, and each is quick to make.
    _table: InternTable[TensorType] = InternTable(1 << 12)
    shape: Shape
    dtype: DType
    device: Device
    differentiable: bool
    parted: Any

    def __new__(cls, shape: Shape, dtype: DType, device: Device = CPU) -> TensorType:
        key = (shape, dtype, device)
        found = cls._table.get(key) or cls._table.revive(key)
        if found is None:
            if dtype in NAMED:
                raise UnsupportedError(f"there are no tensors of {dtype.name}", fix=_WIDER)
            key = (with_plain_numbers(shape), dtype, device)
            new = object.__new__(cls)
            new.shape, new.dtype, new.device = key
            new.differentiable = dtype.is_differentiable
            new.parted = None
            found = cls._table.add(key, new)
        return found

    @property
    def size(self) -> int:
        total = 1
        for extent in self.shape:
            total *= extent
        return total

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"{self.dtype.name}{list(self.shape)}"
