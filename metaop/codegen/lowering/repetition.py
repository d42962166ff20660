"""The launch of a loop: repeats the launches of its body, on addresses that advance.

The body has its own schedule. A step reads its elements of operands and writes its elements of
stacked results in place. Carried values are double-buffered: one buffer is read and the other
written, alternately. Loop-invariant launches of the body run once.
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
    """The memory of a loop between its steps; such nodes exist only between launches."""

    body: Body
    name: ClassVar[str] = "workspace"


class Repetition(NamedTuple):
    """The loop that a launch repeats.

    `operands` and `results` are nodes of the launch; each result is that of a `Loop`. The
    `workspace` has the position of the step first, then carried values at the offsets `places`,
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
    """The graph of one step: its inputs, its outputs, and the loop-invariant inputs."""

    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    invariants: frozenset[Node]


def graph_of(kernel: Kernel) -> Graph:
    """The graph of one step of a kernel's loop; its outputs are carried, then stacked values."""
    op = kernel.roots[0].op
    assert isinstance(op, Loop)
    body, operands = op.definition, kernel.roots[0].inputs
    inputs = body_inputs(operands, len(body.carried), body.sliced)
    values = [root.op.stacked for root in kernel.roots if root.op.stacked is not None]  # type: ignore
    rest = inputs[1 + len(body.carried) :]
    alike = frozenset(node for node, flag in zip(rest, body.sliced) if not flag)
    return Graph(tuple(inputs), (*body.carried, *values), alike)


def lower_loop(kernel: Kernel, step: Schedule) -> list[LoweredKernel]:
    """The launch that computes all results of a loop, given the schedule of one step."""
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
    """The launches, with each loop replaced by those of its step."""
    for launch in launches:
        if launch.repetition is None:
            yield launch
        else:
            yield from flattened(launch.repetition.step.launches)
