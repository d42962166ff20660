"""Collectives through which gradients flow, under PyTorch's names.

Every collective is a linear map of the tensors of all ranks, so its gradient is the adjoint map,
another collective. All ranks must go backward through the same calls, in the same order; otherwise
all of them raise a DistributedError. Unlike the functions of `metaop.distributed`, these leave
their inputs as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from metaop.autograd.function import Function
from metaop.distributed import coalesced, collectives
from metaop.distributed.process_group import ProcessGroup, for_members, world_group
from metaop.errors import ArgumentError
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import zeros, zeros_like
from metaop.tensor.grad_mode import is_grad_enabled, no_grad

__all__ = [
    "all_gather",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "broadcast",
    "gather",
    "reduce",
    "reduce_scatter",
    "scatter",
]

Group = ProcessGroup | None
Shape = tuple[int, ...]
# What a rank does with its tensors; returns a tensor, or a tuple of them.
Run = Callable[..., Any]


class _Linear(Function):
    """A linear map of the ranks' tensors; its gradient is a linear map whose adjoint is the map."""

    @staticmethod
    def forward(ctx: Any, run: Run, adjoint: Run, *tensors: Tensor) -> Any:
        ctx.run, ctx.adjoint = run, adjoint
        return run(*tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        found = _Linear.apply(ctx.adjoint, ctx.run, *gradients)
        return None, None, *(found if isinstance(found, tuple) else (found,))


@for_members
def all_reduce(tensor: Tensor, op: str = "sum", group: Group = None) -> Tensor:
    """The reduction of the tensors of all ranks, which have one shape.

    Raises ArgumentError for an `op` other than SUM and AVG on tensors that require gradients.

    >>> x = metaop.tensor([1.0, 2.0], requires_grad=True)
    >>> metaop.distributed.nn.functional.all_reduce(x).sum().backward()  # a program of one rank
    >>> x.grad
    tensor([1., 1.])
    """

    def summed(given: Tensor) -> Tensor:
        return _all_reduced(given, "sum", group)

    if _is_linear("all_reduce", op, tensor):
        return _mean_or_sum(_Linear.apply(summed, summed, tensor), op, group)
    return _all_reduced(tensor, op, group)


@for_members
def reduce(tensor: Tensor, dst: int, op: str = "sum", group: Group = None) -> Tensor:
    """The reduction of the tensors of all ranks on rank `dst`; zeros of their shape on the others.

    Raises ArgumentError for an `op` other than SUM and AVG on tensors that require gradients.

    >>> x = metaop.tensor([1.0, 2.0])
    >>> metaop.distributed.nn.functional.reduce(x, 0)  # a program of one rank
    tensor([1., 2.])
    """
    if _is_linear("reduce", op, tensor):
        total = _Linear.apply(_reducer("sum", dst, group), _broadcaster(dst, group), tensor)
        return _mean_or_sum(total, op, group)
    reduced: Tensor = _reducer(op, dst, group)(tensor)
    return reduced


@for_members
def broadcast(tensor: Tensor, src: int, group: Group = None) -> Tensor:
    """The tensor of rank `src`; the others pass tensors of its shape.

    >>> x = metaop.tensor([1.0, 2.0])
    >>> metaop.distributed.nn.functional.broadcast(x, 0)  # a program of one rank
    tensor([1., 2.])
    """
    sent: Tensor = _Linear.apply(_broadcaster(src, group), _reducer("sum", src, group), tensor)
    return sent


@for_members
def all_gather(tensor: Tensor, group: Group = None) -> tuple[Tensor, ...]:
    """The tensors of all ranks, which have one shape.

    >>> x = metaop.tensor([1.0, 2.0])
    >>> metaop.distributed.nn.functional.all_gather(x)  # a program of one rank
    (tensor([1., 2.]),)
    """
    shapes = [tuple(tensor.shape)] * (group or world_group()).size()
    found: tuple[Tensor, ...]
    found = _Linear.apply(_gatherer(shapes, group), _scattering_sum("sum", group), tensor)
    return found


@for_members
def reduce_scatter(
    output: Tensor, input_list: Sequence[Tensor], op: str = "sum", group: Group = None
) -> Tensor:
    """The reduction over the ranks of `input_list[k]`, on rank k; also fills `output` of its shape.

    Raises ArgumentError for an `op` other than SUM and AVG on tensors that require gradients.

    >>> x = metaop.zeros(2)
    >>> metaop.distributed.nn.functional.reduce_scatter(x, [metaop.tensor([1.0, 2.0])])
    tensor([1., 2.])
    """
    if _is_linear("reduce_scatter", op, *input_list):
        shapes = [tuple(one.shape) for one in input_list]
        total = _Linear.apply(_scattering_sum("sum", group), _gatherer(shapes, group), *input_list)
        result = _mean_or_sum(total, op, group)
    else:
        result = _scattering_sum(op, group)(*input_list)
    _fill([output], [result])
    return result


@for_members
def gather(tensor: Tensor, dst: int = 0, group: Group = None) -> tuple[Tensor, ...]:
    """The tensors of all ranks, which have one shape, on rank `dst`; zeros on the others.

    >>> x = metaop.tensor([1.0, 2.0])
    >>> metaop.distributed.nn.functional.gather(x)  # a program of one rank
    (tensor([1., 2.]),)
    """
    found: tuple[Tensor, ...]
    found = _Linear.apply(_collector(dst, group), _distributor(dst, group), tensor)
    return found


@for_members
def scatter(tensors: Sequence[Tensor], src: int = 0, group: Group = None) -> Tensor:
    """Tensor k of rank `src`, on rank k; all ranks pass tensors of one shape.

    >>> x = metaop.tensor([1.0, 2.0])
    >>> metaop.distributed.nn.functional.scatter([x])  # a program of one rank
    tensor([1., 2.])
    """
    collectives.check_count("scatter", tensors, group or world_group())
    found: Tensor = _Linear.apply(_distributor(src, group), _collector(src, group), *tensors)
    return found


@for_members
def all_to_all(
    output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: Group = None
) -> tuple[Tensor, ...]:
    """What each rank k has as input number j, on rank j; also fills the outputs of its shape.

    >>> found = [metaop.zeros(2)]
    >>> metaop.distributed.nn.functional.all_to_all(found, [metaop.tensor([1.0, 2.0])])
    (tensor([1., 2.]),)
    """
    ways = (
        _exchanger([tuple(one.shape) for one in side], group)
        for side in (output_tensor_list, input_tensor_list)
    )
    found: tuple[Tensor, ...] = _Linear.apply(*ways, *input_tensor_list)
    _fill(output_tensor_list, found)
    return found


@for_members
def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Group = None,
) -> Tensor:
    """Part k of the input of every rank, one after another, on rank k; also fills `output`.

    Parts lie along dimension 0 and have the sizes given, by default equal ones; ShapeError if these
    do not add up.

    >>> found = metaop.zeros(2)
    >>> metaop.distributed.nn.functional.all_to_all_single(found, metaop.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """

    def way(shape: Shape, arriving: Sequence[int] | None, given: Sequence[int] | None) -> Run:
        def run(tensor: Tensor) -> Tensor:
            result = _zeros(shape, tensor)
            coalesced.all_to_all_single(result, tensor, arriving, given, group)
            return result

        return run

    there = way(tuple(output.shape), output_split_sizes, input_split_sizes)
    back = way(tuple(input.shape), input_split_sizes, output_split_sizes)
    found: Tensor = _Linear.apply(there, back, input)
    _fill([output], [found])
    return found


