"""The type of a recorded value: shape, dtype and device, interned so that equality is identity."""

from __future__ import annotations

from typing import Any

from metaop.unified_graph.dtype import DType
from metaop.unified_graph.interning import InternTable
from metaop.unified_graph.node import Shape


class Device:
    """Where values live: `Device("cpu")`, `Device("cuda", 0)`; one object per device.

    `str(device)` and comparison with strings follow PyTorch.
    """

    __slots__ = ("type", "index")
    _table: dict[tuple[str, int | None], Device] = {}
    type: str
    index: int | None
    # The ranks that share the values of a global tensor (a Placement of the dist room).
    placement: Any = None

    def __new__(cls, type: str, index: int | None = None) -> Device:
        if ":" in type:
            type, _, number = type.partition(":")
            index = int(number)
        if type == "cuda" and index is None:
            index = 0
        if type == "cpu":
            index = None
        key = (type, index)
        found = cls._table.get(key)
        if found is None:
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
        return self is other or (isinstance(other, str) and Device(other) is self)

    def __hash__(self) -> int:
        return hash((self.type, self.index))


CPU = Device("cpu")


class TensorType:
    """Shape, dtype and device of a value."""

    __slots__ = ("shape", "dtype", "device", "differentiable", "__weakref__")
    _table: InternTable[TensorType] = InternTable()
    shape: Shape
    dtype: DType
    device: Device
    differentiable: bool

    def __new__(cls, shape: Shape, dtype: DType, device: Device = CPU) -> TensorType:
        key = (shape, dtype, device)
        found = cls._table.get(key) or cls._table.revive(key)
        if found is None:
            new = object.__new__(cls)
            new.shape, new.dtype, new.device = key
            new.differentiable = dtype.kind == "float"
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
