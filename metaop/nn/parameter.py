"""Parameters and buffers: the tensors that a module owns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from metaop.differentiation.entries import TapeEntry
from metaop.errors import ArgumentError, ArgumentTypeError, GradientError
from metaop.tensor.core import Tensor, from_array, wrap
from metaop.tensor.functions.creation import empty
from metaop.tensor.functions.pointwise import defaults
from metaop.tensor.history import accumulator, own
from metaop.tensor.overrides import _disabled_torch_function_impl
from metaop.tensor.size import Size
from metaop.unified_graph.cut import recorder
from metaop.unified_graph.dtype import DType, dtype_named
from metaop.unified_graph.recording import meeting


class _Owned(Tensor):
    """The base of parameters and buffers: a new tensor with the value of another."""

    __torch_function__: Any = classmethod(_disabled_torch_function_impl)

    def _take(self, data: Tensor | None, requires_grad: bool) -> None:
        if data is None:
            data = from_array(np.empty(0, defaults.dtype.numpy), defaults.dtype)
        if not isinstance(data, Tensor):
            raise ArgumentTypeError(
                f"{type(self).__name__} takes a Tensor, not {type(data).__name__}",
                fix="make it a tensor with metaop.tensor(...)",
            )
        if requires_grad and not data.dtype.is_differentiable:
            raise GradientError(
                "Only Tensors of floating point and complex dtype can be parameters that require "
                f"gradients, not {data.dtype.name}",
                fix="pass requires_grad=False",
            )
        # It is in the memory of a whole tensor; one that is made of a view has its own.
        alias = data.data if data._base is None else wrap(own(data.call))
        call = alias._call
        self._call = call = call if meeting.trained is None else meeting.trained(call)
        self._grad = None
        self._base, self._cell = None, alias._cell
        if self._cell is not None:
            self._seen = alias._seen
        self._shared = data._shared
        self._writes = 0
        if requires_grad:
            call.requires_grad = True
            call.tape = TapeEntry(accumulate=accumulator(self))
        if call.buffer is None:
            recorder.watch(self)

    def _attributes(self) -> dict[str, Any]:
        """Attributes that the user has attached to the tensor (`parameter.is_shared = True`)."""
        return dict(self.__dict__)

    def _copied(self, requires_grad: bool, attributes: dict[str, Any]) -> Any:
        copied = object.__new__(type(self))
        copied._take(self.detach().clone(), requires_grad)
        copied.__dict__.update(attributes)
        return copied

    def __repr__(self) -> str:
        return f"{type(self).__name__} containing:\n{super().__repr__()}"

    __str__ = __repr__


class Parameter(_Owned):
    """A tensor that a module registers as a parameter when it is assigned as an attribute.

    Example: `self.scale = Parameter(metaop.ones(3))`

    It has the shape of the tensor, and requires a gradient.

    >>> nn.Parameter(metaop.ones(3)).requires_grad
    True
    """

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        parameter = object.__new__(cls)
        parameter._take(data, requires_grad)
        return parameter

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        if id(self) not in memo:
            memo[id(self)] = self._copied(self.requires_grad, {})
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> tuple:
        state = (self._array(), self.dtype.name, self.requires_grad, self._attributes())
        return (_restore, (type(self), *state))


class Buffer(_Owned):
    """A tensor that a module registers as a buffer when it is assigned as an attribute.

    `persistent` buffers are part of the module's state_dict.

    It has the shape of `data`, and no gradient. Raises ArgumentTypeError unless `data` is a tensor.

    >>> layer = nn.Module()
    >>> layer.steps = nn.Buffer(metaop.zeros(2))
    >>> list(layer.state_dict())
    ['steps']
    """

    persistent: bool

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Buffer:
        buffer = object.__new__(cls)
        buffer._take(data, False)
        buffer.persistent = persistent
        return buffer

    def __deepcopy__(self, memo: dict[int, Any]) -> Buffer:
        if id(self) not in memo:
            memo[id(self)] = self._copied(False, self._attributes())
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> tuple:
        state = (self._array(), self.dtype.name, False, self._attributes())
        return (_restore, (type(self), *state))


def _restore(
    cls: type[_Owned],
    array: np.ndarray,
    dtype_name: str,
    requires_grad: bool,
    attributes: dict[str, Any],
) -> Any:
    dtype: DType = dtype_named(dtype_name)
    owned = object.__new__(cls)
    owned._take(from_array(np.ascontiguousarray(array), dtype), requires_grad)
    owned.__dict__.update(attributes)
    return owned


class UninitializedTensorMixin(Tensor):
    """A tensor whose shape is unknown until `materialize`; it has a dtype and a device."""

    cls_to_become: type[Tensor]

    def materialize(
        self, shape: Sequence[int], device: Any = None, dtype: DType | None = None
    ) -> None:
        """Gives the tensor a shape and uninitialised memory, which makes it an ordinary tensor."""
        data = empty(tuple(shape), device=device or self.device, dtype=dtype or self.dtype)
        self.__class__ = self.cls_to_become  # type: ignore[assignment]
        self._take(data, self.requires_grad)  # type: ignore[attr-defined]

    @property
    def shape(self) -> Size:
        raise ArgumentError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually "
            "happens in `load_state_dict` when trying to load an uninitialized parameter into an "
            "initialized one.",
            fix="call the module once to create its parameters",
        )

    def detach(self) -> Any:
        """Returns the tensor itself: there are no values to share."""
        return self

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def _repr_html_(self) -> str:
        return f"<div><b>{type(self).__name__}</b> of a shape that is not yet known</div>"


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A `Parameter` whose shape is not yet known.

    Only dtype and device are known until `materialize(shape)`; reading the shape before raises
    ArgumentError.

    >>> parameter = nn.UninitializedParameter()
    >>> parameter.materialize((2, 3))
    >>> type(parameter).__name__, parameter.shape
    ('Parameter', metaop.Size([2, 3]))
    """

    cls_to_become = Parameter

    def __new__(
        cls, requires_grad: bool = True, device: Any = None, dtype: DType | None = None
    ) -> UninitializedParameter:
        parameter = object.__new__(cls)
        parameter._take(empty(0, device=device, dtype=dtype), requires_grad)
        return parameter


