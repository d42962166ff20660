"""Masks of attention with the blocks of positions that they leave out.

metaop compiles the function of a mask into the attention, so it needs no list of blocks: a mask
that was made from a function computes them when they are asked for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from metaop.errors import ArgumentError, ShapeError
from metaop.nn.attention.blocks import (
    Blocks,
    block_size,
    block_sums,
    check_blocks,
    check_pair,
    dense_of,
    ordered,
    picture,
    spread,
    transposed,
)
from metaop.nn.attention.masks import (
    MaskMod,
    allowed_by,
    noop_mask,
    require_mask,
    sizes_of,
)
from metaop.tensor.core import Tensor
from metaop.tensor.options import DeviceLike, device_of
from metaop.unified_graph.tensor_type import Device

_DEFAULT_SPARSE_BLOCK_SIZE = 128


def _block(name: str) -> Any:
    """A property that gives one of the tensors of a mask's blocks."""
    return property(lambda mask: getattr(mask._blocks(), name))


class BlockMask:
    """A mask of attention: a function of positions, and the blocks of them that take part.

    `create_block_mask` makes one from a function, `from_kv_blocks` from blocks: for each row of
    blocks of queries, `kv_num_blocks` (B, H, rows) says how many blocks of keys take part, and
    `kv_indices` (B, H, rows, columns) begins with their numbers. Blocks in `full_kv_num_blocks`
    and `full_kv_indices` are allowed as a whole, those of the others where `mask_mod` is true.
    `q_num_blocks` to `full_q_indices` say the same for each column. `shape` is
    (B, H, *seq_lengths); `BLOCK_SIZE` is the extent of a block in queries and keys. Raises
    ShapeError for indices of less than two dimensions, ArgumentError for half a pair.

    >>> from metaop.nn.attention.flex_attention import create_block_mask
    >>> mask = create_block_mask(lambda b, h, q, k: q <= k, 1, 1, 6, 6, "cpu", BLOCK_SIZE=2)
    >>> mask.shape, mask.kv_num_blocks.tolist(), mask.full_kv_num_blocks.tolist()
    ((1, 1, 6, 6), [[[1, 1, 1]]], [[[2, 1, 0]]])
    >>> print(mask)
    BlockMask(shape=(1, 1, 6, 6), sparsity=33.33%,
    (0, 0)
    ██████
      ████
        ██
    )
    """

    kv_num_blocks: Tensor = _block("kv_num_blocks")
    kv_indices: Tensor = _block("kv_indices")
    full_kv_num_blocks: Tensor | None = _block("full_kv_num_blocks")
    full_kv_indices: Tensor | None = _block("full_kv_indices")
    q_num_blocks: Tensor | None = _block("q_num_blocks")
    q_indices: Tensor | None = _block("q_indices")
    full_q_num_blocks: Tensor | None = _block("full_q_num_blocks")
    full_q_indices: Tensor | None = _block("full_q_indices")

    def __init__(
        self,
        seq_lengths: tuple[int, int],
        kv_num_blocks: Tensor,
        kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None,
        full_kv_indices: Tensor | None,
        q_num_blocks: Tensor | None,
        q_indices: Tensor | None,
        full_q_num_blocks: Tensor | None,
        full_q_indices: Tensor | None,
        BLOCK_SIZE: tuple[int, int] = (_DEFAULT_SPARSE_BLOCK_SIZE, _DEFAULT_SPARSE_BLOCK_SIZE),
        mask_mod: MaskMod = noop_mask,
    ) -> None:
        check_blocks(kv_num_blocks, kv_indices)
        check_pair("full_kv", full_kv_num_blocks, full_kv_indices)
        check_pair("full_q", full_q_num_blocks, full_q_indices)
        self._made: Blocks | None = None
        self._has_full = full_kv_num_blocks is not None
        self._given: Blocks | None = Blocks(
            kv_num_blocks,
            kv_indices,
            full_kv_num_blocks,
            full_kv_indices,
            q_num_blocks,
            q_indices,
            full_q_num_blocks,
            full_q_indices,
        )
        self._device: Device = kv_num_blocks.device
        self._leading = tuple(kv_indices.shape[:-2])
        self.seq_lengths = seq_lengths
        self.BLOCK_SIZE = BLOCK_SIZE
        self._mask_mod = mask_mod

    @classmethod
    def _of_function(
        cls,
        mask_mod: MaskMod,
        shape: tuple[int, int, int, int],
        device: Device,
        block_size: tuple[int, int],
        has_full: bool,
    ) -> BlockMask:
        """The mask of a function, whose blocks are computed when they are asked for."""
        self = cls.__new__(cls)
        self._given, self._made = None, None
        self._has_full = has_full
        self._device, self._leading, self.seq_lengths = device, shape[:2], shape[2:]
        self.BLOCK_SIZE, self._mask_mod = block_size, mask_mod
        return self

    @classmethod
    def from_kv_blocks(
        cls,
        kv_num_blocks: Tensor,
        kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None = None,
        full_kv_indices: Tensor | None = None,
        BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
        mask_mod: MaskMod | None = None,
        seq_lengths: tuple[int, int] | None = None,
        compute_q_blocks: bool = True,
    ) -> BlockMask:
        """The mask that allows the given blocks, and in those that are not full only `mask_mod`.

        The lengths are those of all blocks unless `seq_lengths` is given. Without
        `compute_q_blocks`, nothing is known by column.
        """
        check_blocks(kv_num_blocks, kv_indices)
        check_pair("full_kv", full_kv_num_blocks, full_kv_indices)
        size = block_size(BLOCK_SIZE)
        if seq_lengths is None:
            rows, columns = kv_indices.shape[-2:]
            seq_lengths = (rows * size[0], columns * size[1])
        by_column: tuple[Any, ...] = (None,) * 4
        if compute_q_blocks:
            by_column = (
                *transposed(kv_num_blocks, kv_indices),
                *transposed(full_kv_num_blocks, full_kv_indices),
            )
        by_row = (kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices)
        blocks = Blocks(*by_row, *by_column)._asdict()
        return cls(seq_lengths, **blocks, BLOCK_SIZE=size, mask_mod=mask_mod or noop_mask)

    @property
    def mask_mod(self) -> MaskMod:
        """The function of (b, h, q_idx, kv_idx); a new one leaves the blocks as they are."""
        return self._mask_mod

    @mask_mod.setter
    def mask_mod(self, mask_mod: MaskMod) -> None:
        self._given = self._blocks()
        self._mask_mod = mask_mod

    def _blocks(self) -> Blocks:
        if self._given is not None:
            return self._given
        if self._made is None:
            shape = (*self._leading, *self.seq_lengths)
            allowed = allowed_by(self._mask_mod, shape, self._device)
            number = block_sums(allowed, self.BLOCK_SIZE)
            taking, full = number > 0, None
            if self._has_full:
                full = number == math.prod(self.BLOCK_SIZE)
                taking = taking & ~full
            by_row = (*ordered(taking), *ordered(full))
            self._made = Blocks(*by_row, *transposed(*by_row[:2]), *transposed(*by_row[2:]))
        return self._made

    def _allowed(self, shape: Sequence[int], device: Device) -> Tensor | None:
        """Where scores of shape (B, H, L, S) take part; None for everywhere."""
        own = None
        if self._mask_mod is not noop_mask:
            own = allowed_by(self._mask_mod, shape, device)
        self._check_fit(shape)
        blocks = self._given
        if blocks is None:
            return own
        partial: Any = spread(*blocks[:2], self.BLOCK_SIZE, shape)
        if own is not None:
            partial = partial & own
        if blocks.full_kv_num_blocks is None:
            return partial
        return partial | spread(*blocks[2:4], self.BLOCK_SIZE, shape)

    def _check_fit(self, shape: Sequence[int]) -> None:
        """Raises ShapeError unless scores of shape (B, H, L, S) have this mask's sizes."""
        own = self.shape
        fits = len(own) == len(shape) and own[-2:] == tuple(shape[-2:])
        if not fits or any(x not in (1, y) for x, y in zip(own[:-2], shape)):
            raise ShapeError(
                f"block_mask was created for block_mask.shape={own} but got scores of shape "
                f"{tuple(shape)} (batch, heads, q_len, kv_len)",
                fix="create a block mask of these sizes; its B and H may be 1",
            )
        if self._given is None:
            return
        down, across = self._given.kv_indices.shape[-2:]
        covered = (down * self.BLOCK_SIZE[0], across * self.BLOCK_SIZE[1])
        if covered[0] < shape[-2] or covered[1] < shape[-1]:
            raise ShapeError(
                f"block_mask has blocks for {covered[0]} queries and {covered[1]} keys, but got "
                f"q_len={shape[-2]} and kv_len={shape[-1]}",
                fix="set seq_lengths to what the blocks cover",
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """(B, H, *seq_lengths)."""
        return (*self._leading, *self.seq_lengths)

    def numel(self) -> int:
        """The number of positions, allowed or not."""
        return math.prod(self.shape)

    def sparsity(self) -> float:
        """The percentage of positions in blocks that are left out as a whole."""
        blocks: Any = self._blocks()
        taking = blocks.kv_num_blocks.sum().item()
        if blocks.full_kv_num_blocks is not None:
            taking += blocks.full_kv_num_blocks.sum().item()
        return 100 * (1 - taking * math.prod(self.BLOCK_SIZE) / self.numel())

    def to_dense(self) -> Tensor:
        """1 for blocks that take part, else 0: (B, H, rows, columns) in int32."""
        blocks = self._blocks()
        dense: Any = dense_of(blocks.kv_num_blocks, blocks.kv_indices)
        if blocks.full_kv_num_blocks is None:
            return dense
        return dense | dense_of(blocks.full_kv_num_blocks, blocks.full_kv_indices)

    def as_tuple(self, flatten: bool = True) -> tuple[Any, ...]:
        """The lengths, the tensors, the block size and the function, in PyTorch's order.

        Four entries that only some of PyTorch's kernels use are None. Without `flatten`, the two
        lengths are one entry, and so are the two block sizes.
        """
        lengths, sizes = tuple(self.seq_lengths), tuple(self.BLOCK_SIZE)
        others = (None,) * 4
        if flatten:
            return (*lengths, *self._blocks(), *others, *sizes, self.mask_mod)
        return (lengths, *self._blocks(), *others, sizes, self.mask_mod)

    def __getitem__(self, index: Any) -> BlockMask:
        """The mask of some batches, heads and rows of blocks.

        Its function is unknown, because positions count from elsewhere: set `mask_mod`.
        """
        given = index if isinstance(index, tuple) else (index,)
        blocks = self._blocks()
        sizes = blocks.kv_num_blocks.shape
        places = [
            slice(i % n, i % n + 1) if isinstance(i, int) and -n <= i < n else i
            for i, n in zip((*given, *(slice(None),) * 3)[:3], sizes)
        ]
        by_row: Any = {
            name: None if x is None else x[tuple(places)]
            for name, x in blocks._asdict().items()
            if "kv" in name
        }
        return self.from_kv_blocks(
            **by_row,
            BLOCK_SIZE=self.BLOCK_SIZE,
            mask_mod=_mask_of_a_part,
            seq_lengths=self.seq_lengths,
            compute_q_blocks=blocks.q_indices is not None,
        )

    def to(self, device: DeviceLike) -> BlockMask:
        """The mask with its blocks on a device; what its function reads stays where it is."""
        place = device_of(device)
        if self._given is None:
            shape: Any = self.shape
            return self._of_function(self._mask_mod, shape, place, self.BLOCK_SIZE, self._has_full)
        given = self._given._asdict().items()
        blocks: Any = {name: None if x is None else x.to(place) for name, x in given}
        return BlockMask(
            self.seq_lengths, **blocks, BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=self._mask_mod
        )

    def __str__(self) -> str:
        picture = self.to_string().strip()
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%,\n{picture}\n)"

    def __repr__(self) -> str:
        name = getattr(self._mask_mod, "__name__", self._mask_mod)
        return f"BlockMask(shape={self.shape}, BLOCK_SIZE={self.BLOCK_SIZE}, mask_mod={name})"

    def to_string(self, grid_size: int | tuple[int, int] = (20, 20), limit: int = 4) -> str:
        """A picture of the blocks of each batch and head, of at most `grid_size` rows and columns.

        "█" are blocks that take part, " " blocks that do not; "░" stands for some of both. A
        `grid_size` of -1 draws every block. A note follows if there are more
        than `limit` pictures.
        """
        return picture(self.to_dense(), grid_size, limit)