# --- the maps: what a rank does, in pairs of a map and its adjoint --------------------------------


def _all_reduced(tensor: Tensor, op: str, group: Group) -> Tensor:
    result = tensor.detach().clone()
    collectives.all_reduce(result, op, group)
    return result


def _reducer(op: str, dst: int, group: Group) -> Run:
    def run(tensor: Tensor) -> Tensor:
        result = tensor.detach().clone()
        collectives.reduce(result, dst, op, group)
        return result if _is_here(dst, group) else zeros_like(tensor)

    return run


def _broadcaster(src: int, group: Group) -> Run:
    def run(tensor: Tensor) -> Tensor:
        result = tensor.detach().clone()
        collectives.broadcast(result, src, group)
        return result

    return run


def _gatherer(shapes: Sequence[Shape], group: Group) -> Run:
    def run(tensor: Tensor) -> tuple[Tensor, ...]:
        results = [_zeros(shape, tensor) for shape in shapes]
        collectives.all_gather(results, tensor, group)
        return tuple(results)

    return run


def _scattering_sum(op: str, group: Group) -> Run:
    def run(*tensors: Tensor) -> Tensor:
        collectives.check_count("reduce_scatter", tensors, group or world_group())
        result = zeros_like(tensors[(group or world_group()).rank()])
        collectives.reduce_scatter(result, list(tensors), op, group)
        return result

    return run


def _collector(dst: int, group: Group) -> Run:
    def run(tensor: Tensor) -> tuple[Tensor, ...]:
        results = [zeros_like(tensor) for _ in range((group or world_group()).size())]
        collectives.gather(tensor, results if _is_here(dst, group) else None, dst, group)
        return tuple(results)

    return run


def _distributor(src: int, group: Group) -> Run:
    def run(*tensors: Tensor) -> Tensor:
        result = zeros_like(tensors[0])
        collectives.scatter(result, list(tensors) if _is_here(src, group) else None, src, group)
        return result

    return run


def _exchanger(shapes: Sequence[Shape], group: Group) -> Run:
    def run(*tensors: Tensor) -> tuple[Tensor, ...]:
        results = [_zeros(shape, tensors[0]) for shape in shapes]
        collectives.all_to_all(results, list(tensors), group)
        return tuple(results)

    return run


# --- helpers --------------------------------------------------------------------------------------


def _is_linear(name: str, op: str, *tensors: Tensor) -> bool:
    """Whether a reduction has a gradient; ArgumentError if it has none and one is needed."""
    if op in ("sum", "avg"):
        return True
    if is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        raise ArgumentError(
            f"{name} has no gradient for the reduction {op!r}",
            fix="reduce with SUM or AVG, or pass tensor.detach()",
        )
    return False


def _mean_or_sum(total: Tensor, op: str, group: Group) -> Tensor:
    return total / (group or world_group()).size() if op == "avg" else total


def _is_here(rank: int, group: Group) -> bool:
    """Whether a rank of the job is this process."""
    members = group or world_group()
    return members.rank() == members.number_of(rank)


def _zeros(shape: Shape, like: Tensor) -> Tensor:
    return zeros(shape, dtype=like.dtype, device=like.device)


@no_grad()
def _fill(targets: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    for target, value in zip(targets, values):
        target.copy_(value)  # type: ignore[attr-defined]
