"""A plan as text: the sharding and signature of every value, and what is sent."""

from __future__ import annotations

from collections.abc import Iterator

from metaop.dist.cost import sent_bytes
from metaop.dist.mesh_rules import MeshRule
from metaop.dist.moves import Move
from metaop.dist.sbp import BROADCAST, Partial, Sbp, Split, mesh_shape, nd_text, replaced
from metaop.dist.sharding_search import Plan, State
from metaop.unified_graph.node import Input, Node

_WIDTH = 64


def show_plan(plan: Plan) -> str:
    """One line per step, in the order of computing; values are numbered as in `show_graph`.

    Example:

        a mesh of shape [2]; its first rank sends 96 bytes
        %0 = input 0                        float32[8, 6]  S0
        …
        %3 = reduce add (i0<8, i1<6) … %2   float32[6]     S0 -> P
        %3 moves P -> B                     float32[6]     all-reduce, 24 bytes
        return %3 as B
    """
    numbers: dict[Node, str] = {}
    lines: list[tuple[str, str, str]] = []
    total = 0
    for pair in (*zip(plan.inputs, plan.given), *_steps(plan)):
        node, states = pair
        kind = f"{node.dtype.name}{list(node.shape)}"
        way = plan.table[node][states] if node in plan.table else None
        if way is not None and way.moved is not None:
            sent = _sent(node, way.moved, plan)
            total += sent
            text = f"{numbers[node]} moves {nd_text(way.moved.source)} -> {nd_text(states)}"
            lines.append((text, kind, _collective(way.moved, sent)))
            continue
        again = node in numbers
        name = numbers.setdefault(node, f"%{len(numbers)}")
        sources = "".join(f" {numbers[source]}" for source in node.inputs)
        what = "again" if again else node.op.describe(node)
        rule = None if way is None else way.rule
        sharding = nd_text(states) if rule is None else _signature(rule)
        lines.append(
            (f"{name} = {what}{'' if isinstance(node.op, Input) else sources}", kind, sharding)
        )
    width = min(max(len(text) for text, _, _ in lines), _WIDTH)
    kinds = max(len(kind) for _, kind, _ in lines)
    rows = [
        f"{text.ljust(width)}  {kind.ljust(kinds)}  {sharding}" for text, kind, sharding in lines
    ]
    ends = zip(plan.outputs, plan.states)
    returned = ", ".join(f"{numbers[node]} as {nd_text(states)}" for node, states in ends)
    head = f"a mesh of shape {list(plan.mesh)}; its first rank sends {total} bytes"
    return "\n".join([head, *rows, f"return {returned}"]) + "\n"


def _steps(plan: Plan) -> Iterator[State]:
    """Everything that is computed or moved, in order."""
    given = set(zip(plan.inputs, plan.given))
    return (pair for pair in plan.used if pair not in given)


def _signature(rule: MeshRule) -> str:
    result = nd_text(rule.output)
    return f"{','.join(map(nd_text, rule.inputs))} -> {result}" if rule.inputs else result


def _sent(node: Node, move: Move, plan: Plan) -> int:
    """The number of bytes that the first rank sends."""
    axis, first = move.axis, (0,) * len(plan.mesh)
    together = mesh_shape(node.shape, replaced(move.source, axis, BROADCAST), plan.mesh, first)
    states = move.source[axis], move.target[axis]
    return sent_bytes(*states, together, node.dtype.itemsize, plan.mesh[axis], 0)


def _collective(move: Move, sent: int) -> str:
    name = collective_name(move.source[move.axis], move.target[move.axis])
    along = f" along axis {move.axis}" if len(move.source) > 1 else ""
    return f"{name}{along}, {sent} bytes" if sent else f"{name}, nothing is sent"


def collective_name(source: Sbp, target: Sbp) -> str:
    """The name of the collective that performs a reshard."""
    if isinstance(source, Partial):
        return "reduce-scatter" if isinstance(target, Split) else "all-reduce"
    if isinstance(source, Split):
        if isinstance(target, Split):
            return "all-to-all"
        return "zeros around the block" if isinstance(target, Partial) else "all-gather"
    return "cut"
