"""Functions of functions, as in `torch.func`: gradients, Jacobians, maps over a batch.

Gradients of gradients are gradients here, so these nest. The results of an outermost one track
gradients only where an argument does, not where a tensor that the function holds does. `vmap` runs
the function once for each element of the batch; equal kernels are compiled once, but it saves no
Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from metaop.autograd import gradients
from metaop.errors import ArgumentError, GradientError
from metaop.nn.utils.stateless import functional_call
from metaop.tensor.core import Tensor
from metaop.tensor.creation import zeros_like
from metaop.tensor.gradients import enable_grad
from metaop.tensor.joining import stack
from metaop.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

__all__ = ["functional_call", "grad", "grad_and_value", "hessian", "jacrev", "vjp", "vmap"]

Numbers = int | tuple[int, ...]


class _Depth:
    """How many of these functions are running inside one another."""

    value = 0


def _tracked(value: Any) -> Any:
    """The tensors of a tree as new ones that track gradients, also those of an outer `grad`."""

    def fresh(x: Any) -> Any:
        if not isinstance(x, Tensor) or not x.dtype.is_floating_point:
            return x
        return x.view_as(x) if x.requires_grad else x.detach().requires_grad_()  # type: ignore[attr-defined]

    return tree_map(fresh, value)


def _run(
    func: Callable[..., Any], argnums: Numbers, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[Any], Any]:
    """The tracked arguments and the result."""
    places = (argnums,) if isinstance(argnums, int) else argnums
    inputs = list(args)
    for place in places:
        inputs[place] = _tracked(inputs[place])
    _Depth.value += 1
    try:
        with enable_grad():
            return [inputs[place] for place in places], func(*inputs, **kwargs)
    finally:
        _Depth.value -= 1


def _shown(result: Any, args: tuple[Any, ...]) -> Any:
    """A result as the caller gets it: without the graph of what was tracked here only."""
    if _Depth.value or any(isinstance(x, Tensor) and x.requires_grad for x in tree_leaves(args)):
        return result
    return tree_map(lambda x: x.detach() if isinstance(x, Tensor) else x, result)


def _gradients(output: Tensor, sources: Any, weight: Tensor | None = None) -> Any:
    """The gradients of one output by all tensors of a tree, zeros where there are none."""
    leaves, structure = tree_flatten(sources)
    tracked = [x for x in leaves if isinstance(x, Tensor) and x.requires_grad]
    if not output.requires_grad:
        return tree_map(lambda x: zeros_like(x) if isinstance(x, Tensor) else x, sources)
    found = iter(
        gradients.grad(output, tracked, weight, True, create_graph=True, materialize_grads=True)
    )
    kept = [next(found) if isinstance(x, Tensor) and x.requires_grad else x for x in leaves]
    return tree_unflatten(kept, structure)


def grad_and_value(
    func: Callable[..., Any], argnums: Numbers = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives the gradient of `func` (by arguments `argnums`) and its value."""

    @wraps(func)
    def function(*args: Any, **kwargs: Any) -> Any:
        sources, result = _run(func, argnums, args, kwargs)
        value = result[0] if has_aux else result
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise GradientError("grad: the function must return a tensor with one element")
        found = _gradients(value, sources)
        derivative = found[0] if isinstance(argnums, int) else tuple(found)
        return _shown((derivative, (value, result[1]) if has_aux else value), args)

    return function


def grad(
    func: Callable[..., Any], argnums: Numbers = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives the gradient of `func`, which returns a number.

    With `has_aux` it returns a number and something else, which is passed on.
    """
    both = grad_and_value(func, argnums, has_aux)

    @wraps(func)
    def function(*args: Any, **kwargs: Any) -> Any:
        derivative, value = both(*args, **kwargs)
        return (derivative, value[1]) if has_aux else derivative

    return function


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """The result of `func`, and a function from a cotangent to the gradients of all primals."""
    sources, result = _run(func, tuple(range(len(primals))), primals, {})
    value, rest = result if has_aux else (result, None)

    def pull(cotangents: Any) -> tuple[Any, ...]:
        pairs = list(zip(tree_flatten(value)[0], tree_flatten(cotangents)[0], strict=True))
        total = sum((one * other).sum() for one, other in pairs)
        return _shown(tuple(_gradients(total, sources)), (primals, cotangents))

    value_shown = _shown(value, primals)
    return (value_shown, pull, rest) if has_aux else (value_shown, pull)


def jacrev(func: Callable[..., Any], argnums: Numbers = 0) -> Callable[..., Any]:
    """A function that gives the derivatives of all outputs: (*output, *input) for each tensor."""

    @wraps(func)
    def function(*args: Any, **kwargs: Any) -> Any:
        sources, value = _run(func, argnums, args, kwargs)
        rows = [_gradients(one, sources) for one in value.reshape(-1)]
        joined = _joined(rows, 0)
        shaped = tree_map(lambda x: x.reshape(*value.shape, *x.shape[1:]), joined)
        return _shown(shaped[0] if isinstance(argnums, int) else tuple(shaped), args)

    return function


def hessian(func: Callable[..., Any], argnums: Numbers = 0) -> Callable[..., Any]:
    """A function that gives the second derivatives of `func`."""
    return jacrev(jacrev(func, argnums), argnums)


def _joined(rows: Sequence[Any], dim: int) -> Any:
    """The tensors of equal trees stacked."""
    structure = tree_flatten(rows[0])[1]
    columns = zip(*(tree_flatten(row)[0] for row in rows))
    return tree_unflatten([stack(list(column), dim) for column in columns], structure)


def _element(argument: Any, dim: int, position: int) -> Any:
    return tree_map(lambda x: x.select(dim, position), argument)


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: int = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """`func` of every element along dimension `in_dims` of the arguments (None: not mapped)."""

    @wraps(func)
    def function(*args: Any, **kwargs: Any) -> Any:
        dims = in_dims if isinstance(in_dims, (tuple, list)) else (in_dims,) * len(args)
        sizes = {
            x.shape[dim]
            for argument, dim in zip(args, dims)
            if dim is not None
            for x in tree_flatten(argument)[0]
            if isinstance(x, Tensor)
        }
        if len(sizes) != 1:
            raise ArgumentError(
                f"vmap: the mapped dimensions have sizes {sorted(sizes)}", fix="make them equal"
            )
        results = []
        for k in range(sizes.pop()):
            chosen = [
                argument if dim is None else _element(argument, dim, k)
                for argument, dim in zip(args, dims)
            ]
            results.append(func(*chosen, **kwargs))
        return _joined(results, out_dims)

    return function
