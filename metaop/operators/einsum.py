"""Einstein sums: parsed once, then one contraction after another, each a sum over one product."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from metaop.elementwise.meta_op import cast
from metaop.errors import ShapeError
from metaop.operators.linear import require_one_dtype
from metaop.reduce.meta_op import reduce_axes
from metaop.reindex.meta_op import reindex
from metaop.reindex.views import permute, reshape
from metaop.unified_graph.access import IndexMap
from metaop.unified_graph.composite import composite
from metaop.unified_graph.node import Node

# A dimension is named by a letter or, inside an ellipsis, by its distance from the end.
Label = str
Labels = tuple[Label, ...]


@dataclass(frozen=True)
class Equation:
    """The labels of every operand and of the result."""

    operands: tuple[Labels, ...]
    result: Labels


def parse(equation: str, ranks: Sequence[int]) -> Equation:
    """The equation with its ellipses expanded for operands of the given ranks."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ShapeError(
            f"einsum(): {equation!r} has {len(terms)} terms for {len(ranks)} operands",
            fix="write one term per operand, separated by commas",
        )
    operands = tuple(_labels(equation, term, rank) for term, rank in zip(terms, ranks))
    dots = max((sum(label[0] == "." for label in labels) for labels in operands), default=0)
    ellipsis = tuple(f".{k}" for k in range(dots, 0, -1))
    if arrow:
        return Equation(operands, _result_labels(equation, right, operands, ellipsis))
    counts = Counter(label for labels in operands for label in labels)
    once = sorted(label for label in counts if counts[label] == 1 and label[0] != ".")
    return Equation(operands, (*ellipsis, *once))


def _result_labels(
    equation: str, text: str, operands: tuple[Labels, ...], ellipsis: Labels
) -> Labels:
    before, dots, after = text.partition("...")
    result = (*before, *(ellipsis if dots else ()), *after)
    known = {label for labels in operands for label in labels}
    for label in result:
        if label not in known or result.count(label) > 1:
            raise ShapeError(
                f"einsum(): output subscript {label} of {equation!r} appears more than once or "
                "in no operand",
                fix="every output letter appears once, and in an operand",
            )
    return result


def _labels(equation: str, term: str, rank: int) -> Labels:
    before, dots, after = term.partition("...")
    if not all(letter.isalpha() for letter in before + after):
        raise ShapeError(
            f"einsum(): invalid subscript in {term!r} of {equation!r}",
            fix="subscripts are letters, with at most one ellipsis per term",
        )
    hidden = rank - len(before) - len(after)
    if hidden < 0 or (hidden and not dots):
        raise ShapeError(
            f"einsum(): the term {term!r} of {equation!r} does not fit an operand with {rank} "
            "dimensions",
            fix="write one letter per dimension, or an ellipsis",
        )
    return (*before, *(f".{k}" for k in range(hidden, 0, -1)), *after)


class _Operand:
    """A node with a label for each of its dimensions, all different."""

    def __init__(self, node: Node, labels: Labels) -> None:
        self.node = node
        self.labels = labels


def contracts(equation: Equation) -> bool:
    """Whether it sums over a label that several operands share, as a matrix product does."""
    shared = [label for labels in equation.operands for label in set(labels)]
    return any(shared.count(label) > 1 for label in set(shared) - set(equation.result))


@composite(variadic=True)
def einsum(operands: tuple[Node, ...], equation: Equation) -> Node:
    """The product of the operands, summed over all labels that the result lacks.

    Operands are contracted in pairs, the pair with the smallest result first.
    """
    require_one_dtype("einsum", **{f"operand {k}": node for k, node in enumerate(operands)})
    extents = _extents(operands, equation)
    dtype = operands[0].dtype
    remaining = [
        _Operand(*_diagonal(cast(node, dtype.compute), labels))
        for node, labels in zip(operands, equation.operands)
    ]
    if len(remaining) == 1:
        last = _reduced(remaining[0], set(equation.result))
    while len(remaining) > 1:
        first, second = _next_pair(remaining, equation.result, extents)
        others = [x for x in remaining if x is not first and x is not second]
        needed = set(equation.result).union(*(x.labels for x in others))
        last = _contract(first, second, needed, equation.result)
        remaining = [*others, last]
    order = [last.labels.index(label) for label in equation.result]
    return cast(permute(last.node, order), dtype)


