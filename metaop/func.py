"""Function transforms, as in `torch.func`: gradients, Jacobians, maps over a batch.

The transforms nest, because gradients are differentiable. Their results track gradients like any
other: if an argument does or a tensor that the function closes over, and not within `no_grad()`,
which leaves the values unchanged. `vmap` computes all elements of a batch at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from threading import local
from typing import Any

from metaop.autograd import gradients
from metaop.autograd.mapping import vmap
from metaop.differentiation import tape
from metaop.errors import ArgumentError, GradientError
from metaop.nn.normalisation import _BatchNorm
from metaop.nn.utils.stateless import functional_call
from metaop.tensor.core import Tensor
from metaop.tensor.functions.complex_numbers import inner_product
from metaop.tensor.functions.creation import zeros_like
from metaop.tensor.functions.joining import stack
from metaop.tensor.functions.ranges import eye
from metaop.tensor.grad_mode import enable_grad
from metaop.trees import tree_flatten, tree_leaves, tree_map, tree_unflatten
from metaop.unified_graph.recording import modes, next_sequence

__all__ = [
    "functional_call",
    "functionalize",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "replace_all_batch_norm_modules_",
    "stack_module_state",
    "vjp",
    "vmap",
]

Numbers = int | tuple[int, ...]


class _Depth(local):
    """How deeply transforms are nested on this thread, and where the outermost began to record."""

    value = 0
    started = 0


_depth = _Depth()


@contextmanager
def _tracking() -> Iterator[None]:
    """The scope in which a transform records: it tracks gradients whatever the caller's mode."""
    if not _depth.value:
        _depth.started = next_sequence()
    _depth.value += 1
    try:
        with enable_grad():
            yield
    finally:
        _depth.value -= 1


def _fresh_leaf(x: Tensor) -> Tensor:
    """The value of a tensor as a new leaf, which accumulates no gradient in `grad`."""
    leaf = x.detach().requires_grad_()  # type: ignore[attr-defined]
    leaf.call.tape.accumulate = tape.discard
    return leaf


def _tracked(value: Any) -> Any:
    """The tensors of a tree as new ones that track gradients, also those of an outer transform."""

    def fresh(x: Any) -> Any:
        if not isinstance(x, Tensor) or not x.dtype.is_differentiable:
            return x
        return x.view_as(x) if x.requires_grad else _fresh_leaf(x)  # type: ignore[attr-defined]

    return tree_map(fresh, value)


def _run(
    func: Callable[..., Any], argnums: Numbers, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[Any], Any]:
    """The tracked arguments and the result."""
    places = (argnums,) if isinstance(argnums, int) else argnums
    inputs = list(args)
    for place in places:
        inputs[place] = _tracked(inputs[place])
    return [inputs[place] for place in places], func(*inputs, **kwargs)


def _shown(result: Any) -> Any:
    """A result for the caller, without the history that only the transform tracked.

    Under the caller's `no_grad()`, that is everything recorded since the outermost transform began.
    """
    if _depth.value and modes.gradients:
        return result
    leaves, structure = tree_flatten(result)
    tensors = [x for x in leaves if isinstance(x, Tensor)]
    if modes.gradients:
        kept = tape.tracked([x.call for x in tensors])
    else:
        kept = [x.requires_grad and x.call.sequence < _depth.started for x in tensors]
    flags = iter(kept)
    shown = [x if not isinstance(x, Tensor) or next(flags) else x.detach() for x in leaves]
    return tree_unflatten(shown, structure)


def _gradients(output: Tensor, sources: Any, weight: Tensor | None = None) -> Any:
    """The gradients of one output with respect to all tensors of a tree, zeros where unused."""
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
    """A function that returns the gradient of `func` (by arguments `argnums`) and its value.

    Gradients have the shapes of the arguments. Raises GradientError unless the value is a number.

    >>> slope, value = metaop.func.grad_and_value(lambda x: x**2)(metaop.tensor(3.0))
    >>> slope.item(), value.item()
    (6.0, 9.0)
    """

    @wraps(func)
    def function(*args: Any, **kwargs: Any) -> Any:
        with _tracking():
            sources, result = _run(func, argnums, args, kwargs)
            value = result[0] if has_aux else result
            if not isinstance(value, Tensor) or value.numel() != 1:
                raise GradientError("grad: the function must return a tensor with one element")
            found = _gradients(value, sources)
        derivative = found[0] if isinstance(argnums, int) else tuple(found)
        return _shown((derivative, (value, result[1]) if has_aux else value))

    return function


