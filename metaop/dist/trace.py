"""The signatures of a function of tensors: records and expands it, then applies the rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from metaop.dist.derivation import Signature, derive, text
from metaop.dist.sharding_search import assign
from metaop.errors import ArgumentError
from metaop.unified_graph.cut import cut_at
from metaop.unified_graph.node import Node, input_node
from metaop.unified_graph.rewrite import rebuild


def trace(function: Callable[..., Any], *tensors: Any) -> tuple[list[Node], list[Node]]:
    """The meta-operator graph of `function`: a node for each of `tensors`, and the outputs.

    Raises ArgumentError if the function uses other tensors that are already computed.
    """
    for tensor in tensors:
        tensor.buffer()
    result = function(*tensors)
    outputs = result if isinstance(result, (tuple, list)) else (result,)
    subgraph = cut_at([output.call for output in outputs], lambda call: ())
    nodes, kept = subgraph.expand()
    made = dict(zip(subgraph.outputs, kept))
    results = [made[output.call] for output in outputs]
    position = {call: k for k, call in enumerate(subgraph.leaves)}
    given = []
    for tensor in tensors:
        if tensor.call not in position:
            raise ArgumentError(
                f"the function does not use its argument of shape {list(tensor.shape)}",
                fix="remove the argument",
            )
        given.append(nodes[position[tensor.call]])
    others = [node for node in nodes if node not in given and node.shape != ()]
    if others:
        raise ArgumentError(
            f"the function uses a tensor of shape {list(others[0].shape)} besides its arguments",
            fix="pass every tensor as an argument",
        )
    # The numbers that the function uses become inputs too; they are equal on all ranks.
    ordered = [*given, *(node for node in nodes if node not in given)]
    fresh = [input_node(k, node.shape, node.dtype) for k, node in enumerate(ordered)]
    return fresh, rebuild(results, dict(zip(ordered, fresh)))


def signatures(function: Callable[..., Any], *tensors: Any, ranks: int = 2) -> list[str]:
    """The ways to run `function` on `ranks` ranks without communication, as `S0,B->S0`.

    `S1` is a split of dimension 1, `B` a copy on every rank, and `P` a partial value: the sum
    (`P(max)`: the maximum) of what the ranks hold. Signatures that another one implies are omitted.

    >>> metaop.distributed.signatures(metaop.exp, metaop.ones(4, 4))
    ['S0->S0', 'S1->S1', 'B->B']
    """
    inputs, outputs = trace(function, *tensors)
    return [text(entry) for entry in _only(derive(inputs, outputs, ranks), len(tensors))]


def _only(found: Sequence[Signature], count: int) -> list[Signature]:
    """The signatures in which the inputs after the first `count`, numbers, are replicated."""
    kept = [
        (inputs[:count], states)
        for inputs, states in found
        if all(repr(state) == "B" for state in inputs[count:])
    ]
    return list(dict.fromkeys(kept))


def explain(function: Callable[..., Any], *tensors: Any, ranks: int = 2) -> str:
    """A table of the signatures and their costs in milliseconds on one host, cheapest first.

    The cost is the time of sending and computing, and depends on the shapes. The first is chosen.

    >>> table = metaop.distributed.explain(metaop.exp, metaop.ones(4, 4))
    >>> table.splitlines()[0].split()[0]
    'signature'
    """
    inputs, outputs = trace(function, *tensors)
    rows = []
    for entry in derive(inputs, outputs, ranks):
        given, wanted = ([(state,) for state in side] for side in entry)
        plan = assign(inputs, given, outputs, (ranks,), wanted, boxing=False)
        rows.append((plan.cost(), text(entry)))
    rows.sort()
    lines = [f"{'signature':<28}{'cost in ms':>14}"]
    for k, (cost, line) in enumerate(rows):
        lines.append(f"{line:<28}{1e3 * cost:>14.6f}{'  chosen' if k == 0 else '  rejected'}")
    return "\n".join(lines)
