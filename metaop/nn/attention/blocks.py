"""Blocks of positions: lists of those that take part in an attention, by row and by column."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from metaop.errors import ArgumentError, ShapeError
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import zeros
from metaop.tensor.functions.ordering import argsort
from metaop.tensor.functions.ranges import arange
from metaop.unified_graph import dtype as dtypes

_FEW_DIMENSIONS = 2


class Blocks(NamedTuple):
    """Blocks by row and by column: how many each has, and which. Full ones need no mask."""

    kv_num_blocks: Tensor
    kv_indices: Tensor
    full_kv_num_blocks: Tensor | None
    full_kv_indices: Tensor | None
    q_num_blocks: Tensor | None
    q_indices: Tensor | None
    full_q_num_blocks: Tensor | None
    full_q_indices: Tensor | None


def check_blocks(counts: Tensor, indices: Tensor) -> None:
    if indices.ndim < _FEW_DIMENSIONS or counts.ndim != indices.ndim - 1:
        raise ShapeError(
            f"BlockMask must have at least 2 dimensions, got kv_indices {list(indices.shape)} and "
            f"kv_num_blocks {list(counts.shape)}",
            fix="kv_indices is (B, H, rows, columns), kv_num_blocks (B, H, rows)",
        )


def check_pair(name: str, counts: Tensor | None, indices: Tensor | None) -> None:
    if (counts is None) != (indices is None):
        raise ArgumentError(
            f"{name}_num_blocks and {name}_indices must be both provided or omitted",
            fix="pass both, or none",
        )


def block_size(size: int | tuple[int, int]) -> tuple[int, int]:
    """The size of blocks in queries and keys."""
    rows, columns = (size, size) if isinstance(size, int) else size
    if rows < 1 or columns < 1:
        raise ArgumentError(f"BLOCK_SIZE is {size}", fix="a block has at least one query and key")
    return rows, columns


def block_sums(allowed: Any, size: tuple[int, int]) -> Any:
    """How many positions of each block are allowed: (B, H, L, S) -> (B, H, rows, columns)."""
    batch, heads, queries, keys = allowed.shape
    rows, columns = size
    down, across = -(-queries // rows), -(-keys // columns)
    shape = (batch, heads, down * rows, across * columns)
    padded: Any = zeros(shape, dtype=dtypes.bool_, device=allowed.device)
    padded[:, :, :queries, :keys] = allowed
    return padded.reshape(batch, heads, down, rows, across, columns).sum((3, 5))


def ordered(dense: Any) -> tuple[Any, Any]:
    """How many blocks of each row take part, and the numbers of all with these in front."""
    if dense is None:
        return None, None
    numbers: Any = argsort(dense.int(), -1, descending=True, stable=True)
    return dense.sum(-1).int(), numbers.int()


def dense_of(counts: Any, indices: Any) -> Any:
    """1 for blocks that take part, else 0, in int32: the inverse of `ordered`."""
    columns = indices.shape[-1]
    taking: Any = arange(columns, device=indices.device) < counts[..., None]
    # What follows the blocks of a row goes to a column that is cut off.
    places = indices.long().where(taking, columns)
    shape = (*indices.shape[:-1], columns + 1)
    dense: Any = zeros(shape, dtype=dtypes.int32, device=indices.device)
    return dense.scatter(-1, places, 1)[..., :columns]


def transposed(counts: Any, indices: Any) -> tuple[Any, Any]:
    """The blocks of each column."""
    if counts is None:
        return None, None
    return ordered(dense_of(counts, indices).transpose(-2, -1))


def spread(counts: Any, indices: Any, size: tuple[int, int], shape: Sequence[int]) -> Any:
    """Blocks as truth values of the positions of a mask of `shape`."""
    dense: Any = dense_of(counts, indices)
    rows, columns = size
    *lead, down, across = dense.shape
    wide = dense.bool()[..., :, None, :, None].expand(*lead, down, rows, across, columns)
    positions = wide.reshape(*lead, down * rows, across * columns)
    return positions[..., : shape[-2], : shape[-1]]


def picture(dense: Any, grid_size: int | tuple[int, int], limit: int) -> str:
    """Blocks as text; see `BlockMask.to_string`."""
    values = dense.numpy()
    *lead, rows, columns = values.shape
    most = (grid_size, grid_size) if isinstance(grid_size, int) else grid_size
    down, across = (1 if m < 1 else max(1, -(-n // m)) for m, n in zip(most, (rows, columns)))
    pictures = []
    for number, place in enumerate(itertools.product(*map(range, lead))):
        if number == limit:
            pictures += [
                "...",
                "To print out more, set BlockMask.to_string(limit=N)",
                "Index the mask (block_mask[batch, head]) to choose a batch or head",
            ]
            break
        lines = [
            "".join(
                2 * _shade(values[place][r : r + down, c : c + across].mean())
                for c in range(0, columns, across)
            )
            for r in range(0, rows, down)
        ]
        pictures.append("\n".join([str(place), *lines, ""]))
    return "\n".join(pictures)


def _shade(share: float) -> str:
    """The character for a share of blocks that take part."""
    return {0.0: " ", 1.0: "█"}.get(float(share), "░")
