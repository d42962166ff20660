"""The decisions of grouping with their reasons, as values and as text.

`METAOP_EXPLAIN=1` prints them for every program that is compiled.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from metaop.fusion.kernel import Kernel
from metaop.unified_graph.node import Node


class Decision(NamedTuple):
    """A node and a kernel that it joined, or the reason why it did not."""

    root: Node
    kernel: Kernel
    refused: str | None = None


def show_decisions(decisions: Iterable[Decision]) -> str:
    """One line per decision; kernels are named by their first node."""
    return "".join(f"[fusion] {_show(*decision)}\n" for decision in decisions)


def _show(root: Node, kernel: Kernel, refused: str | None) -> str:
    first = kernel.roots[0]
    if refused is not None:
        return f"apart: {root!r} from {first!r}: {refused}"
    if root is not first:
        return f"fused: {root!r} with {first!r}"
    return f"{kernel.kind}: {root!r} in a new kernel"
