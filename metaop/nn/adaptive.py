"""Losses over many classes: an adaptive softmax, and a linear layer with its cross entropy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from metaop.errors import ArgumentError, ShapeError
from metaop.nn import functional as F
from metaop.nn.containers import ModuleList, Sequential
from metaop.nn.linear import Linear
from metaop.nn.loss import _WeightedLoss
from metaop.nn.module import Module
from metaop.tensor.core import Tensor
from metaop.tensor.functions.joining import cat
from metaop.tensor.functions.selection import where
from metaop.unified_graph.dtype import DType


class _ASMoutput(NamedTuple):
    """The log-probabilities of the targets, and their negated mean as the loss."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """A softmax over frequent classes and clusters of rare ones (Grave et al. 2017).

    Classes are sorted by decreasing frequency; `cutoffs` are the first classes of the clusters.
    Cluster `i` projects the input to `in_features // div_value ** (i + 1)` features.
    Inputs are (N, in_features) with targets (N), or (in_features) with a 0-d target.

    Returns (output, loss): the log-probabilities of the targets, in their shape, and the negated
    mean. Raises ArgumentError unless the cutoffs increase and are below `n_classes`.

    >>> loss = nn.AdaptiveLogSoftmaxWithLoss(16, 20, [4, 10])
    >>> result = loss(metaop.randn(3, 16), metaop.tensor([0, 5, 19]))
    >>> result.output.shape, result.loss.shape
    (metaop.Size([3]), metaop.Size([]))
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        cutoffs = list(cutoffs)
        rising = all(low < high for low, high in pairwise([0, *cutoffs, n_classes]))
        if not cutoffs or not rising or any(int(c) != c for c in cutoffs):
            raise ArgumentError(
                "cutoffs should be a sequence of unique, positive integers sorted in an "
                "increasing order, where each value is between 1 and n_classes-1",
                fix=f"{cutoffs} is not",
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*cutoffs, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        options = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **options)
        self.tail = ModuleList()
        for i, (low, high) in enumerate(pairwise(self.cutoffs)):
            hidden = int(in_features // div_value ** (i + 1))
            narrow = Linear(in_features, hidden, bias=False, **options)
            self.tail.append(Sequential(narrow, Linear(hidden, high - low, bias=False, **options)))

    def reset_parameters(self) -> None:
        """Reinitialises the head and all clusters."""
        self.head.reset_parameters()
        for narrow, wide in self.tail:
            narrow.reset_parameters()
            wide.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        if (input_.ndim, target_.ndim) not in ((2, 1), (1, 0)) or (
            target_.ndim and input_.shape[0] != target_.shape[0]
        ):
            raise ShapeError(
                f"AdaptiveLogSoftmaxWithLoss: input {list(input_.shape)} and target "
                f"{list(target_.shape)} do not match",
                fix="pass (N, in_features) and (N), or (in_features) and ()",
            )
        batched = target_.ndim > 0
        input, target = (x if batched else x.unsqueeze(0) for x in (input_, target_))
        if bool(((target < 0) | (target >= self.n_classes)).any()):
            raise ArgumentError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range "
                f"[{int(target.min())}, {int(target.max())}] were found."
            )
        head = F.log_softmax(self.head(input), dim=1)
        column, output = target, input.new_zeros(len(target))
        for i, (low, high) in enumerate(pairwise(self.cutoffs)):
            inside = (target >= low) & (target < high)
            rows = inside.nonzero().squeeze(1)
            if not len(rows):
                continue
            cluster = F.log_softmax(self.tail[i](input.index_select(0, rows)), dim=1)
            place = (target.index_select(0, rows) - low).unsqueeze(1)
            output = output.index_copy(0, rows, cluster.gather(1, place).squeeze(1))
            column = where(inside, self.shortlist_size + i, column)
        output = output + head.gather(1, column.unsqueeze(1)).squeeze(1)
        loss = (-output).mean()
        return _ASMoutput(output if batched else output.squeeze(0), loss)

    def log_prob(self, input: Tensor) -> Tensor:
        """Log-probabilities of all classes: (N, in_features) -> (N, n_classes)."""
        head = F.log_softmax(self.head(input), dim=1)
        pieces = [head[:, : self.shortlist_size]]
        for i, projection in enumerate(self.tail):
            cluster = F.log_softmax(projection(input), dim=1)
            pieces.append(cluster + head[:, self.shortlist_size + i].unsqueeze(1))
        return cat(pieces, 1)

    def predict(self, input: Tensor) -> Tensor:
        """The most probable class: (N, in_features) -> (N)."""
        return self.log_prob(input).argmax(1)


@dataclass(frozen=True)
class LinearCrossEntropyOptions:
    """PyTorch's options for how its kernel chunks the logits; accepted, and without effect.

    The compiler itself decides which logits to materialise.

    `batch_chunk_size` counts rows, `acc_dtype` is an element type; no shape depends on them.

    >>> options = nn.LinearCrossEntropyOptions(batch_chunk_size=2)
    >>> loss = nn.LinearCrossEntropyLoss(8, 5, options=options)
    >>> loss(metaop.randn(3, 8), metaop.tensor([0, 1, 4])).shape
    metaop.Size([])
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: DType | None = None


class LinearCrossEntropyLoss(_WeightedLoss):
    """A linear layer to `num_classes` logits (for each of `out_features` positions) and its loss.

    Takes inputs (N, in_features), or (in_features), and targets (N, *out_features): class indices.
    The result is a scalar, or of the shape of the targets with `reduction="none"`.

    >>> loss = nn.LinearCrossEntropyLoss(8, 5)
    >>> loss(metaop.randn(3, 8), metaop.tensor([0, 1, 4])).shape
    metaop.Size([])
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: Any = None,
        dtype: Any = None,
        reduction: str = "mean",
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: LinearCrossEntropyOptions | None = None,
    ) -> None:
        if weight is not None and weight.shape != (num_classes,):
            raise ShapeError(
                f"expected weight shape to be {(num_classes,)}, got {tuple(weight.shape)}"
            )
        if not 0 <= label_smoothing <= 1:
            raise ArgumentError(
                f"expected label_smoothing to be in range [0, 1], got {label_smoothing}"
            )
        super().__init__(weight, None, None, reduction)
        self.num_classes = num_classes
        self.out_features = out_features
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        total = math.prod(out_features, start=num_classes)
        self.linear = Linear(in_features, total, bias=bias, device=device, dtype=dtype)
        self.options = options

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        shape = (self.num_classes, *self.out_features)
        bias = self.linear.bias
        return F.linear_cross_entropy(
            input,
            self.linear.weight.reshape(*shape, self.linear.in_features),
            target,
            linear_bias=None if bias is None else bias.reshape(shape),
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            options=self.options,
        )

    def extra_repr(self) -> str:
        return (
            f"in_features={self.linear.in_features}, num_classes={self.num_classes}, "
            f"out_features={self.out_features}, bias={self.linear.bias is not None}, "
            f"reduction={self.reduction}, ignore_index={self.ignore_index}, "
            f"label_smoothing={self.label_smoothing}, options={self.options}"
        )
