"""What launches that sort keep between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from metaop.unified_graph.node import MetaOp


@dataclass(frozen=True)
class Words(MetaOp):
    """The elements of rows while they are sorted; such nodes exist between launches only.

    A word has the key of an element above its index. Every launch makes new ones, by its number.
    """

    launch: int = 0
    name: ClassVar[str] = "words"
