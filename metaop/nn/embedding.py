"""Embedding tables, looked up by index."""

from __future__ import annotations

from typing import Any, TypeVar

from metaop.errors import ArgumentError, ShapeError
from metaop.nn import functional as F
from metaop.nn import init
from metaop.nn.module import Module
from metaop.nn.parameter import Parameter
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import empty
from metaop.tensor.grad_mode import no_grad

Self = TypeVar("Self", bound="_Table")


class _Table(Module):
    """The weight (num_embeddings, embedding_dim), with an optional row that stays fixed."""

    num_embeddings: int
    embedding_dim: int
    padding_idx: int | None
    max_norm: float | None
    norm_type: float
    scale_grad_by_freq: bool

    def _make(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None,
        weight: Tensor | None,
        freeze: bool,
        device: Any,
        dtype: Any,
    ) -> None:
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise ArgumentError(
                f"padding_idx {padding_idx} must be within num_embeddings {num_embeddings}",
                fix="use an existing row",
            )
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        shape = (num_embeddings, embedding_dim)
        if weight is None:
            table = empty(shape, device=device, dtype=dtype)
            self.weight = Parameter(table, requires_grad=not freeze)
            self.reset_parameters()
        elif weight.shape != shape:
            raise ShapeError(
                f"Shape of weight {list(weight.shape)} does not match num_embeddings and "
                f"embedding_dim {list(shape)}",
                fix="use from_pretrained, which takes the sizes from the weight",
            )
        else:
            self.weight = Parameter(weight, requires_grad=not freeze)

    def reset_parameters(self) -> None:
        """Standard normal rows, zeros in the padding row."""
        init.normal_(self.weight)
        self._fill_padding_idx_with_zero()

    @no_grad()
    def _fill_padding_idx_with_zero(self) -> None:
        if self.padding_idx is not None:
            self.weight[self.padding_idx].fill_(0)

    @classmethod
    def from_pretrained(
        cls: type[Self], embeddings: Tensor, freeze: bool = True, **options: Any
    ) -> Self:
        """A table with the given rows, which are not trained unless `freeze` is False."""
        if embeddings.ndim != 2:
            raise ShapeError(
                f"Embeddings parameter is expected to be 2-dimensional, not "
                f"{list(embeddings.shape)}",
                fix="one row per index",
            )
        return cls(*embeddings.shape, _weight=embeddings, _freeze=freeze, **options)  # type: ignore

    def _options_repr(self) -> str:
        text = ""
        if self.max_norm is not None:
            text += f", max_norm={self.max_norm}"
        if self.norm_type != 2:
            text += f", norm_type={self.norm_type}"
        if self.scale_grad_by_freq:
            text += f", scale_grad_by_freq={self.scale_grad_by_freq}"
        return text


class Embedding(_Table):
    """Row `i` of the table for every index `i`: (*) becomes (*, embedding_dim).

    `max_norm` scales the used rows down to that norm; row `padding_idx` gets no gradient. With
    `sparse` the gradient is a sparse tensor of the used rows, and a step of `optim.SGD`,
    `SparseAdam` or `Adagrad` costs time in proportion to these rows only.

    Raises DimensionError for an index out of range, when the result is computed.

    >>> nn.Embedding(10, 4)(metaop.tensor([[1, 2, 3]])).shape
    metaop.Size([1, 3, 4])
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self._make(num_embeddings, embedding_dim, padding_idx, _weight, _freeze, device, dtype)
        self.sparse = sparse

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(
            input,
            self.weight,
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.padding_idx is not None:
            text += f", padding_idx={self.padding_idx}"
        text += self._options_repr()
        if self.sparse:
            text += ", sparse=True"
        return text


class EmbeddingBag(_Table):
    """The sum, mean or maximum of the rows of each bag of indices.

    Indices (N, L) give (N, embedding_dim); 1-d indices need `offsets`, the starts of the bags. With
    `sparse` the gradient is a sparse tensor of the used rows.

    >>> nn.EmbeddingBag(10, 4)(metaop.tensor([[1, 2], [3, 4]])).shape
    metaop.Size([2, 4])
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self._make(num_embeddings, embedding_dim, padding_idx, _weight, _freeze, device, dtype)
        self.mode = mode
        self.sparse = sparse
        self.include_last_offset = include_last_offset

    def forward(
        self,
        input: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        return F.embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}{self._options_repr()}"
        text += f", mode={self.mode!r}"
        if self.padding_idx is not None:
            text += f", padding_idx={self.padding_idx}"
        return text
