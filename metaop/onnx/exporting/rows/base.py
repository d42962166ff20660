"""The view of a call that a row of the exporter gets, and the table of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from metaop.onnx.exporting.recordings import Typed
from metaop.onnx.exporting.writer import Writer
from metaop.unified_graph.composite import Composite


class Operands(NamedTuple):
    """A call as a row sees it: names and types of the operands; None for absent ones."""

    w: Writer
    names: list[str | None]
    types: list[Typed | None]
    attributes: tuple[Any, ...]
    results: list[Typed]

    def name(self, position: int) -> str:
        """The name of an operand that is present."""
        found = self.names[position]
        assert found is not None
        return found

    def type(self, position: int) -> Typed:
        """The type of an operand that is present."""
        found = self.types[position]
        assert found is not None
        return found

    @property
    def ndim(self) -> int:
        """The number of dimensions of the first operand."""
        return len(self.type(0).shape)


# Returns the names of the results, or None if the call must be expanded after all.
Row = Callable[[Operands], "str | list[str] | None"]
ROWS: dict[Composite, Row] = {}


def row(*composites: Composite) -> Callable[[Row], Row]:
    """Registers a function for composites."""

    def enter(function: Row) -> Row:
        for composite in composites:
            ROWS[composite] = function
        return function

    return enter
