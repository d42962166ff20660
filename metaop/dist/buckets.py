"""Buckets: all-reduces of many small values in one message.

Gradients are numerous and mostly small. Those on one level of a plan that are all-reduced with the
same operation along the same mesh axis are packed side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from metaop.dist.moves import Move
from metaop.dist.sbp import BROADCAST, Mesh, NdSbp, Partial
from metaop.unified_graph.node import Node

# The transfer time of a message this large is many times the latency.
BUCKET_BYTES = 4 << 20

Box = tuple[Node, Move]


class Bucket(NamedTuple):
    """Collectives that share one message; only all-reduces share one."""

    boxes: tuple[Box, ...]

    @property
    def is_packed(self) -> bool:
        """Whether the values of several boxes are packed side by side."""
        return len(self.boxes) > 1


def buckets(boxes: Sequence[Box]) -> list[Bucket]:
    """Groups the boxes of one level into messages, in the same order on all ranks."""
    found: list[list[Box]] = []
    open_bucket: dict[tuple, int] = {}
    filled: dict[int, int] = {}
    for box in boxes:
        node, move = box
        kind = _kind(node, move)
        number = open_bucket.get(kind) if kind is not None else None
        if number is None or filled[number] + node.nbytes > BUCKET_BYTES:
            number = len(found)
            found.append([])
            filled[number] = 0
            if kind is not None:
                open_bucket[kind] = number
        found[number].append(box)
        filled[number] += node.nbytes
    return [Bucket(tuple(group)) for group in found]


def _kind(node: Node, move: Move) -> tuple | None:
    """The key of boxes that may share a bucket; None for a box that is sent alone."""
    source, target = move.source[move.axis], move.target[move.axis]
    if isinstance(source, Partial) and target is BROADCAST:
        return (move.axis, source, node.dtype)
    return None


def packed_move(bucket: Bucket, mesh: Mesh) -> Move:
    """The reduction of the packed values, which other mesh axes do not split."""
    _, move = bucket.boxes[0]
    whole: NdSbp = (BROADCAST,) * len(mesh)
    source = (*whole[: move.axis], move.source[move.axis], *whole[move.axis + 1 :])
    return Move(move.axis, source, whole)
