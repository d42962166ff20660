"""`METAOP_EXPLAIN=1`: why nodes were, or were not, put into one kernel."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from metaop.settings import get
from metaop.unified_graph.node import Node

if TYPE_CHECKING:
    from metaop.fusion.kernel import Kernel


def explain(decision: str, root: Node, kernel: Kernel) -> None:
    """Prints one decision of the fuser to stderr when METAOP_EXPLAIN is set."""
    if get("METAOP_EXPLAIN"):
        members = ", ".join(repr(member) for member in kernel.roots) or "a new kernel"
        print(f"[fusion] {decision}: {root!r} with {members}", file=sys.stderr)
