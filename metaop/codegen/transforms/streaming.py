"""Which results are written around the caches: those that would be evicted before they are read.

A plain store first reads the cache line that it changes. Between the write and the next read of an
element, about as many bytes pass through the caches as the launches in between access. If these are
more than the caches hold, nothing is lost by writing around them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from metaop.codegen.lowering import LoweredKernel
from metaop.codegen.machine import Thresholds
from metaop.codegen.nest import ir
from metaop.unified_graph.node import Node
from metaop.unified_graph.symbolic import hint_of


def stream_results(
    launches: Sequence[LoweredKernel], offsets: Mapping[Node, int], thresholds: Thresholds
) -> list[LoweredKernel]:
    """The launches, in order, with some results marked as streamed.

    `offsets` are those of temporaries in their arena: a result that overwrites an operand is
    already in the caches. Small results are not worth separate code.
    """
    behind = 0
    # The nodes accessed from the next launch that reads a node on.
    from_reader: dict[Node, int] = {}
    marked = []
    for launch in reversed(launches):
        behind += sum(hint_of(node.nbytes) for node in set(launch.buffers))
        read = launch.read
        taken = {offsets[node] for node in read if node in offsets}
        streamed = {
            node
            for node in set(launch.buffers).difference(read)
            if hint_of(node.nbytes) >= thresholds.least_bytes
            and offsets.get(node) not in taken
            and behind - from_reader.get(node, 0) >= thresholds.stream_bytes
        }
        marked.append(_marked(launch, streamed) if _is_plain(launch.nest.body) else launch)
        from_reader.update(dict.fromkeys(read, behind))
    return marked[::-1]


def _marked(launch: LoweredKernel, streamed: set[Node]) -> LoweredKernel:
    parameters = tuple(
        parameter._replace(streamed=node in streamed)
        for node, parameter in zip(launch.buffers, launch.nest.parameters)
    )
    if parameters == launch.nest.parameters:
        return launch  # those that are alike have the same nest
    return replace(launch, nest=launch.nest._replace(parameters=parameters))


def _is_plain(body: tuple[ir.Statement, ...]) -> bool:
    """Whether a launch writes by plain stores only; tiles are too narrow to stream."""
    return not any(
        isinstance(statement, (ir.MicroKernel, ir.ForeignCall, ir.Update))
        for statement in ir.simple_statements(body)
    )
