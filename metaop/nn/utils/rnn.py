"""Sequences of different lengths: padded, or packed without the padding."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from metaop.errors import ArgumentError, ShapeError
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import from_numpy, full, tensor
from metaop.tensor.functions.joining import cat, stack


class PackedSequence(NamedTuple):
    """Sequences interleaved by time step.

    `data` has the elements of step 0 of all sequences, then of step 1, …; `batch_sizes` tells how
    many sequences have each step. `sorted_indices` orders the user's sequences by length,
    `unsorted_indices` puts them back. Made by `pack_padded_sequence` and `pack_sequence`.
    """

    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None = None
    unsorted_indices: Tensor | None = None

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same sequences on another device or in another dtype."""
        return self._replace(data=self.data.to(*args, **kwargs))

    def cuda(self) -> PackedSequence:
        """The same sequences on the GPU."""
        return self.to("cuda")

    def cpu(self) -> PackedSequence:
        """The same sequences in host memory."""
        return self.to("cpu")

    def double(self) -> PackedSequence:
        """The same sequences in float64."""
        return self._replace(data=self.data.double())

    def float(self) -> PackedSequence:
        """The same sequences in float32."""
        return self._replace(data=self.data.float())

    @property
    def is_cuda(self) -> bool:
        return self.data.device.type == "cuda"


def sequence_lengths(batch_sizes: Sequence[int]) -> list[int]:
    """The lengths of packed sequences, longest first."""
    return [sum(size > k for size in batch_sizes) for k in range(batch_sizes[0])]


def _as_lengths(lengths: Any) -> list[int]:
    return [int(n) for n in (lengths.tolist() if isinstance(lengths, Tensor) else lengths)]


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Padded sequences (T, N, *) of the given lengths, packed.

    With `enforce_sorted` they have to come longest first; otherwise they are sorted.
    """
    sizes = _as_lengths(lengths)
    if batch_first:
        input = input.transpose(0, 1)
    if len(sizes) != input.shape[1]:
        raise ShapeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(sizes)} "
            f"(batch_size={input.shape[1]})",
            fix="give one length per sequence",
        )
    if min(sizes) <= 0:
        raise ArgumentError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' "
            "that is <= 0",
            fix="leave empty sequences out",
        )
    order = unsorted = None
    if enforce_sorted:
        if any(a < b for a, b in itertools.pairwise(sizes)):
            raise ArgumentError(
                "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True",
                fix="pass enforce_sorted=False",
            )
    else:
        positions = np.argsort([-n for n in sizes], kind="stable")
        order = from_numpy(positions)
        unsorted = invert_permutation(order)
        input = input.index_select(1, order)
        sizes = [sizes[k] for k in positions]
    batch_sizes = [sum(n > step for n in sizes) for step in range(sizes[0])]
    data = cat([input[step, :size] for step, size in enumerate(batch_sizes)], 0)
    return PackedSequence(data, tensor(batch_sizes), order, unsorted)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Packed sequences padded to one length (T, N, *), and their lengths."""
    batch_sizes = _as_lengths(sequence.batch_sizes)
    longest = len(batch_sizes)
    if total_length is not None and total_length < longest:
        raise ArgumentError(
            "Expected total_length to be at least the length of the longest sequence in input, "
            f"but got total_length={total_length} and max sequence length being {longest}",
            fix="pass a larger total_length",
        )
    padded = padded_steps(sequence.data, batch_sizes, padding_value)
    lengths = tensor(sequence_lengths(batch_sizes))
    if total_length is not None and total_length > longest:
        shape = (total_length - longest, *padded.shape[1:])
        more = full(shape, padding_value, dtype=padded.dtype, device=padded.device)
        padded = cat([padded, more], 0)
    if sequence.unsorted_indices is not None:
        padded = padded.index_select(1, sequence.unsorted_indices)
        lengths = lengths[sequence.unsorted_indices]
    return padded.transpose(0, 1) if batch_first else padded, lengths


def padded_steps(data: Tensor, batch_sizes: Sequence[int], value: float = 0.0) -> Tensor:
    """Packed data as (T, N, *), filled up with `value`."""
    steps = []
    start = 0
    for size in batch_sizes:
        step = data[start : start + size]
        missing = batch_sizes[0] - size
        if missing:
            shape = (missing, *data.shape[1:])
            step = cat([step, full(shape, value, dtype=data.dtype, device=data.device)], 0)
        steps.append(step)
        start += size
    return stack(steps, 0)


def packed_steps(padded: Tensor, batch_sizes: Sequence[int]) -> Tensor:
    """The inverse of `padded_steps`."""
    return cat([padded[step, :size] for step, size in enumerate(batch_sizes)], 0)


def pad_sequence(
    sequences: Sequence[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Tensors (L, *) of different lengths as one (T, N, *), filled up with `padding_value`."""
    if padding_side not in ("left", "right"):
        raise ArgumentError(f"padding_side must be 'left' or 'right', not {padding_side!r}")
    longest = max(sequence.shape[0] for sequence in sequences)
    padded = []
    for sequence in sequences:
        missing = longest - sequence.shape[0]
        if missing:
            shape = (missing, *sequence.shape[1:])
            fill = full(shape, padding_value, dtype=sequence.dtype, device=sequence.device)
            sequence = cat([sequence, fill] if padding_side == "right" else [fill, sequence], 0)
        padded.append(sequence)
    return stack(padded, 0 if batch_first else 1)


def unpad_sequence(
    padded_sequences: Tensor, lengths: Any, batch_first: bool = False
) -> list[Tensor]:
    """The inverse of `pad_sequence`."""
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    return [padded_sequences[k, :n] for k, n in enumerate(_as_lengths(lengths))]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Tensors (L, *) of different lengths, packed."""
    lengths = [sequence.shape[0] for sequence in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The inverse of `pack_sequence`."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that takes this one back."""
    if permutation is None:
        return None
    return from_numpy(np.argsort(permutation.numpy()))
