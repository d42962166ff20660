"""The connectionist temporal classification loss."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from metaop.errors import ArgumentError, ShapeError
from metaop.nn.functional.arguments import is_loop, reduction_of
from metaop.operators import sequence_losses as operators
from metaop.tensor.core import Tensor, from_array, wrap
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.recording import Call, record
from metaop.unified_graph.tensor_type import Device

Lengths = Tensor | Sequence[int]


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """The negative log-probability of unaligned label sequences.

    log_probs (T, N, C) or (T, C); targets (N, S) or concatenated; lengths (N) or numbers. "mean"
    first divides each loss by its target's length. With `zero_infinity`, impossible targets have
    loss 0. The recursion over T is a loop, whose step is compiled once. From Graves et al.,
    "Connectionist temporal classification" (2006).

    >>> log_probs = metaop.full((2, 1, 2), 0.5).log()
    >>> F.ctc_loss(log_probs, metaop.tensor([[1]]), (2,), (1,))
    tensor(0.2877)
    """
    reduction = reduction_of("ctc_loss", reduction)
    if log_probs.ndim not in (2, 3):
        raise ShapeError(
            f"ctc_loss: expected log_probs (T, N, C) or (T, C), got {list(log_probs.shape)}",
            fix="add or merge dimensions first",
        )
    batched = log_probs.ndim == 3
    scores = log_probs if batched else log_probs.unsqueeze(1)  # type: ignore[attr-defined]
    times, sizes = _numbers(input_lengths), _numbers(target_lengths)
    if times.max(initial=0) > scores.shape[0]:
        raise ArgumentError(
            f"ctc_loss: input_lengths {times.tolist()} exceed the {scores.shape[0]} time steps",
            fix="lengths are at most T",
        )
    if not batched and targets.ndim == 1:
        targets = targets.unsqueeze(0)  # type: ignore[attr-defined]
    device = scores.device
    places = _places(sizes, device) if targets.ndim == 1 else None
    calls = (scores.call, targets.call, places, _going(times, scores), _leaf(sizes, device))
    attributes = (blank, reduction, zero_infinity, is_loop(scores))
    result = wrap(record(operators.ctc_loss, calls, attributes))
    if batched or reduction != "none":
        return result
    return result.squeeze(0)  # type: ignore[attr-defined]


def _numbers(lengths: Lengths) -> np.ndarray:
    values = lengths._array() if isinstance(lengths, Tensor) else np.asarray(lengths)
    return np.atleast_1d(values).astype(np.int64)


def _leaf(values: np.ndarray, device: Device) -> Call:
    return from_array(np.ascontiguousarray(values), dtypes.int64, device).call


def _going(times: np.ndarray, scores: Tensor) -> Call:
    """Which samples have not ended at each time step: (T, N)."""
    steps = np.arange(scores.shape[0])[:, None]
    return from_array(steps < times, dtypes.bool_, scores.device).call


def _places(sizes: np.ndarray, device: Device) -> Call:
    """The index of each sample's labels in the concatenated ones; past a target's end, the last."""
    begins = np.cumsum(sizes) - sizes
    column = np.arange(max(int(sizes.max(initial=0)), 1))
    inside = np.minimum(column, np.maximum(sizes[:, None] - 1, 0))
    return _leaf(np.minimum(begins[:, None] + inside, max(int(sizes.sum()) - 1, 0)), device)
