"""The connectionist temporal classification loss (A. Graves et al., ICML 2006)."""

from __future__ import annotations

import math

from metaop.elementwise.meta_op import apply, cast, where
from metaop.errors import ShapeError
from metaop.operators.expressions import (
    in_compute_type,
    index_along,
    mean,
    reduce_loss,
    stop_gradient,
)
from metaop.reduce.meta_op import reduce_axes
from metaop.reindex.meta_op import reindex
from metaop.reindex.views import pad, reshape, select, slice_dimension, take, unsqueeze
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.access import IndexMap
from metaop.unified_graph.composite import composite
from metaop.unified_graph.index_expr import lookup
from metaop.unified_graph.loop import Body, body_inputs, last
from metaop.unified_graph.node import Node


@composite
@in_compute_type
def ctc_loss(
    scores: Node,
    targets: Node,
    places: Node | None,
    going: Node,
    target_lengths: Node,
    blank: int,
    reduction: str,
    zero_infinity: bool,
    is_loop: bool,
) -> Node:
    """The negative log-probability of the targets, summed over all alignments.

    scores (T, N, C) are log-probabilities, targets (N, S), target_lengths (N). Concatenated targets
    (total) come with the `places` (N, S) of each element. `going` (T, N) says which samples have
    not ended; it is an input so that the kernels of all steps differ in offsets only. The steps are
    unrolled, or form a loop whose step is compiled once, however long the sequence is.
    """
    targets = cast(targets, dtypes.int64)
    targets = targets if places is None else take(targets, 0, places)
    batch = scores.shape[1]
    if targets.ndim != 2 or {targets.shape[0], going.shape[-1], target_lengths.size} != {batch}:
        raise ShapeError(
            f"ctc_loss: targets {list(targets.shape)} do not fit scores {list(scores.shape)}",
            fix="scores are (T, N, C), targets (N, S) or concatenated, lengths (N)",
        )
    labels = _with_blanks(targets, target_lengths, blank)
    # Two labels may follow each other without a blank between them unless they are equal.
    before = pad(labels, (0, 2), (0, -2), -1)
    jumps = labels.differs(blank) & labels.differs(before)
    emitted = _emitted(scores, labels)
    place = index_along(labels.shape, 1)
    state = where(place < 2, select(emitted, 0, 0), -math.inf)
    run = _repeated if is_loop else _written_out
    state = run(state, emitted, going, jumps)
    end = unsqueeze(target_lengths * 2, 1)
    ends = [
        reduce_axes("max", where(place.equals(one), state, -math.inf), [1])
        for one in (end, end - 1)
    ]
    loss = -_log_of_sum(*ends)
    if zero_infinity:
        loss = where(loss.equals(math.inf), 0, loss)
    if reduction != "mean":
        return reduce_loss(loss, reduction)
    share = apply("maximum", target_lengths, 1)
    return mean(loss / cast(share, loss.dtype), [0])


def _written_out(state: Node, emitted: Node, going: Node, jumps: Node) -> Node:
    for step in range(1, emitted.shape[0]):
        state = _advanced(state, select(emitted, 0, step), select(going, 0, step), jumps)
    return state


def _repeated(state: Node, emitted: Node, going: Node, jumps: Node) -> Node:
    further = emitted.shape[0] - 1
    operands = (
        state,
        slice_dimension(emitted, 0, 1, further),
        slice_dimension(going, 0, 1, further),
        jumps,
    )
    sliced = (True, True, False)
    _, *inputs = body_inputs(operands, 1, sliced)
    return last(Body((_advanced(*inputs),), sliced, further), operands, 0)


def _advanced(state: Node, emitted: Node, going: Node, jumps: Node) -> Node:
    """The log-probabilities of all places (N, 2 S + 1) after one more step."""
    previous = pad(state, (0, 1), (0, -1), -math.inf)
    jumped = where(jumps, pad(state, (0, 2), (0, -2), -math.inf), -math.inf)
    following = _log_of_sum(state, previous, jumped) + emitted
    return where(unsqueeze(going, 1), following, state)


def _with_blanks(targets: Node, target_lengths: Node, blank: int) -> Node:
    """Blanks before, between and after the labels: (N, S) -> (N, 2 S + 1)."""
    batch, longest = targets.shape
    valid = index_along(targets.shape, 1) < unsqueeze(target_lengths, 1)
    safe = where(valid, targets, blank)
    pairs = pad(reshape(safe, (batch, longest, 1)), (0, 0, 1), (0, 0, 0), blank)
    return pad(reshape(pairs, (batch, 2 * longest)), (0, 0), (0, 1), blank)


def _emitted(scores: Node, labels: Node) -> Node:
    """The score of each label at each time: (T, N, 2 S + 1)."""
    shape = (scores.shape[0], *labels.shape)
    axes = IndexMap.axes(shape)
    own = lookup(1, axes[1:], scores.shape[2])
    return reindex(scores, IndexMap(shape, [axes[0], axes[1], own]), 0, (labels,))


def _log_of_sum(*terms: Node) -> Node:
    """log(sum(exp(terms))), -inf without a gradient where every term is -inf; NaN stays."""
    largest = terms[0]
    for term in terms[1:]:
        largest = apply("maximum", largest, term)
    largest = stop_gradient(largest)
    reached = largest.differs(-math.inf)
    largest = where(reached, largest, 0)
    total = apply("exp", terms[0] - largest)
    for term in terms[1:]:
        total = total + apply("exp", term - largest)
    return where(reached, apply("log", where(reached, total, 1)) + largest, -math.inf)