class UninitializedBuffer(UninitializedTensorMixin, Buffer):
    """A `Buffer` whose shape is not yet known.

    Only dtype and device are known until `materialize(shape)`; reading the shape before raises
    ArgumentError.

    >>> buffer = nn.UninitializedBuffer()
    >>> buffer.materialize((2, 3))
    >>> type(buffer).__name__, buffer.shape
    ('Buffer', metaop.Size([2, 3]))
    """

    cls_to_become = Buffer

    def __new__(
        cls,
        requires_grad: bool = False,
        device: Any = None,
        dtype: DType | None = None,
        persistent: bool = True,
    ) -> UninitializedBuffer:
        buffer = object.__new__(cls)
        buffer._take(empty(0, device=device, dtype=dtype), requires_grad)
        buffer.persistent = persistent
        return buffer


def is_lazy(param: Any) -> bool:
    """Whether a parameter or buffer has no shape yet."""
    return isinstance(param, UninitializedTensorMixin)


def factory_kwargs(kwargs: dict[str, Any] | None) -> dict[str, Any]:
    """A module's keywords that its tensor factories take.

    These are `device`, `dtype` and `memory_format`, given directly or within `factory_kwargs`.
    Raises ArgumentTypeError for other keywords, and for one that is given twice.

    >>> nn.factory_kwargs({"dtype": metaop.float64})
    {'dtype': metaop.float64}
    """
    kwargs = dict(kwargs or {})
    found = dict(kwargs.pop("factory_kwargs", {}))
    unknown = kwargs.keys() - {"device", "dtype", "memory_format"}
    if unknown:
        raise ArgumentTypeError(f"unexpected kwargs {unknown}", fix="leave them out")
    twice = kwargs.keys() & found.keys()
    if twice:
        raise ArgumentTypeError(
            f"{min(twice)} specified twice, in **kwargs and in factory_kwargs",
            fix="give it once",
        )
    return {**found, **kwargs}
