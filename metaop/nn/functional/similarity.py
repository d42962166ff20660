"""Distances and angles between vectors, and losses based on them."""

from __future__ import annotations

from collections.abc import Callable

from metaop.errors import ArgumentError
from metaop.nn.functional.arguments import reduction_of
from metaop.operators import similarity as operators
from metaop.tensor.arguments import wrap_dim
from metaop.tensor.core import Tensor, wrap
from metaop.unified_graph.dtype import int64
from metaop.unified_graph.recording import record


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between vectors along `dim`; norms are at least `eps`.

    The operands broadcast, and the result lacks the dimension.

    >>> F.cosine_similarity(metaop.tensor([[1.0, 0.0]]), metaop.tensor([[1.0, 1.0], [0.0, 2.0]]))
    tensor([0.7071, 0.0000])
    """
    dim = wrap_dim(dim, max(x1.ndim, x2.ndim))
    return wrap(record(operators.cosine_similarity, (x1.call, x2.call), (dim, eps)))


def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """The norm of order `p` of `x1 - x2 + eps` over the last dimension.

    The operands broadcast: (…, D) -> (…), or (…, 1) with `keepdim`.

    >>> F.pairwise_distance(metaop.tensor([[3.0, 4.0]]), metaop.zeros(1, 2))
    tensor([5.0000])
    """
    attributes = (float(p), eps, keepdim)
    return wrap(record(operators.pairwise_distance, (x1.call, x2.call), attributes))


def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """1 - cos where the target is 1, max(0, cos - margin) where it is -1.

    The inputs are (N, D) or (D), the target is (N) or ().

    >>> same = metaop.tensor([[1.0, 0.0], [1.0, 0.0]])
    >>> F.cosine_embedding_loss(same, same, metaop.tensor([1, -1]), reduction="none")
    tensor([0., 1.])
    """
    reduction = reduction_of("cosine_embedding_loss", reduction, size_average, reduce)
    # Sums of bools are integers.
    tensors = [
        x.to(int64) if x.dtype.kind == "bool" else x for x in (input1, input2, target.detach())
    ]
    calls = [tensor.call for tensor in tensors]
    return wrap(record(operators.cosine_embedding_loss, calls, (float(margin), reduction)))


def _check_margin(name: str, margin: float) -> None:
    if margin <= 0:
        raise ArgumentError(f"{name}: margin must be greater than 0, got {margin}", fix="pass 1.0")


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin) for distances of order `p`.

    All are (N, D) or (D). `swap` takes the negative's distance to the positive if that is smaller.
    From Balntas et al., "Learning local feature descriptors with triplets" (2016).

    >>> anchor, positive = metaop.zeros(1, 2), metaop.tensor([[3.0, 4.0]])
    >>> F.triplet_margin_loss(anchor, positive, metaop.tensor([[0.0, 2.0]]))
    tensor(4.0000)
    """
    reduction = reduction_of("triplet_margin_loss", reduction, size_average, reduce)
    _check_margin("triplet_margin_loss", margin)
    calls = (anchor.call, positive.call, negative.call)
    attributes = (float(margin), float(p), eps, swap, reduction)
    return wrap(record(operators.triplet_margin_loss, calls, attributes))


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """`triplet_margin_loss` with any distance between two batches of vectors.

    `distance_function` takes two tensors (N, D) and returns (N); it defaults to the Euclidean
    distance.

    >>> x = metaop.tensor([[0.0], [1.0], [3.0]])
    >>> far = lambda a, b: (a - b).abs().sum(-1)
    >>> F.triplet_margin_with_distance_loss(x[:1], x[2:], x[1:2], distance_function=far)
    tensor(3.)
    """
    reduction = reduction_of("triplet_margin_with_distance_loss", reduction)
    _check_margin("triplet_margin_with_distance_loss", margin)
    apart = distance_function or pairwise_distance
    near, far = apart(anchor, positive), apart(anchor, negative)
    if swap:
        far = far.minimum(apart(positive, negative))  # type: ignore[attr-defined]
    loss = (near - far + margin).clamp_min(0)  # type: ignore[operator]
    return loss if reduction == "none" else getattr(loss, reduction)()
