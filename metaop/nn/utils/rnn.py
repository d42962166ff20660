"""Sequences of different lengths, padded or packed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from metaop.errors import ArgumentError, ShapeError
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import from_numpy, tensor
from metaop.tensor.functions.joining import cat


class PackedSequence(NamedTuple):
    """Sequences interleaved by time step.

    `data` has the elements of step 0 of all sequences, then of step 1, …; `batch_sizes` counts the
    sequences at each step. `sorted_indices` sorts the user's sequences by length,
    `unsorted_indices` restores their order. Made by `pack_padded_sequence` and `pack_sequence`.

    Elements keep their shape (*); the data is (sum of the lengths, *).

    >>> packed = nn.utils.rnn.pack_sequence([metaop.tensor([1, 2, 3]), metaop.tensor([4])])
    >>> packed.data, packed.batch_sizes
    (tensor([1, 4, 2, 3]), tensor([2, 1, 1]))
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
    """The lengths of packed sequences, longest first, from the number of sequences at each step.

    >>> nn.utils.rnn.sequence_lengths([2, 1, 1])
    [3, 1]
    """
    return [int(n) for n in _present(batch_sizes).sum(0)]


def _present(batch_sizes: Sequence[int]) -> np.ndarray:
    """Whether each step exists in each sequence: (T, N)."""
    return np.arange(batch_sizes[0]) < np.array(batch_sizes)[:, None]


def _filled(rows: Tensor, present: np.ndarray, places: np.ndarray, value: float) -> Tensor:
    """The rows at `places` where `present`, and `value` elsewhere: (*present.shape, …).

    Places are data rather than slices, so one program serves all lengths.
    """
    inside = from_numpy(np.where(present, places, 0).reshape(-1)).to(rows.device)
    found = rows.index_select(0, inside).unflatten(0, present.shape)
    wide = present.reshape(*present.shape, *[1] * (rows.ndim - 1))
    return found.masked_fill(from_numpy(~wide).to(rows.device), value)


