"""Named features of nodes or edges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metaop.errors import ShapeError
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import as_tensor


class Frame(dict[str, Tensor]):
    """A dictionary of tensors with one row for each of `count` nodes or edges."""

    def __init__(self, what: str, count: int, features: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.what, self.count = what, count
        self.update(features or {})

    def __setitem__(self, name: str, value: Any) -> None:
        value = value if isinstance(value, Tensor) else as_tensor(value)
        if not value.ndim or value.shape[0] != self.count:
            raise ShapeError(
                f"feature {name!r} has shape {list(value.shape)}, expected {self.count} rows, one "
                f"for each of the {self.what}"
            )
        super().__setitem__(name, value)

    def update(self, *features: Any, **further: Any) -> None:
        """`dict.update`, with a check of every value."""
        for name, value in dict(*features, **further).items():
            self[name] = value

    def setdefault(self, name: str, default: Any = None) -> Tensor:
        """The feature, which is set to `default` if it is missing."""
        if name not in self:
            self[name] = default
        return self[name]

    def copy(self) -> Frame:
        """A frame with the same tensors."""
        return Frame(self.what, self.count, self)

    def rows(self, chosen: Tensor) -> dict[str, Tensor]:
        """The features of some rows."""
        return {name: value.index_select(0, chosen) for name, value in self.items()}