def create_block_mask(
    mask_mod: MaskMod,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: DeviceLike = None,
    BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
    _compile: bool = False,
    separate_full_blocks: bool = True,
) -> BlockMask:
    """The mask of shape (B, H, Q_LEN, KV_LEN) that allows what `mask_mod` allows.

    `mask_mod(b, h, q_idx, kv_idx)` gets a position as tensors of shape () and returns a truth
    value. B or H is None or 1 if the mask is the same for all. The blocks of `BLOCK_SIZE` queries
    and keys are computed when they are asked for; with `separate_full_blocks`, those that are
    allowed as a whole are listed apart. Raises ArgumentError for functions of other arguments.

    >>> from metaop.nn.attention.flex_attention import create_block_mask
    >>> window = lambda b, h, q_idx, kv_idx: (q_idx - kv_idx).abs() < 100
    >>> create_block_mask(window, None, None, 512, 512, "cpu").to_dense()
    tensor([[[[1, 1, 0, 0],
              [1, 1, 1, 0],
              [0, 1, 1, 1],
              [0, 0, 1, 1]]]], dtype=metaop.int32)
    """
    require_mask(mask_mod)
    shape = sizes_of(B, H, Q_LEN, KV_LEN)
    size = block_size(BLOCK_SIZE)
    return BlockMask._of_function(mask_mod, shape, device_of(device), size, separate_full_blocks)


def _mask_of_a_part(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
    """Stands for the function of a mask that was indexed."""
    raise ArgumentError(
        "Cannot use mask_mod from a sliced BlockMask",
        fix="set mask_mod of the part, from the mask_mod of the whole and the offset of the part",
    )