def _extents(operands: Sequence[Node], equation: Equation) -> dict[Label, int]:
    extents: dict[Label, int] = {}
    for node, labels in zip(operands, equation.operands):
        for label, extent in zip(labels, node.shape):
            known = extents.setdefault(label, extent)
            if known == 1:
                extents[label] = extent
            elif extent not in (1, known):
                raise ShapeError(
                    f"einsum(): subscript {label} has size {extent} for an operand of shape "
                    f"{list(node.shape)}, which does not broadcast with previously seen size "
                    f"{known}",
                    fix="equal letters need equal sizes",
                )
    return extents


def _diagonal(node: Node, labels: Labels) -> tuple[Node, Labels]:
    """The operand without repeated labels, whose diagonal is read."""
    distinct = tuple(dict.fromkeys(labels))
    if len(distinct) == len(labels):
        return node, labels
    shape = tuple(node.shape[labels.index(label)] for label in distinct)
    axes = dict(zip(distinct, IndexMap.axes(shape)))
    return reindex(node, IndexMap(shape, [axes[label] for label in labels])), distinct


def _reduced(operand: _Operand, needed: set[Label]) -> _Operand:
    dims = [k for k, label in enumerate(operand.labels) if label not in needed]
    labels = tuple(label for label in operand.labels if label in needed)
    return _Operand(reduce_axes("add", operand.node, dims), labels)


def _next_pair(
    operands: list[_Operand], result: Labels, extents: dict[Label, int]
) -> tuple[_Operand, _Operand]:
    best: tuple[float, int, int] | None = None
    for i, first in enumerate(operands):
        for j in range(i + 1, len(operands)):
            others = [x.labels for k, x in enumerate(operands) if k not in (i, j)]
            needed = set(result).union(*others)
            joint = set(first.labels) | set(operands[j].labels)
            size = math.prod(extents[label] for label in joint & needed)
            cost = (size - first.node.size - operands[j].node.size, i, j)
            best = cost if best is None or cost < best else best
    assert best is not None
    return operands[best[1]], operands[best[2]]


def _contract(first: _Operand, second: _Operand, needed: set[Label], result: Labels) -> _Operand:
    """One sum over one product, dimensions in the order batch, M, N, K."""
    first = _reduced(first, needed | set(second.labels))
    second = _reduced(second, needed | set(first.labels))
    place = {label: k for k, label in enumerate(result)}
    kept = [label for label in dict.fromkeys(first.labels + second.labels) if label in needed]
    kept.sort(key=lambda label: place.get(label, len(place)))
    batch = [label for label in kept if label in first.labels and label in second.labels]
    rows = [label for label in kept if label not in second.labels]
    columns = [label for label in kept if label not in first.labels]
    summed = [label for label in first.labels if label in second.labels and label not in needed]
    order = (*batch, *rows, *columns, *summed)
    product = _spread(first, order) * _spread(second, order)
    # A summed label of extent 1 in one operand only still sums over the other's extent.
    dims = range(len(order) - len(summed), len(order))
    return _Operand(reduce_axes("add", product, dims), order[: len(order) - len(summed)])


def _spread(operand: _Operand, order: Labels) -> Node:
    """The operand with its dimensions in `order`; those that it lacks have extent 1."""
    present = [label for label in order if label in operand.labels]
    node = permute(operand.node, [operand.labels.index(label) for label in present])
    extents = dict(zip(present, node.shape))
    return reshape(node, tuple(extents.get(label, 1) for label in order))