def grad(
    func: Callable[..., Any], argnums: Numbers = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that returns the gradient of `func`, whose value is a number.

    With `has_aux`, `func` returns a number and auxiliary data, which is returned too.

    Gradients have the shapes of the arguments at `argnums`. Raises GradientError unless the value
    is a number.

    >>> metaop.func.grad(lambda x: (x**2).sum())(metaop.tensor([1.0, 2.0])).tolist()
    [2.0, 4.0]
    """
    both = grad_and_value(func, argnums, has_aux)

    @wraps(func)
    def function(*args: Any, **kwargs: Any) -> Any:
        derivative, value = both(*args, **kwargs)
        return (derivative, value[1]) if has_aux else derivative

    return function


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """The result of `func`, and a function from a cotangent to the gradients of all primals.

    A cotangent has the shape of the result, and a gradient that of its primal.

    >>> value, pull = metaop.func.vjp(lambda x: x**2, metaop.tensor([3.0]))
    >>> pull(metaop.ones(1))[0].tolist()
    [6.0]
    """

    def run() -> tuple[list[Any], Any, Any]:
        with _tracking():
            sources, result = _run(func, tuple(range(len(primals))), primals, {})
        return sources, *(result if has_aux else (result, None))

    sources, value, rest = run()

    def pull(cotangents: Any) -> tuple[Any, ...]:
        nonlocal sources, value
        outputs = tree_flatten(value)[0]
        if tape.has_released([x.call for x in outputs if isinstance(x, Tensor)]):
            # A backward pass of the caller has freed the graph.
            sources, value, _ = run()
            outputs = tree_flatten(value)[0]
        pairs = list(zip(outputs, tree_flatten(cotangents)[0], strict=True))
        with _tracking():
            total = inner_product(pairs)
            found = tuple(_gradients(total, sources))
        return _shown(found)

    shown, rest = _shown((value, rest))
    return (shown, pull, rest) if has_aux else (shown, pull)


def jvp(func: Callable[..., Any], primals: Any, tangents: Any, has_aux: bool = False) -> Any:
    """The result of `func`, and its derivative along the direction `tangents`.

    `primals` and `tangents` are tuples of tensors of equal shapes; both results have the
    shape of `func(*primals)`.

    >>> value, slope = metaop.func.jvp(metaop.exp, (metaop.zeros(1),), (metaop.ones(1),))
    >>> value.tolist(), slope.tolist()
    ([1.0], [1.0])
    """
    with _tracking():
        sources, result = _run(func, tuple(range(len(primals))), tuple(primals), {})
        value, rest = result if has_aux else (result, None)

        def along(output: Tensor) -> Tensor:
            weight, slopes = _slopes(output, sources)
            pairs = zip(tree_leaves(slopes), tree_leaves(tangents), strict=True)
            return _gradients(inner_product(pairs), weight)

        slope = tree_map(along, value)
    shown = _shown((value, slope, rest))
    return shown if has_aux else shown[:2]


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """The result of `func` at `primals`, and its derivative there as a linear function.

    That function takes tangents of the shapes and types of `primals` and returns the derivative
    along them, with the shape of the result, without running `func` again. It raises ArgumentError
    for tangents of other shapes or types.

    >>> value, along = metaop.func.linearize(metaop.exp, metaop.zeros(2))
    >>> value, along(metaop.tensor([1.0, 2.0]))
    (tensor([1., 1.]), tensor([1., 2.]))
    """
    with _tracking():
        sources, result = _run(func, tuple(range(len(primals))), primals, {})
        outputs, form = tree_flatten(result)
        kept = [_slopes(output, sources) for output in outputs]
    inputs, shape = tree_flatten(primals)

    def along(*tangents: Any) -> Any:
        given, given_form = tree_flatten(tangents)
        if given_form != shape:
            raise ArgumentError(
                f"Expected the tangents {given_form} to have the same argspec as the primals "
                f"{shape}",
                fix="nest the tangents like the primals",
            )
        for place, (tangent, primal) in enumerate(zip(given, inputs)):
            for what in ("shape", "device", "dtype"):
                if getattr(tangent, what) != getattr(primal, what):
                    raise ArgumentError(
                        f"tangent:{place} with {what} {getattr(tangent, what)} in flattened pytree "
                        f"doesn't match the {what} {getattr(primal, what)} of the corresponding "
                        "primal.",
                        fix="pass tangents with the shapes and types of the primals",
                    )
        with _tracking():
            found = [
                _gradients(inner_product(zip(tree_leaves(slopes), given, strict=True)), weight)
                for weight, slopes in kept
            ]
        return _shown(tree_unflatten(found, form))

    return _shown(result), along


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """The function itself, because metaop records in-place operations without mutation anyway.

    `remove` is "mutations" or "mutations_and_views"; anything else raises ArgumentError. Results
    keep their shapes.

    >>> metaop.func.functionalize(lambda x: x.clone().add_(1))(metaop.zeros(2))
    tensor([1., 1.])
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise ArgumentError(
            f"functionalize(f, remove={remove!r}): remove must be 'mutations' or "
            "'mutations_and_views'",
            fix="pass one of them",
        )

    @wraps(func)
    def same(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    return same


def replace_all_batch_norm_modules_(root: Any) -> Any:
    """Makes the batch norms of a module use only the statistics of the batch; returns the module.

    It drops their running statistics, which a mapped function must not write; shapes stay the same.

    >>> net = metaop.func.replace_all_batch_norm_modules_(nn.Sequential(nn.BatchNorm1d(2)))
    >>> net[0].running_mean is None, net[0].track_running_stats
    (True, False)
    """
    for module in root.modules():
        if isinstance(module, _BatchNorm) and module.track_running_stats:
            module.running_mean = module.running_var = None
            module.num_batches_tracked = None
            module.track_running_stats = False
    return root


def _slopes(output: Tensor, sources: Any) -> tuple[Tensor, Any]:
    """A cotangent and the gradients for it.

    These are linear in the cotangent, so their gradient with respect to it is a product of the
    Jacobian with a direction.
    """
    weight = _fresh_leaf(zeros_like(output))
    return weight, _gradients(output, sources, weight)


def jacrev(
    func: Callable[..., Any],
    argnums: Numbers = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """A function that returns the Jacobian of `func` row by row: (*output, *input) for each tensor.

    It maps one gradient over the unit vectors, at most `chunk_size` of them at once. An input of
    shape (n) and a result of shape (m) give (m, n).

    >>> metaop.func.jacrev(lambda x: 3 * x)(metaop.ones(2)).tolist()
    [[3.0, 0.0], [0.0, 3.0]]
    """

    @wraps(func)
    def function(*args: Any, **kwargs: Any) -> Any:
        def of(output: Tensor, sources: Any) -> Any:
            rows = vmap(lambda weight: _gradients(output, sources, weight), chunk_size=chunk_size)(
                _unit_vectors(output)
            )
            return tree_map(lambda x: x.reshape(*output.shape, *x.shape[1:]), rows)

        return _jacobians(func, of, argnums, has_aux, args, kwargs)

    return function


def _jacobians(
    func: Callable[..., Any],
    of: Callable[[Tensor, Any], Any],
    argnums: Numbers,
    has_aux: bool,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """The result of `jacrev` and `jacfwd`: `of(output, sources)` for each output."""
    with _tracking():
        sources, result = _run(func, argnums, args, kwargs)
        value, rest = result if has_aux else (result, None)

        def by_argument(output: Tensor) -> Any:
            found = of(output, sources)
            return found[0] if isinstance(argnums, int) else tuple(found)

        jacobians = tree_map(by_argument, value)
    shown = _shown((jacobians, rest))
    return shown if has_aux else shown[0]


def jacfwd(
    func: Callable[..., Any], argnums: Numbers = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """`jacrev` column by column, which is faster for functions with more outputs than inputs.

    The shapes are those of `jacrev`: (*output, *input).

    >>> metaop.func.jacfwd(metaop.sin)(metaop.zeros(2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    @wraps(func)
    def function(*args: Any, **kwargs: Any) -> Any:
        def of(output: Tensor, sources: Any) -> Any:
            weight, slopes = _slopes(output, sources)

            def columns(slope: Tensor) -> Tensor:
                along = vmap(lambda unit: _gradients(inner_product([(slope, unit)]), weight))
                found = along(_unit_vectors(slope)).movedim(0, -1)
                return found.reshape(*output.shape, *slope.shape)

            return tree_map(columns, slopes)

        return _jacobians(func, of, argnums, has_aux, args, kwargs)

    return function


def _unit_vectors(like: Tensor) -> Tensor:
    """All tensors of the shape of `like` with a single 1, along a new first dimension."""
    count = like.numel()
    return eye(count, dtype=like.dtype, device=like.device).reshape(count, *like.shape)


def hessian(func: Callable[..., Any], argnums: Numbers = 0) -> Callable[..., Any]:
    """A function that returns the second derivatives of `func`.

    For an argument of shape (n) and a scalar result they have the shape (n, n).

    >>> metaop.func.hessian(lambda x: (x**2).sum())(metaop.ones(2)).tolist()
    [[2.0, 0.0], [0.0, 2.0]]
    """
    return jacfwd(jacrev(func, argnums), argnums)


def stack_module_state(models: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters and the buffers of modules with the same structure, stacked by name.

    Each has the shape (models, *shape). Raises ArgumentError for an empty list.

    >>> models = [nn.Linear(3, 2) for _ in range(4)]
    >>> parameters, buffers = metaop.func.stack_module_state(models)
    >>> {name: list(value.shape) for name, value in parameters.items()}
    {'weight': [4, 2, 3], 'bias': [4, 2]}
    >>> outputs = metaop.vmap(
    ...     lambda p, b, x: metaop.func.functional_call(models[0], (p, b), (x,)), (0, 0, None)
    ... )(parameters, buffers, metaop.ones(5, 3))
    >>> outputs.shape
    metaop.Size([4, 5, 2])
    """
    if not models:
        raise ArgumentError("stack_module_state: Expected at least one model, got 0.")

    def stacked(named: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            name: stack([one[name] for one in named]).detach().requires_grad_(first.requires_grad)
            for name, first in named[0].items()
        }

    parameters = stacked([dict(model.named_parameters()) for model in models])
    return parameters, stacked([dict(model.named_buffers()) for model in models])
