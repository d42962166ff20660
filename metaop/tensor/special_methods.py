"""The Python operators and protocols of tensors: arithmetic, comparison, conversion, copying."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from metaop.errors import (
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    GradientError,
    ShapeError,
)
from metaop.operators.pointwise import POINTWISE
from metaop.tensor import html, printing
from metaop.tensor.attributes import fields
from metaop.tensor.core import Tensor, from_array, view
from metaop.tensor.functions import comparison, conversion, pointwise, shaping
from metaop.tensor.host import dlpack
from metaop.tensor.linear_algebra import products as linear_algebra
from metaop.tensor.promotion import binary
from metaop.tensor.sparse import layouts
from metaop.tensor.writing import in_place
from metaop.unified_graph.cut import recorder


def _is_operand(value: Any) -> bool:
    return isinstance(value, (Tensor, int, float, complex, np.ndarray, np.generic))


def _forward(function: Callable[[Any, Any], Tensor]) -> Callable[[Tensor, Any], Tensor]:
    def method(self: Tensor, other: Any) -> Tensor:
        return function(self, other) if _is_operand(other) else NotImplemented

    return method


def _reflected(function: Callable[[Any, Any], Tensor]) -> Callable[[Tensor, Any], Tensor]:
    def method(self: Tensor, other: Any) -> Tensor:
        return function(other, self) if _is_operand(other) else NotImplemented

    return method


def _in_place(function: Callable[[Any, Any], Tensor]) -> Callable[[Tensor, Any], Tensor]:
    def method(self: Tensor, other: Any) -> Tensor:
        return in_place(self, function, other) if _is_operand(other) else NotImplemented

    return method


_ARITHMETIC: dict[str, Callable[[Any, Any], Tensor]] = {
    "add": pointwise.add,
    "sub": pointwise.sub,
    "mul": pointwise.mul,
    "truediv": pointwise.div,
    "floordiv": pointwise.floor_divide,
    "mod": pointwise.remainder,
    "pow": pointwise.pow,
    "and": pointwise.bitwise_and,
    "or": pointwise.bitwise_or,
    "xor": pointwise.bitwise_xor,
    "lshift": pointwise.bitwise_left_shift,
    "rshift": pointwise.bitwise_right_shift,
}
for _name, _function in _ARITHMETIC.items():
    setattr(Tensor, f"__{_name}__", _forward(_function))
    setattr(Tensor, f"__r{_name}__", _reflected(_function))
    setattr(Tensor, f"__i{_name}__", _in_place(_function))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Tensor, f"__{_name}__", _forward(getattr(comparison, _name)))


def _add(self: Tensor, other: Any) -> Tensor:
    return binary(_ADD, self, other) if _is_operand(other) else NotImplemented


def _sub(self: Tensor, other: Any) -> Tensor:
    return binary(_SUB, self, other) if _is_operand(other) else NotImplemented


_ADD, _SUB = POINTWISE["add"], POINTWISE["sub"]


def _divided_into(self: Tensor, other: Any) -> Tensor:
    """`number / tensor`, as PyTorch computes it: the gradient needs the result, not the tensor."""
    if _is_operand(other):
        return binary(_MUL, pointwise.reciprocal(self), other)
    return NotImplemented


_MUL = POINTWISE["mul"]


def _matmul(self: Tensor, other: Any) -> Tensor:
    return self.matmul(other) if isinstance(other, Tensor) else NotImplemented


def _reflected_matmul(self: Tensor, other: Any) -> Tensor:
    return other.matmul(self) if isinstance(other, Tensor) else NotImplemented


def _in_place_matmul(self: Tensor, other: Any) -> Tensor:
    return (
        in_place(self, linear_algebra.matmul, other)
        if isinstance(other, Tensor)
        else NotImplemented
    )


def _length(self: Tensor) -> int:
    if self.ndim == 0:
        raise ArgumentTypeError("len() of a 0-d tensor", fix="use .numel()")
    return self.shape[0]


def _iterate(self: Tensor) -> Iterator[Tensor]:
    if self.ndim == 0:
        raise ArgumentTypeError("iteration over a 0-d tensor", fix="use .item()")
    return iter([self[k] for k in range(self.shape[0])])


def _contains(self: Tensor, element: Any) -> bool:
    return bool(comparison.eq(self, element).any())


def _truth(self: Tensor) -> bool:
    size = self.call.type.size
    if size != 1:
        raise ShapeError(
            "Boolean value of Tensor with "
            + ("no values" if size == 0 else "more than one value")
            + " is ambiguous",
            fix="use .any(), .all() or .numel()",
        )
    return bool(self.item())


def _real_number(self: Tensor) -> int | float | bool:
    """The single element as a real number; an error if it has an imaginary part."""
    number = self.item()
    if not isinstance(number, complex):
        return number
    if number.imag:
        raise DTypeError(
            f"value cannot be converted to a real number without overflow: {number}",
            fix="take .real or .abs() first",
        )
    return number.real


def _index(self: Tensor) -> int:
    if self.dtype.is_differentiable or self.call.type.size != 1:
        raise ArgumentTypeError(
            "only integer tensors of a single element can be converted to an index",
            fix="convert it with int(tensor)",
        )
    return int(self.item())


def _format(self: Tensor, spec: str) -> str:
    if self.ndim == 0 and self.device.type != "meta" and (spec or type(self) is Tensor):
        return self.item().__format__(spec)
    return object.__format__(self, spec)


def _array_namespace(self: Tensor, *, api_version: str | None = None) -> Any:
    """The functions of the array API standard (`metaop.array_api`)."""
    # That room is built on this one.
    namespace = importlib.import_module("metaop.array_api")
    if api_version is not None and api_version > namespace.__array_api_version__:
        raise ArgumentError(
            f"the array API of {api_version} is not supported",
            fix=f"metaop follows {namespace.__array_api_version__}",
        )
    return namespace


def _copied_storage(self: Tensor, memo: dict[int, Any]) -> Tensor:
    """A copy that shares its storage with the copies of what shares that of the original."""
    root = self
    while root._base is not None:
        root = root._base
    _ = root.call  # forgets peers that are gone
    storage = root if root._cell is None else root._cell
    key: Any = ("storage", id(storage))
    if key not in memo:  # the storage stays alive, so that its number stays its own
        memo[key] = root.detach().clone(), storage
    return _shown_alike(self, memo[key][0].detach())


def _shown_alike(shown: Tensor, root: Tensor) -> Tensor:
    """The view of `root` that `shown` is of its own root."""
    if shown._base is None:
        return root
    copied = _shown_alike(shown._base, root)
    for step, attributes in shown._steps:
        copied = view(copied, step, attributes)
    return copied


def _deep_copy(self: Tensor, memo: dict[int, Any]) -> Tensor:
    if id(self) in memo:
        return memo[id(self)]
    if not self.is_leaf:
        raise GradientError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
            "protocol at the moment.",
            fix="detach the tensor first",
        )
    result = object.__new__(self.__class__)
    plain = _copied_storage(self, memo)
    fields(result).update(fields(plain))
    result.__dict__.update(self.__dict__)
    memo[id(self)] = result
    result.requires_grad_(self.requires_grad)
    if self._grad is not None:
        result._grad = _deep_copy(self._grad, memo)
    return result


def _copy(self: Tensor) -> Tensor:
    """Another handle on the same storage, as `copy.copy` gives."""
    if not self.is_leaf:
        return shaping.alias(self)
    result = object.__new__(self.__class__)
    peer = self.data
    fields(result).update({**fields(self), **fields(peer), "_frozen_tape": None})
    if result._call.buffer is None:
        recorder.watch(result)
    return result.requires_grad_(self.requires_grad)


def _rebuild(array: np.ndarray, dtype: Any, requires_grad: bool) -> Tensor:
    result = from_array(array.view(dtype.numpy), dtype)
    return result.requires_grad_() if requires_grad else result


def _reduce(self: Tensor, protocol: Any) -> tuple[Any, ...]:
    # Bytes, because NumPy cannot pickle the types that it has from elsewhere (bfloat16).
    values = np.array(self.detach()._array())
    raw = values.view(np.uint16) if values.dtype.kind == "V" else values
    return _rebuild, (raw, self.dtype, self.requires_grad and self.is_leaf)


_PROPERTIES: dict[str, Callable[[Tensor], Any]] = {
    "itemsize": lambda self: self.dtype.itemsize,
    "nbytes": lambda self: self.call.type.nbytes,
    "is_cpu": lambda self: self.device.type == "cpu",
    "is_cuda": lambda self: self.device.type == "cuda",
    "is_meta": lambda self: self.device.type == "meta",
    "is_sparse": lambda self: False,
    # Devices and layouts of PyTorch that metaop lacks.
    **dict.fromkeys(
        (
            *("is_ipu", "is_maia", "is_mkldnn", "is_mps", "is_mtia", "is_nested", "is_quantized"),
            *("is_sparse_csr", "is_vulkan", "is_xla", "is_xpu"),
        ),
        lambda self: False,
    ),
    "layout": lambda self: layouts.strided,
}
for _name, _getter in _PROPERTIES.items():
    setattr(Tensor, _name, property(_getter))

_METHODS: dict[str, Any] = {
    "__add__": _add,
    "__sub__": _sub,
    "__rtruediv__": _divided_into,
    "__rdiv__": _divided_into,
    "__neg__": pointwise.neg,
    "__pos__": pointwise.positive,
    "__abs__": pointwise.abs,
    "__invert__": pointwise.bitwise_not,
    "__matmul__": _matmul,
    "__rmatmul__": _reflected_matmul,
    "__imatmul__": _in_place_matmul,
    "__len__": _length,
    "__iter__": _iterate,
    "__contains__": _contains,
    "__bool__": _truth,
    "__int__": lambda self: int(_real_number(self)),
    "__float__": lambda self: float(_real_number(self)),
    "__complex__": lambda self: complex(self.item()),
    "__index__": _index,
    "__hash__": lambda self: id(self),
    "__format__": _format,
    "__repr__": printing.text_of,
    "__str__": printing.text_of,
    "_repr_html_": html.html_of,
    "__array__": conversion.array,
    "__array_wrap__": conversion.wrapped,
    "__array_namespace__": _array_namespace,
    "__dlpack__": dlpack.dlpack,
    "__dlpack_device__": dlpack.dlpack_device,
    "__copy__": _copy,
    "__deepcopy__": _deep_copy,
    "is_inference": lambda self: False,
    "__reduce_ex__": _reduce,
}
for _name, _method in _METHODS.items():
    setattr(Tensor, _name, _method)
