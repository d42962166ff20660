"""Comparison of gradients with finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from metaop.autograd.gradients import grad, listed
from metaop.errors import ArgumentTypeError
from metaop.tensor.core import Tensor, from_array
from metaop.tensor.functions.complex_numbers import view_as_complex, view_as_real


class GradcheckError(RuntimeError):
    """A gradient that differs from finite differences; `gradcheck` raises it with both matrices.

    >>> class Wrong(metaop.autograd.Function):
    ...     forward = staticmethod(lambda ctx, x: x * 2)
    ...     backward = staticmethod(lambda ctx, g: g * 3)
    >>> x = metaop.ones(1, dtype=metaop.float64, requires_grad=True)
    >>> try:
    ...     metaop.autograd.gradcheck(Wrong.apply, (x,))
    ... except metaop.autograd.GradcheckError:
    ...     print("the gradient is wrong")
    the gradient is wrong
    """


def _float_outputs(outputs: Any) -> list[Tensor]:
    return [y for y in listed(outputs) if isinstance(y, Tensor) and y.dtype.kind == "float"]


def _parts(x: Any) -> Any:
    """Both parts of a complex tensor; anything else itself."""
    return view_as_real(x) if isinstance(x, Tensor) and x.dtype.is_complex else x


def _in_parts(func: Callable[..., Any], inputs: list[Any]) -> tuple[Callable[..., Any], list[Any]]:
    """The same function of real numbers, which are the parts of complex inputs and outputs."""
    flags = [isinstance(x, Tensor) and x.dtype.is_complex for x in inputs]
    leaves = [
        _parts(x).detach().requires_grad_(x.requires_grad) if flag else x
        for x, flag in zip(inputs, flags)
    ]

    def parted(*values: Any) -> list[Any]:
        given = [view_as_complex(x) if flag else x for x, flag in zip(values, flags)]
        return [_parts(y) for y in listed(func(*given))]

    return parted, leaves


def _copy(x: Tensor, array: np.ndarray) -> Tensor:
    return from_array(array, x.dtype).to(x.device).requires_grad_(x.requires_grad)


def _numerical(
    func: Callable[..., Any], inputs: list[Any], position: int, eps: float
) -> list[np.ndarray]:
    """For each output the matrix (input elements, output elements) by central differences."""
    array = inputs[position].numpy(force=True).copy()
    rows: list[list[np.ndarray]] = []
    for place in np.ndindex(array.shape):
        ends = []
        for sign in (1, -1):
            moved = array.copy()
            moved[place] += sign * eps
            arguments = list(inputs)
            arguments[position] = _copy(inputs[position], moved)
            ends.append([y.numpy(force=True).copy() for y in _float_outputs(func(*arguments))])
        rows.append([((a - b) / (2 * eps)).ravel() for a, b in zip(*ends)])
    return [np.stack(column) for column in zip(*rows)]


def _analytical(output: Tensor, source: Tensor) -> np.ndarray:
    columns = []
    for place in range(output.numel()):
        weight = np.zeros(output.numel(), output.dtype.numpy)
        weight[place] = 1
        weights = from_array(weight.reshape(tuple(output.shape)), output.dtype).to(output.device)
        (found,) = grad(output, source, weights, retain_graph=True, allow_unused=True)
        shape = tuple(source.shape)
        columns.append(np.zeros(shape) if found is None else found.numpy(force=True).copy())
    return np.stack([column.ravel() for column in columns], 1)


# Which checks PyTorch makes besides, and how: one way is left, which compares all numbers.
_OPTIONS = frozenset({
    "nondet_tol", "check_undefined_grad", "check_grad_dtypes", "check_batched_grad",
    "check_batched_forward_grad", "check_forward_ad", "check_backward_ad", "check_fwd_over_rev",
    "check_rev_over_rev", "fast_mode", "masked", "gen_non_contig_grad_outputs",
})  # fmt: skip


def _check_options(options: dict[str, Any]) -> None:
    if unknown := options.keys() - _OPTIONS:
        raise ArgumentTypeError(
            f"gradcheck got unexpected arguments {', '.join(sorted(unknown))}",
            fix=f"the options are {', '.join(sorted(_OPTIONS))}",
        )


def gradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    **options: Any,
) -> bool:
    """Whether the gradients of `func` agree with central differences at `inputs` (float64).

    Raises GradcheckError, which shows both matrices, unless `raise_exception` is off. Options of
    PyTorch's that choose faster or forward-mode checks are accepted and change nothing; others
    raise ArgumentTypeError.

    >>> x = metaop.tensor([0.5, 2.0], dtype=metaop.float64, requires_grad=True)
    >>> metaop.autograd.gradcheck(metaop.log, (x,))
    True
    """
    _check_options(options)
    func, arguments = _in_parts(func, listed(inputs))
    tracked = [k for k, x in enumerate(arguments) if isinstance(x, Tensor) and x.requires_grad]
    outputs = _float_outputs(func(*arguments))
    for position in tracked:
        numerical = _numerical(func, arguments, position, eps)
        for number, (y, expected) in enumerate(zip(outputs, numerical)):
            actual = (
                _analytical(y, arguments[position]) if y.requires_grad else np.zeros(expected.shape)
            )
            if not np.allclose(actual, expected, rtol, atol):
                if not raise_exception:
                    return False
                raise GradcheckError(
                    f"Jacobian mismatch for output {number} with respect to input {position},\n"
                    f"numerical:{expected}\nanalytical:{actual}"
                )
    return True


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    grad_outputs: Tensor | Sequence[Tensor] | None = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    **options: Any,
) -> bool:
    """`gradcheck` of the gradients of `func`, with respect to inputs and cotangents.

    Raises ArgumentTypeError for options that PyTorch has not.

    >>> x = metaop.tensor([0.5, 2.0], dtype=metaop.float64, requires_grad=True)
    >>> metaop.autograd.gradgradcheck(metaop.log, (x,))
    True
    """
    _check_options(options)
    func, arguments = _in_parts(func, listed(inputs))
    outputs = [y for y in _float_outputs(func(*arguments)) if y.requires_grad]
    if grad_outputs is None:
        random = np.random.default_rng(0)
        weights = [
            from_array(random.standard_normal(tuple(y.shape)).astype(y.dtype.numpy), y.dtype)
            for y in outputs
        ]
        weights = [weight.requires_grad_() for weight in weights]
    else:
        weights = [_parts(weight) for weight in listed(grad_outputs)]
    count = len(arguments)

    def gradients(*everything: Any) -> tuple[Any, ...]:
        given, cotangents = everything[:count], everything[count:]
        results = [y for y in _float_outputs(func(*given)) if y.requires_grad]
        sources = [x for x in given if isinstance(x, Tensor) and x.requires_grad]
        found = grad(results, sources, cotangents, create_graph=True, allow_unused=True)
        return tuple([g for g in found if g is not None])

    return gradcheck(
        gradients, (*arguments, *weights), eps=eps, atol=atol, rtol=rtol,
        raise_exception=raise_exception,
    )  # fmt: skip
