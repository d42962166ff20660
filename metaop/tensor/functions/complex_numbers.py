"""Complex tensors and their parts: making them, taking them apart, conjugates and angles."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from typing import Any

from metaop.elementwise.meta_op import broadcast_shapes
from metaop.errors import ArgumentTypeError, DTypeError
from metaop.operators import complex_numbers as operators
from metaop.operators.pointwise import POINTWISE
from metaop.tensor.casting import in_float32
from metaop.tensor.core import Tensor, view, wrap
from metaop.tensor.promotion import defaults
from metaop.tensor.surface import attribute, public, synonym
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.recording import record


@public(precision=in_float32)
def view_as_complex(input: Tensor) -> Tensor:
    """The pairs along the last dimension, of size 2, as complex numbers; storage is shared.

    >>> metaop.view_as_complex(metaop.tensor([[1.0, 2.0], [3.0, -4.0]]))
    tensor([1.+2.j, 3.-4.j])
    """
    if input.shape[-1:] != (2,) or input.dtype not in (dtypes.float32, dtypes.float64):
        raise DTypeError(
            f"view_as_complex: expected float32 or float64 pairs (…, 2), got {input.dtype.name} "
            f"{list(input.shape)}",
            fix="stack real and imaginary parts along a last dimension",
        )
    return view(input, operators.numbers_of)


@public()
def view_as_real(input: Tensor) -> Tensor:
    """Real and imaginary parts along a new last dimension of size 2; storage is shared.

    >>> metaop.view_as_real(metaop.complex(metaop.tensor([1.0]), metaop.tensor([2.0])))
    tensor([[1., 2.]])
    """
    if not input.dtype.is_complex:
        raise DTypeError("view_as_real is only supported for complex tensors")
    return view(input, operators.pairs_of)


@public(out=True)
def complex(real: Tensor, imag: Tensor) -> Tensor:
    """Complex numbers from their real and imaginary parts, of one type; the shapes broadcast.

    >>> metaop.complex(metaop.tensor([1.0]), metaop.tensor([2.0]))
    tensor([1.+2.j])
    """
    if real.dtype is not imag.dtype:
        raise DTypeError(
            f"Expected object of scalar type {real.dtype.name} but got scalar type "
            f"{imag.dtype.name} for second argument",
            fix="convert one of them",
        )
    if real.dtype.kind != "float":
        raise DTypeError(
            f"Expected both inputs to be Half, Float or Double tensors but got {real.dtype.name}",
            fix="convert them with .float()",
        )
    shape = broadcast_shapes("complex", real.shape, imag.shape)
    return wrap(record(operators.joined, (real.expand(shape).call, imag.expand(shape).call)))


@public(out=True, precision=in_float32)
def polar(abs: Tensor, angle: Tensor) -> Tensor:
    """Complex numbers from their magnitudes and angles in radians, of one shape and type.

    >>> metaop.polar(metaop.tensor([2.0]), metaop.tensor([0.0]))
    tensor([2.+0.j])
    """
    return complex(abs * angle.cos(), abs * angle.sin())


@public()
def imag(input: Tensor) -> Tensor:
    """The imaginary parts of a complex tensor, a view of the same shape.

    >>> metaop.imag(metaop.complex(metaop.tensor([1.0]), metaop.tensor([2.0])))
    tensor([2.])
    """
    if not input.dtype.is_complex:
        raise ArgumentTypeError("imag is not implemented for tensors with non-complex dtypes.")
    return view_as_real(input).select(-1, 1)


@public()
def real(input: Tensor) -> Tensor:
    """The real parts, a view of the same shape; a real tensor itself.

    >>> metaop.real(metaop.complex(metaop.tensor([1.0]), metaop.tensor([2.0])))
    tensor([1.])
    """
    return view_as_real(input).select(-1, 0) if input.dtype.is_complex else input


@public(method=True)
def conj(input: Tensor) -> Tensor:
    """The complex conjugate; a real tensor is returned itself; the shape stays.

    >>> metaop.conj(metaop.complex(metaop.ones(1), metaop.ones(1)))
    tensor([1.-1.j])
    """
    return wrap(record(POINTWISE["conj"], (input.call,))) if input.dtype.is_complex else input


def inner_product(pairs: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """The sum of the products of real numbers in pairs of tensors, both parts of complex ones."""
    products = ((first.conj() * second).real.sum() for first, second in pairs)
    return functools.reduce(operator.add, products)


@public(method=True)
def resolve_conj(input: Tensor) -> Tensor:
    """The tensor itself, of its shape: `conj` computes the conjugate, so nothing is pending.

    >>> metaop.resolve_conj(metaop.ones(1))
    tensor([1.])
    """
    return input


@public(method=True, out=True)
def angle(input: Tensor) -> Tensor:
    """The angle in the complex plane in radians: 0, or pi for negative numbers.

    The shape stays; of complex tensors it is the angle with the real axis.

    >>> metaop.angle(metaop.tensor([2.0, -2.0]))
    tensor([0.0000, 3.1416])
    """
    values = input if input.dtype.is_differentiable else input.to(defaults.dtype)
    return wrap(record(operators.angle, (values.call,)))


def _writes(part: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Any], None]:
    """What an assignment to a part of a tensor does: the part is a view."""

    def write(input: Tensor, value: Any) -> None:
        own = part(input)
        own.copy_(value) if isinstance(value, Tensor) else own.fill_(value)

    return write


attribute("real", written=_writes(real))(real)
attribute("imag", written=_writes(imag))(imag)
conj_physical = synonym("conj_physical", conj, in_place=True, in_place_function=True, out=True)
resolve_neg = synonym("resolve_neg", resolve_conj)
