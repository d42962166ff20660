"""Complex tensors: pairs of real numbers along a last dimension that only `view_as_real` shows.

The compiler knows real numbers only. A `ComplexTensor` holds the real tensor (…, 2) and writes
each of its operators with real ones, so gradients come by themselves: the gradient of a real loss
is ∂/∂re + i ∂/∂im, as in PyTorch. What is not defined here is an error, never a wrong number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from metaop.errors import ArgumentTypeError, DTypeError, UnsupportedError
from metaop.tensor.casting import in_float32
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import full, tensor, zeros_like
from metaop.tensor.functions.joining import stack as stack_real
from metaop.tensor.promotion import defaults
from metaop.tensor.size import Size
from metaop.tensor.surface import public
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType, complex64, complex128
from metaop.unified_graph.recording import Call
from metaop.unified_graph.tensor_type import Device

PARTS = {complex64: dtypes.float32, complex128: dtypes.float64}
_WHOLE = {part: whole for whole, part in PARTS.items()}


class ComplexTensor(Tensor):
    """A tensor of complex numbers (`complex64` or `complex128`)."""

    _pair: Tensor

    @property
    def call(self) -> Call:
        raise UnsupportedError(
            "this operator does not take complex tensors",
            fix="compute with view_as_real(tensor), or with tensor.real and tensor.imag",
        )

    # --- what it is -------------------------------------------------------------------------

    @property
    def shape(self) -> Size:
        return Size(self._pair.shape[:-1])

    @property
    def _shape(self) -> tuple[int, ...]:
        return self._pair._shape[:-1]

    @property
    def ndim(self) -> int:
        return self._pair.ndim - 1

    @property
    def dtype(self) -> DType:
        return _WHOLE[self._pair.dtype]

    @property
    def device(self) -> Device:
        return self._pair.device

    @property
    def real(self) -> Tensor:
        """The real parts, a view."""
        return self._pair.select(-1, 0)

    @property
    def imag(self) -> Tensor:
        """The imaginary parts, a view."""
        return self._pair.select(-1, 1)

    # --- gradients --------------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        return self._pair.requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self._pair.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        self._pair.requires_grad_(requires_grad)
        return self

    @property
    def grad(self) -> Tensor | None:
        found = self._pair.grad
        return None if found is None else view_as_complex(found)

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        self._pair.grad = None if value is None else view_as_real(value)

    @property
    def is_leaf(self) -> bool:
        return self._pair.is_leaf

    def detach(self) -> Tensor:
        return view_as_complex(self._pair.detach())

    # --- values -----------------------------------------------------------------------------

    def numpy(self, *, force: bool = False) -> np.ndarray:
        pairs = np.ascontiguousarray(self._pair.numpy(force=force))
        return pairs.view(self.dtype.numpy)[..., 0]

    def __complex__(self) -> Any:
        return self.item()

    def __float__(self) -> float:
        return float(self._real_number())

    def __int__(self) -> int:
        return int(self._real_number())

    def __bool__(self) -> bool:
        return bool((self._pair != 0).any(-1))

    def _real_number(self) -> Any:
        number = self.item()
        if number.imag:
            raise DTypeError(
                f"value cannot be converted to a real number without overflow: {number}",
                fix="take .real or .abs() first",
            )
        return number.real

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if not self.ndim else object.__format__(self, spec)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return view_as_complex, (self._pair,)

    def item(self) -> Any:
        return self.numpy(force=True).item()

    def tolist(self) -> Any:
        return self.numpy(force=True).tolist()

    def __repr__(self) -> str:
        array = self.numpy(force=True)
        text = np.array2string(array, precision=4, separator=", ", prefix="tensor(")
        usual = _WHOLE.get(defaults.dtype)
        return f"tensor({text})" if self.dtype is usual else f"tensor({text}, dtype={self.dtype!r})"

    __str__ = __repr__

    def __getitem__(self, key: Any) -> Tensor:
        return view_as_complex(self._pair[_pair_key(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self._pair[_pair_key(key)] = view_as_real(as_complex(value, self.dtype))


def _pair_key(key: Any) -> Any:
    """An index of the numbers as one of the pairs."""
    listed = key if isinstance(key, tuple) else (key,)
    return (*listed, slice(None)) if any(one is ... for one in listed) else key


# --- making them ----------------------------------------------------------------------------


@public(precision=in_float32)
def view_as_complex(input: Tensor) -> ComplexTensor:
    """The pairs along the last dimension, of size 2, as complex numbers; storage is shared.

    >>> metaop.view_as_complex(metaop.tensor([[1.0, 2.0], [3.0, -4.0]]))
    tensor([1.+2.j, 3.-4.j])
    """
    if input.shape[-1:] != (2,) or input.dtype not in _WHOLE:
        raise DTypeError(
            f"view_as_complex: expected float32 or float64 pairs (…, 2), got {input.dtype.name} "
            f"{list(input.shape)}",
            fix="stack real and imaginary parts along a last dimension",
        )
    result = object.__new__(ComplexTensor)
    result._pair = input
    return result


@public()
def view_as_real(input: Tensor) -> Tensor:
    """Real and imaginary parts along a new last dimension of size 2; storage is shared.

    >>> metaop.view_as_real(metaop.complex(metaop.tensor([1.0]), metaop.tensor([2.0])))
    tensor([[1., 2.]])
    """
    if not isinstance(input, ComplexTensor):
        raise DTypeError("view_as_real is only supported for complex tensors")
    return input._pair


@public(out=True)
def complex(real: Tensor, imag: Tensor) -> ComplexTensor:
    """Complex numbers from their real and imaginary parts, of one shape and type.

    >>> metaop.complex(metaop.tensor([1.0]), metaop.tensor([2.0]))
    tensor([1.+2.j])
    """
    if real.dtype is not imag.dtype:
        raise DTypeError(
            f"Expected object of scalar type {real.dtype.name} but got scalar type "
            f"{imag.dtype.name} for second argument",
            fix="convert one of them",
        )
    shape = np.broadcast_shapes(real.shape, imag.shape)
    return view_as_complex(stack_real([real.expand(shape), imag.expand(shape)], -1))


@public(out=True, precision=in_float32)
def polar(abs: Tensor, angle: Tensor) -> ComplexTensor:
    """Complex numbers from their magnitudes and angles in radians, of one shape and type.

    >>> metaop.polar(metaop.tensor([2.0]), metaop.tensor([0.0]))
    tensor([2.+0.j])
    """
    return complex(abs * angle.cos(), abs * angle.sin())


def as_complex(value: Any, dtype: DType | None = None) -> ComplexTensor:
    """Any tensor or number as a complex tensor (of `dtype`)."""
    if isinstance(value, ComplexTensor):
        part = None if dtype is None else PARTS[dtype]
        return value if part in (None, value._pair.dtype) else view_as_complex(value._pair.to(part))
    if not isinstance(value, Tensor):
        array = np.asarray(value)
        part = PARTS[dtype] if dtype is not None else defaults.dtype
        parts = (np.array(x, part.numpy) for x in (array.real, array.imag))
        return complex(*map(tensor, parts))
    part = PARTS[dtype] if dtype is not None else value.dtype
    real = value.to(part if part in _WHOLE else defaults.dtype)
    return complex(real, zeros_like(real))


def from_complex_array(array: np.ndarray) -> ComplexTensor:
    """A copy of a NumPy array of complex numbers."""
    kind = np.dtype(np.complex64 if array.dtype.itemsize == 8 else np.complex128)
    whole = np.ascontiguousarray(array, kind).reshape(array.shape)
    # A view of a number without dimensions cannot change its type.
    parts = whole.reshape(-1).view(np.float32 if kind.itemsize == 8 else np.float64)
    return view_as_complex(tensor(parts.reshape(*array.shape, 2)))


def filled_complex(shape: Sequence[int], value: Any, dtype: DType, device: Any) -> ComplexTensor:
    """One complex number in every element."""
    number = np.asarray(value).item()
    options: dict[str, Any] = {"dtype": PARTS[dtype], "device": device}
    return complex(*(full(tuple(shape), x, **options) for x in (number.real, number.imag)))


@public()
def imag(input: Tensor) -> Tensor:
    """The imaginary parts of a complex tensor, a view of the same shape.

    >>> metaop.imag(metaop.complex(metaop.tensor([1.0]), metaop.tensor([2.0])))
    tensor([2.])
    """
    if not isinstance(input, ComplexTensor):
        raise ArgumentTypeError("imag is not implemented for tensors with non-complex dtypes.")
    return input.imag


@public()
def real(input: Tensor) -> Tensor:
    """The real parts, a view of the same shape; a real tensor itself.

    >>> metaop.real(metaop.complex(metaop.tensor([1.0]), metaop.tensor([2.0])))
    tensor([1.])
    """
    return input.real if isinstance(input, ComplexTensor) else input
