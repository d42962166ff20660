"""The derivation rule on meshes of several axes: one rule for each axis.

The axes of a mesh act independently: a rule for each makes a rule for all. Only if two axes split
the same dimension or the same loop axis do blocks of blocks have to fit; the interval rule decides
that for both axes together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations, product
from math import prod
from typing import NamedTuple

from metaop.dist.rules import Rule, is_source, rules, split_rules
from metaop.dist.sbp import BROADCAST, Mesh, NdSbp, Partial, Split
from metaop.unified_graph.node import Node, input_node
from metaop.unified_graph.reshard import Reshard


class MeshRule(NamedTuple):
    """One rule for each mesh axis; `inputs` and `output` are the combined states.

    `share` is the number of parts into which the mesh divides the work, `cut` the number of parts
    into which it divides the result.
    """

    parts: tuple[Rule, ...]
    inputs: tuple[NdSbp, ...]
    output: NdSbp
    share: int
    cut: int


def mesh_rules(node: Node, mesh: Mesh) -> tuple[MeshRule, ...]:
    """Every way to run `node` on a mesh without communication."""
    # Whatever computes the operands: layers that are alike share their rules.
    operands = [input_node(k, one.shape, one.dtype) for k, one in enumerate(node.inputs)]
    return _mesh_rules(Node(node.op, operands, node.shape, node.dtype), mesh)


@lru_cache(maxsize=1 << 14)
def _mesh_rules(node: Node, mesh: Mesh) -> tuple[MeshRule, ...]:
    if isinstance(node.op, Reshard) and node.op.sbp is not None:
        return tuple(_wishes(node.op.sbp))
    choices = [rules(node, ranks) + _free_splits(node, ranks) for ranks in mesh]
    return tuple(
        MeshRule(
            parts,
            tuple(zip(*(part.inputs for part in parts))),
            tuple(part.output for part in parts),
            prod(n for part, n in zip(parts, mesh) if part.kind == "split"),
            prod(n for part, n in zip(parts, mesh) if isinstance(part.output, Split)),
        )
        for parts in product(*choices)
        if _fit(node, parts, mesh)
    )


def _wishes(wished: NdSbp) -> Iterator[MeshRule]:
    """A partial result can come from a replicated value: one rank of each line keeps it."""
    choices = [(state, BROADCAST) if isinstance(state, Partial) else (state,) for state in wished]
    for states in product(*choices):
        parts = tuple(Rule((a,), b, "same") for a, b in zip(states, wished))
        yield MeshRule(parts, (states,), wished, 1, 1)


def _free_splits(node: Node, ranks: int) -> list[Rule]:
    """The rules of a node without operands, which may have any split."""
    if not is_source(node) or ranks == 1:
        return []
    return [
        Rule((), Split(axis), "split", axis)
        for axis, extent in enumerate(node.shape)
        if extent >= ranks
    ]


def _fit(node: Node, parts: Sequence[Rule], mesh: Mesh) -> bool:
    """Whether the rules are compatible."""
    if any(one != other and _overlap(one, other) for one, other in combinations(parts, 2)):
        return False
    for rule in set(parts):
        axes = tuple(ranks for part, ranks in zip(parts, mesh) if part == rule)
        if len(axes) > 1 and _overlap(rule, rule) and not _nests(node, rule, axes):
            return False
    return True


def _overlap(one: Rule, other: Rule) -> bool:
    """Whether both rules split the same loop axis or the same dimension of a tensor."""
    if one.kind == other.kind == "split" and one.axis == other.axis:
        return True
    pairs = zip((*one.inputs, one.output), (*other.inputs, other.output))
    return any(isinstance(a, Split) and a == b for a, b in pairs)


def _nests(node: Node, rule: Rule, mesh: Mesh) -> bool:
    """Whether all axes of `mesh` can follow the same rule, each within the blocks of the last."""
    ranks = prod(mesh)
    for shape, state in _cut(node, rule):
        if shape[state.axis] < ranks:
            return False
    if rule.kind != "split" or is_source(node):
        return True
    return rule in split_rules(node, mesh)


def _cut(node: Node, rule: Rule) -> Iterator[tuple[Sequence[int], Split]]:
    shapes = [*(source.shape for source in node.inputs), node.shape]
    for shape, state in zip(shapes, (*rule.inputs, rule.output)):
        if isinstance(state, Split):
            yield shape, state
