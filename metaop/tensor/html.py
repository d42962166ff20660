"""How notebooks show tensors, and the tables that other objects show there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np

from metaop.reindex.strided import strided_values
from metaop.tensor.core import Tensor
from metaop.tensor.printing import formatter_of, options
from metaop.unified_graph.tensor_type import META
from metaop.unified_graph.tracing import state


def table(rows: Iterable[Sequence[Any]], head: Sequence[Any] = ()) -> str:
    """A table of texts, which may hold any characters."""
    lines = [_row(head, "th")] if head else []
    lines += [_row(row, "td") for row in rows]
    return "<table>" + "".join(lines) + "</table>"


def described(input: Tensor) -> str:
    """The dtype and the shape of a tensor: `float32[3, 4]`."""
    return f"{input.dtype.name}{list(input.shape)}"


def html_of(input: Tensor) -> str:
    """The tensor as notebooks show it: dtype, shape, device, its first and last values.

    Nothing runs for it: a value that is not computed yet has no table, as have those on the meta
    device, on several ranks, and of functions that are captured. Of more than two dimensions, the
    table shows the first matrix. A value on a GPU is copied to host memory, as by `print`.
    """
    facts = [described(input), str(input.device)]
    if input.requires_grad:
        facts.append("requires grad" if input.is_leaf else "has a gradient function")
    head = f"<b>{escape(type(input).__name__)}</b> {escape(', '.join(facts))}"
    if 0 in input.shape or input.device is META:
        return f"<div>{head}</div>"
    if input.device.placement is not None:
        return f"<div>{head}<br>values lie on several ranks</div>"
    values = _present_values(input)
    if values is None:
        return f"<div>{head}<br>not computed yet</div>"
    leading = max(input.ndim - 2, 0)
    where = f"<br>[{', '.join(['0'] * leading + [':', ':'])}]" if leading else ""
    return f"<div>{head}{where}{_values_table(values[(0,) * leading])}</div>"


def _present_values(input: Tensor) -> np.ndarray | None:
    """The values of a tensor in host memory; None when something had to run for them."""
    if state.trace is not None:
        return None
    viewed = strided_values(input.call)
    if viewed is None:
        return None if input.call.is_pending else input._array()
    return viewed


def _values_table(values: np.ndarray) -> str:
    """The first and last rows and columns of at most two dimensions, with their numbers."""
    matrix = np.atleast_2d(values)
    rows, columns = (_shown(extent) for extent in matrix.shape)
    kept = matrix[np.ix_(*([k for k in one if k is not None] for one in (rows, columns)))]
    if kept.dtype.kind not in "ciub":
        # NumPy neither orders nor prints all narrow floats.
        kept = kept.astype(np.promote_types(kept.dtype, np.float32))
    formatter = formatter_of(kept)
    texts = [formatter.format(one).strip() for one in kept.reshape(-1).tolist()]
    if not values.ndim:
        return table([texts])
    remaining = iter(texts)
    lines: list[list[str]] = []
    for row in rows:
        cells = ["…" if row is None or column is None else next(remaining) for column in columns]
        lines.append(["…" if row is None else str(row), *cells] if values.ndim > 1 else cells)
    head = ["…" if column is None else str(column) for column in columns]
    return table(lines, ["", *head] if values.ndim > 1 else head)


def _shown(extent: int) -> list[int | None]:
    """The positions that a table shows of an axis; None stands for those left out."""
    edge = max(options.edgeitems, 1)
    if extent <= 2 * edge + 1:
        return list(range(extent))
    return [*range(edge), None, *range(extent - edge, extent)]


def _row(cells: Iterable[Any], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"
