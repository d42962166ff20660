"""Which operands of a product PyTorch copies when it flattens them into batches of matrices.

The gradient reads the copy, so the operand may be written before it. All operands count as dense
and row-major; one that is not so may be copied in further cases.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import prod
from typing import Protocol

from metaop.unified_graph.node import Shape


class Equation(Protocol):
    """The labels of each operand and of the result of an Einstein sum."""

    @property
    def operands(self) -> tuple[tuple[str, ...], ...]: ...
    @property
    def result(self) -> tuple[str, ...]: ...


def copies_of_matrices(shapes: Sequence[Shape]) -> list[bool]:
    """Whether `matmul` copies each of its two operands."""
    left, right = shapes
    if len(left) == len(right) == 3 and 1 in (left[0], right[0]):
        left, right = (left[1:], right) if left[0] == 1 else (left, right[1:])
    if len(right) <= 2:
        return [False, False]
    if len(left) <= 2:
        # The rows of the product are the columns of all matrices on the right.
        rows, columns = range(len(right) - 2), len(right) - 1
        return [False, not _is_view(right, _dense(right), [[*rows, columns], [columns - 1]])]
    rank = max(len(left), len(right)) - 2
    both = [_padded(shape[:-2], rank) for shape in shapes]
    batch = tuple(map(max, *both))
    return [not _is_batch_of(shape, batch) for shape in shapes]


def copies_of_labels(shapes: Sequence[Shape], equation: Equation) -> list[bool]:
    """Whether `einsum`, which contracts its operands from the left, copies each of them."""
    sizes = [
        {name: n for name, n in zip(labels, shape) if n > 1}
        for labels, shape in zip(equation.operands, shapes)
    ]
    # PyTorch brings the dimensions of every operand into one order first.
    order = [*equation.result, *sorted(set().union(*sizes) - {*equation.result})]
    copied = [False] * len(shapes)
    done = sizes[0]
    for position, own in enumerate(sizes[1:], start=1):
        kept = {*equation.result}.union(*sizes[position + 1 :])
        summed = (done.keys() | own.keys()) - kept
        if summed:
            if position == 1:
                copied[0] = _is_copied(order, done, own, summed)
            copied[position] = _is_copied(order, own, done, summed)
        done = {name: n for name, n in {**done, **own}.items() if name in kept}
    return copied


def _is_copied(
    order: Sequence[str], own: dict[str, int], others: dict[str, int], summed: set[str]
) -> bool:
    """Whether an operand loses labels that it has alone, or cannot be a batch of matrices."""
    if (summed & own.keys()) - others.keys():
        return True
    places = {name: k for k, name in enumerate(own)}
    present = [name for name in order if name in own]
    groups = [
        [places[name] for name in present if name in others and name not in summed],
        [places[name] for name in present if name not in others],
        [places[name] for name in present if name in summed],
    ]
    shape = tuple(own.values())
    return not _is_view(shape, _dense(shape), groups)


def _is_batch_of(shape: Shape, batch: Shape) -> bool:
    """Whether matrices that are repeated to a batch are a view with one dimension for the batch."""
    own = _padded(shape[:-2], len(batch))
    strides = [step * (n > 1) for n, step in zip(own, _dense((*own, *shape[-2:])))]
    return _is_view(batch, strides, [range(len(batch))])


def _is_view(shape: Shape, strides: Sequence[int], groups: Iterable[Sequence[int]]) -> bool:
    """Whether the dimensions of each group can be joined without moving an element."""
    for group in groups:
        large = [k for k in group if shape[k] != 1]
        if any(strides[i] != strides[j] * shape[j] for i, j in pairwise(large)):
            return False
    return True


def _dense(shape: Sequence[int]) -> list[int]:
    return [prod(shape[k + 1 :]) for k in range(len(shape))]


def _padded(shape: Shape, rank: int) -> Shape:
    return (1,) * (rank - len(shape)) + shape
