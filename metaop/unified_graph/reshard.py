"""Resharding: the identity with a requested sharding, which the sharding search respects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from metaop.unified_graph.access import Access, IndexMap
from metaop.unified_graph.composite import composite
from metaop.unified_graph.node import MetaOp, Node


@dataclass(frozen=True)
class Reshard(MetaOp):
    """`y = x`, sharded as `sbp` says; a collective, or nothing if x already has that sharding.

    The gradient is sharded as `gradient_sbp` says, or else as the search chooses.
    """

    sbp: Any = None
    gradient_sbp: Any = None
    name: ClassVar[str] = "reshard"

    def access(self, node: Node) -> Access:
        identity = IndexMap.identity(node.shape)
        return Access(node.shape, (identity,), identity)

    def reference(self, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        return inputs[0]

    def describe(self, node: Node) -> str:
        wishes = (("to", self.sbp), ("gradient to", self.gradient_sbp))
        texts = [f"{word} {','.join(map(repr, sbp))}" for word, sbp in wishes if sbp is not None]
        return f"reshard {', '.join(texts)}"


@composite
def reshard(source: Node, sbp: Any) -> Node:
    """The same value, sharded as `sbp` says."""
    return Node(Reshard(sbp), (source,), source.shape, source.dtype)


@composite
def reshard_gradient(source: Node, sbp: Any) -> Node:
    """The same value; its gradient is sharded as `sbp` says."""
    return Node(Reshard(None, sbp), (source,), source.shape, source.dtype)