def _as_lengths(lengths: Any) -> list[int]:
    return [int(n) for n in (lengths.tolist() if isinstance(lengths, Tensor) else lengths)]


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Packs padded sequences (T, N, *) of the given lengths.

    With `enforce_sorted`, the longest must come first; otherwise they are sorted.

    >>> padded = metaop.tensor([[1, 4], [2, 0], [3, 0]])
    >>> nn.utils.rnn.pack_padded_sequence(padded, [3, 1]).data
    tensor([1, 4, 2, 3])
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
    if not sizes:
        raise ArgumentError("Cannot pack empty tensors.", fix="pass at least one sequence")
    if min(sizes) <= 0:
        raise ArgumentError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' "
            "that is <= 0",
            fix="remove empty sequences",
        )
    if max(sizes) > input.shape[0]:
        raise ShapeError(
            f"a length of {max(sizes)} is larger than the {input.shape[0]} padded steps",
            fix="give the lengths before padding",
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
        order = from_numpy(positions).to(input.device)
        unsorted = invert_permutation(order)
        input = input.index_select(1, order)
        sizes = [sizes[k] for k in positions]
    batch_sizes = [int(n) for n in (np.array(sizes) > np.arange(sizes[0])[:, None]).sum(1)]
    data = packed_steps(input, batch_sizes)
    return PackedSequence(data, tensor(batch_sizes), order, unsorted)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Pads packed sequences to one length (T, N, *); also returns their lengths.

    >>> packed = nn.utils.rnn.pack_sequence([metaop.tensor([1, 2]), metaop.tensor([4])])
    >>> nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
    (tensor([[1, 2],
            [4, 0]]), tensor([2, 1]))
    """
    batch_sizes = _as_lengths(sequence.batch_sizes)
    longest = len(batch_sizes)
    if total_length is not None and total_length < longest:
        raise ArgumentError(
            "Expected total_length to be at least the length of the longest sequence in input, "
            f"but got total_length={total_length} and max sequence length being {longest}",
            fix="pass a larger total_length",
        )
    padded = padded_steps(sequence.data, batch_sizes, padding_value, total_length)
    lengths = tensor(sequence_lengths(batch_sizes))
    if sequence.unsorted_indices is not None:
        padded = padded.index_select(1, sequence.unsorted_indices)
        lengths = lengths[sequence.unsorted_indices]
    return padded.transpose(0, 1) if batch_first else padded, lengths


def padded_steps(
    data: Tensor, batch_sizes: Sequence[int], value: float = 0.0, total_length: int | None = None
) -> Tensor:
    """Packed data as (T, N, *), padded with `value`.

    >>> nn.utils.rnn.padded_steps(metaop.tensor([1, 4, 2]), [2, 1])
    tensor([[1, 4],
            [2, 0]])
    """
    missing = 0 if total_length is None else total_length - len(batch_sizes)
    present = _present([*batch_sizes, *[0] * missing])
    return _filled(data, present, np.cumsum(present).reshape(present.shape) - 1, value)


def packed_steps(padded: Tensor, batch_sizes: Sequence[int]) -> Tensor:
    """The inverse of `padded_steps`: (T, N, *) without its padding.

    >>> nn.utils.rnn.packed_steps(metaop.tensor([[1, 4], [2, 0]]), [2, 1])
    tensor([1, 4, 2])
    """
    places = from_numpy(np.flatnonzero(_present(batch_sizes))).to(padded.device)
    return padded.flatten(0, 1).index_select(0, places)


def pad_sequence(
    sequences: Sequence[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Stacks tensors (L, *) of different lengths to (T, N, *), padded with `padding_value`.

    >>> nn.utils.rnn.pad_sequence([metaop.tensor([1, 2]), metaop.tensor([4])], batch_first=True)
    tensor([[1, 2],
            [4, 0]])
    """
    if padding_side not in ("left", "right"):
        raise ArgumentError(f"padding_side must be 'left' or 'right', not {padding_side!r}")
    lengths = np.array([sequence.shape[0] for sequence in sequences])
    steps = np.arange(lengths.max(initial=0))
    if padding_side == "left":
        steps = steps - steps.size + lengths[:, None]
    else:
        steps = np.broadcast_to(steps, (lengths.size, steps.size))
    present = (0 <= steps) & (steps < lengths[:, None])
    places = steps + (np.cumsum(lengths) - lengths)[:, None]
    if not batch_first:
        present, places = present.T, places.T
    return _filled(cat(list(sequences), 0), present, places, padding_value)


def unpad_sequence(
    padded_sequences: Tensor, lengths: Any, batch_first: bool = False
) -> list[Tensor]:
    """The inverse of `pad_sequence`: a list of tensors (L, *).

    >>> padded = metaop.tensor([[1, 2], [4, 0]])
    >>> nn.utils.rnn.unpad_sequence(padded, metaop.tensor([2, 1]), batch_first=True)
    [tensor([1, 2]), tensor([4])]
    """
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    return [padded_sequences[k, :n] for k, n in enumerate(_as_lengths(lengths))]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Packs tensors (L, *) of different lengths.

    With `enforce_sorted`, the longest must come first.

    >>> nn.utils.rnn.pack_sequence([metaop.tensor([1, 2]), metaop.tensor([4])]).data
    tensor([1, 4, 2])
    """
    lengths = [sequence.shape[0] for sequence in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences that `pack_sequence` packed: a list of tensors (L, *).

    >>> packed = nn.utils.rnn.pack_sequence([metaop.tensor([1, 2]), metaop.tensor([4])])
    >>> nn.utils.rnn.unpack_sequence(packed)
    [tensor([1, 2]), tensor([4])]
    """
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The inverse permutation, of the same size.

    >>> nn.utils.rnn.invert_permutation(metaop.tensor([2, 0, 1]))
    tensor([1, 2, 0])
    """
    if permutation is None:
        return None
    return from_numpy(np.argsort(permutation.numpy(force=True))).to(permutation.device)
