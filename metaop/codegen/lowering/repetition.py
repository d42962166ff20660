"""The launch of a loop: the launches of its body, again and again, on memory that moves along.

The body is a schedule of its own. A step reads its elements of operands, and writes those of
stacked results, where they lie; what is carried has two places, of which one is read and the other
is written by turns. Those launches of the body that compute the same in every step run once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from metaop.codegen.lowering.base.kernel import LoweredKernel
from metaop.codegen.nest import ir
from metaop.fusion.kernel import Kernel
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.loop import Body, Loop, body_inputs
from metaop.unified_graph.node import MetaOp, Node

if TYPE_CHECKING:
    from metaop.codegen.schedule import Schedule

_ALIGNMENT = 64


@dataclass(frozen=True)
class _Workspace(MetaOp):
    """The memory of a loop between its steps; such nodes exist between launches only."""

    body: Body
    name: ClassVar[str] = "workspace"


class Repetition(NamedTuple):
    """What a launch repeats.

    `operands` and `results` are nodes of the launch; each result is that of a `Loop`. Of the
    `workspace`, the position of the step lies first, then what is carried at the offsets `places`,
    then the temporaries of a step from `arena` on.
    """

    body: Body
    step: Schedule
    operands: tuple[Node, ...]
    results: tuple[Node, ...]
    workspace: Node
    places: tuple[Any, ...]
    arena: Any


class Graph(NamedTuple):
    """The graph of one step: its inputs and outputs, and the inputs that all steps read alike."""

    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    invariants: frozenset[Node]


def graph_of(kernel: Kernel) -> Graph:
    """The graph of one step of the loop of a kernel; stacked values stand behind carried ones."""
    op = kernel.roots[0].op
    assert isinstance(op, Loop)
    body, operands = op.definition, kernel.roots[0].inputs
    inputs = body_inputs(operands, len(body.carried), body.sliced)
    values = [root.op.stacked for root in kernel.roots if root.op.stacked is not None]  # type: ignore
    rest = inputs[1 + len(body.carried) :]
    alike = frozenset(node for node, flag in zip(rest, body.sliced) if not flag)
    return Graph(tuple(inputs), (*body.carried, *values), alike)


def lower_loop(kernel: Kernel, step: Schedule) -> list[LoweredKernel]:
    """The launch that computes all results of a loop, of which one step is a schedule."""
    op, operands = kernel.roots[0].op, kernel.roots[0].inputs
    assert isinstance(op, Loop)
    body = op.definition
    end: Any = _ALIGNMENT
    places = []
    for node in body.carried:
        places.append(end)
        end = end + 2 * aligned(node.nbytes)
    size = end + step.arena_bytes
    workspace = Node(_Workspace(body), operands, (size,), dtypes.uint8)
    results = tuple(kernel.roots)
    buffers = (*operands, *results, workspace)
    roles = ["read"] * len(operands) + ["write"] * (len(results) + 1)
    parameters = tuple(ir.Parameter(node.dtype, role) for node, role in zip(buffers, roles))
    nest = ir.LoopNest("loop", parameters, (), ())
    repetition = Repetition(body, step, operands, results, workspace, tuple(places), end)
    return [LoweredKernel(nest, buffers, repetition=repetition)]


def aligned(nbytes: Any) -> Any:
    """A number of bytes rounded up to whole cache lines."""
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


def flattened(launches: Sequence[LoweredKernel]) -> Iterator[LoweredKernel]:
    """The launches, with those of its step in place of a loop."""
    for launch in launches:
        if launch.repetition is None:
            yield launch
        else:
            yield from flattened(launch.repetition.step.launches)
