"""What a row of the exporter sees of a call, and the table of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from metaop.onnx.exporting.recordings import Typed
from metaop.onnx.exporting.writer import Writer
from metaop.unified_graph.composite import Composite


class Operands(NamedTuple):
    """A call as a row sees it: names and types of the operands, None where one is absent."""

    w: Writer
    names: list[str | None]
    types: list[Typed | None]
    attributes: tuple[Any, ...]
    results: list[Typed]

    def name(self, position: int) -> str:
        """The name of an operand that is there."""
        found = self.names[position]
        assert found is not None
        return found

    def type(self, position: int) -> Typed:
        """The type of an operand that is there."""
        found = self.types[position]
        assert found is not None
        return found

    @property
    def ndim(self) -> int:
        """The dimensions of the first operand."""
        return len(self.type(0).shape)


# The names of the results; None where the call has to be expanded after all.
Row = Callable[[Operands], "str | list[str] | None"]
ROWS: dict[Composite, Row] = {}


def row(*composites: Composite) -> Callable[[Row], Row]:
    """Enters a function for composites."""

    def enter(function: Row) -> Row:
        for composite in composites:
            ROWS[composite] = function
        return function

    return enter
