"""`Code`: a node that a user's kernel computes. The compiler knows its inputs and results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

import numpy as np

from metaop.errors import UnsupportedError
from metaop.unified_graph.access import Access
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.node import MetaOp, Node, Scalar, Shape

if TYPE_CHECKING:
    from metaop.codegen.nest.ir import LoopNest


class Result(NamedTuple):
    """A tensor that a kernel computes; with `initial` it is filled before the kernel runs."""

    shape: Shape
    dtype: DType
    initial: Scalar | None = None


class Definition(Protocol):
    """A kernel for operands of certain types. Definitions compare by identity."""

    @property
    def name(self) -> str:
        """The kernel's name in messages and profiles."""

    @property
    def digest(self) -> str:
        """A hash of everything that the kernel computes; "" if only this process knows it."""

    @property
    def results(self) -> tuple[Result, ...]:
        """The results, including memory that only its tasks see."""

    def nests(self, backend: str) -> Sequence[tuple[LoopNest, tuple[int, ...]]]:
        """The launches for a backend ("llvm" or "cuda"): each nest with the numbers of its buffers.

        Numbers count the inputs first and then the results.
        """

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results computed on the host with all checks; IndexError for a bad index."""


@dataclass(frozen=True)
class Code(MetaOp):
    """Result number `result` of a kernel; nodes of one definition and inputs are one launch."""

    definition: Definition
    result: int
    name: ClassVar[str] = "code"
    is_alone: ClassVar[bool] = True

    def access(self, node: Node) -> Access:
        raise UnsupportedError(
            f"{self.definition.name}: the elements that a custom kernel reads are not known, so it "
            "cannot be spread over ranks",
            fix="call it on the local part: tensor.to_local()",
        )

    def reference(self, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        return self.definition.run(inputs)[self.result]

    def describe(self, node: Node) -> str:
        return f"code {self.definition.name} {self.result}"


def results_of(node: Node) -> list[Node]:
    """All results of the kernel that computes a `Code` node, in order."""
    op = node.op
    assert isinstance(op, Code)
    return [
        Node(Code(op.definition, k), node.inputs, result.shape, result.dtype)
        for k, result in enumerate(op.definition.results)
    ]
