"""The Tensor: a handle on a recorded value, with PyTorch's aliasing and gradient semantics.

Values are immutable; an in-place operation binds the handle to a new value. A view remembers its
base and the view operators between them: it derives itself again when the base has changed, and
writing through it writes the base.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

import numpy as np

from metaop.codegen.memory import Buffer
from metaop.differentiation.tape import TapeEntry
from metaop.errors import GradientError, ShapeError
from metaop.executor import realize
from metaop.operators.view_write import view_write
from metaop.unified_graph.composite import Composite
from metaop.unified_graph.cut import recorder
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.recording import Call, leaf, modes, record
from metaop.unified_graph.tensor_type import CPU, Device, TensorType

ViewStep = tuple[Composite, tuple[Any, ...]]


class Size(tuple):
    """A shape: a tuple of ints with `numel()`."""

    def numel(self) -> int:
        total = 1
        for extent in self:
            total *= extent
        return total

    def __repr__(self) -> str:
        return f"metaop.Size({list(self)})"


class Tensor:
    """An n-dimensional array that is computed lazily and can track gradients.

    Made by `metaop.tensor(data)` and the other creation functions, not by calling the class.
    """

    _call: Call
    grad: Tensor | None
    _base: Tensor | None
    _steps: tuple[ViewStep, ...]
    _seen: int
    _version: int
    # Lets `numpy_array * tensor` reach Tensor.__rmul__.
    __array_priority__ = 1000

    def __new__(cls, *args: Any, **kwargs: Any) -> Tensor:
        return object.__new__(cls)

    @property
    def call(self) -> Call:
        """The recorded value, derived again from the base when that has changed."""
        base = self._base
        if base is not None and self._seen != base._version:
            self._derive(base)
        return self._call

    def _derive(self, base: Tensor) -> None:
        call = base.call
        tracks = modes.gradients
        for step, attributes in self._steps:
            if step.differentiable:
                call = record(step, (call,), attributes)
            else:
                modes.gradients = False
                call = record(step, (call,), attributes)
                modes.gradients = tracks
        self._call = call
        self._seen = base._version
        if call.buffer is None:
            recorder.watch(self)

    def _rebind(self, call: Call, operator: str) -> None:
        """Makes `call` the value of this tensor: every in-place operation ends here."""
        if call.type.shape != self._call.type.shape:
            raise ShapeError(
                f"{operator}: the result has shape {list(call.type.shape)}, the tensor that it "
                f"should be written into has {list(self._call.type.shape)}",
                fix="use the out-of-place form",
            )
        old = self.call
        if self.is_leaf and self.requires_grad and modes.gradients:
            raise GradientError(
                f"a leaf Variable that requires grad is being used in an in-place operation "
                f"({operator})",
                fix="do it under metaop.no_grad(), or on a clone",
            )
        if self._base is not None:
            self._write_base(call, operator)
        if old.tape is not None and old.tape.accumulate is not None and not modes.gradients:
            call = _own(call)
            call.requires_grad = old.requires_grad
            call.tape = old.tape
        old.overwritten = operator
        self._call = call
        self._version += 1
        if call.buffer is None:
            recorder.watch(self)

    def _assign(self, call: Call, operator: str) -> None:
        """Makes the fresh, untracked `call` the value of a tensor that is no view, unchecked.

        The short way for many tensors at once (an optimizer's step): a leaf stays a leaf, what
        was saved for a backward pass counts as overwritten.
        """
        old = self._call
        if old.requires_grad:
            call.requires_grad = True
            call.tape = old.tape
        old.overwritten = operator
        self._call = call
        self._version += 1
        recorder.watch(self)

    def _write_base(self, call: Call, operator: str) -> None:
        base = self._base
        assert base is not None
        steps = self._steps
        if all(step.name in ("detach", "alias") for step, _ in steps):
            written = call
        else:
            written = record(view_write, (base.call, call), (steps,))
        tracks = modes.gradients
        if not all(step.differentiable for step, _ in steps):
            modes.gradients = False
        try:
            base._rebind(written, operator)
        finally:
            modes.gradients = tracks
        self._seen = base._version

    # --- what a tensor is -------------------------------------------------------------------

    @property
    def shape(self) -> Size:
        return Size(self._call.type.shape)

    @property
    def dtype(self) -> DType:
        return self._call.type.dtype

    @property
    def device(self) -> Device:
        return self._call.type.device

    @property
    def ndim(self) -> int:
        return len(self._call.type.shape)

    @property
    def requires_grad(self) -> bool:
        return self.call.requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Makes a leaf record what is done with it (or stop doing so)."""
        call = self.call
        if call.requires_grad == requires_grad:
            return self
        if not self.is_leaf:
            raise GradientError(
                "you can only change requires_grad flags of leaf variables",
                fix="use .detach() for a tensor that does not require grad",
            )
        if requires_grad and not call.type.differentiable:
            raise GradientError(
                f"only floating point tensors can require gradients, not {call.type.dtype.name}",
                fix="convert with .float() first",
            )
        call = self._call = _own(call)
        call.requires_grad = requires_grad
        call.tape = TapeEntry(accumulate=_accumulator(self)) if requires_grad else None
        if call.buffer is None:
            recorder.watch(self)
        return self

    def _accumulate_grad(self, gradient: Call) -> None:
        if self.grad is None:
            self.grad = wrap(gradient)
        elif modes.gradients:
            self.grad = self.grad + wrap(gradient)  # type: ignore[operator]
        else:
            self.grad.add_(wrap(gradient))  # type: ignore[attr-defined]

    @property
    def is_leaf(self) -> bool:
        call = self.call
        if not call.requires_grad:
            return True
        return call.tape is not None and call.tape.accumulate is not None

    @property
    def data(self) -> Tensor:
        """The same values without gradient tracking; writing into it writes this tensor."""
        return self.detach()  # type: ignore[attr-defined]

    @data.setter
    def data(self, value: Tensor) -> None:
        previous, modes.gradients = modes.gradients, False
        try:
            old, call = self.call, _own(value.call)
            call.requires_grad, call.tape = old.requires_grad, old.tape
            self._call = call
            self._base, self._steps = None, ()
            self._version += 1
            if call.buffer is None:
                recorder.watch(self)
        finally:
            modes.gradients = previous

    # --- values -----------------------------------------------------------------------------

    def buffer(self) -> Buffer:
        """The memory of the value, computed now if it is not there yet."""
        call = self.call
        if call.buffer is None:
            if call.scalar is not None:
                value = np.asarray(call.scalar).astype(call.type.dtype.numpy)
                call.buffer = Buffer.from_numpy(value)
            else:
                realize(call)
        return call.buffer

    def numpy(self, *, force: bool = False) -> np.ndarray:
        """The values as a NumPy array that shares memory with the tensor.

        Raises GradientError for a tensor that requires grad unless `force` is set.
        """
        if self.requires_grad and not force and modes.gradients:
            raise GradientError(
                "can't call numpy() on a tensor that requires grad",
                fix="use tensor.detach().numpy()",
            )
        return self._array()

    def _array(self) -> np.ndarray:
        kind = self._call.type
        return self.buffer().view(kind.shape, kind.dtype.numpy)

    def item(self) -> int | float | bool:
        """The value of a tensor with one element as a Python number."""
        array = self._array()
        if array.size != 1:
            raise ShapeError(
                f"a Tensor with {array.size} elements cannot be converted to Scalar "
                f"(shape {list(self.shape)})",
                fix="index or reduce it first",
            )
        return array.reshape(()).item()

    def tolist(self) -> Any:
        """The values as nested Python lists (a number for a 0-d tensor)."""
        return self._array().tolist()


def _accumulator(tensor: Tensor) -> Callable[[Call], None]:
    """Adds gradients to a tensor as long as it lives; holding it would make a cycle."""
    reference = ref(tensor)

    def accumulate(gradient: Call) -> None:
        owner = reference()
        if owner is not None:
            owner._accumulate_grad(gradient)

    return accumulate


def wrap(call: Call) -> Tensor:
    """A new tensor whose value is `call`."""
    tensor = object.__new__(Tensor)
    tensor._call = call
    tensor.grad = None
    tensor._base = None
    tensor._version = 0
    if call.buffer is None:
        recorder.watch(tensor)
    return tensor


def view(source: Tensor, step: Composite, attributes: tuple[Any, ...] = ()) -> Tensor:
    """The tensor that `step` makes of `source`, sharing its storage."""
    tensor = wrap(record(step, (source.call,), attributes))
    base = source._base
    if base is None:
        tensor._base, tensor._steps = source, ((step, attributes),)
    else:
        tensor._base, tensor._steps = base, (*source._steps, (step, attributes))
    tensor._seen = tensor._base._version
    return tensor


def from_array(array: np.ndarray, dtype: DType, device: Device = CPU) -> Tensor:
    """A leaf tensor on the memory of a NumPy array of the same type (copied when unaligned)."""
    return wrap(leaf(TensorType(array.shape, dtype, device), Buffer.from_numpy(array)))


def in_place(tensor: Tensor, function: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
    """Writes `function(tensor, …)` into the tensor: the in-place form of any function.

    The result is converted to the tensor's dtype; a result of a higher kind (float into an
    integer tensor) is an error, as in PyTorch.
    """
    result = function(tensor, *args, **kwargs)
    name = function.__name__ + "_"
    tensor._rebind(convert_for_write(result, tensor.dtype, name), name)
    return tensor


def convert_for_write(result: Tensor, dtype: DType, operator: str) -> Call:
    """The value of `result` as `dtype`; DTypeError when the kind would be lowered."""
    from metaop.errors import DTypeError
    from metaop.operators.basic import convert
    from metaop.unified_graph.dtype import kind_rank

    if result.dtype is dtype:
        return result.call
    if kind_rank(result.dtype) > kind_rank(dtype):
        raise DTypeError(
            f"{operator}: result type {result.dtype.name} can't be cast to the desired output "
            f"type {dtype.name}",
            fix="convert the tensor with .to() first, or use the out-of-place form",
        )
    return record(convert, (result.call,), (dtype,))


def _own(call: Call) -> Call:
    """A call of one's own with the value of `call`, to carry a tape without disturbing others."""
    from metaop.operators.basic import alias

    if call.buffer is not None:
        return leaf(call.type, call.buffer)
    previous, modes.gradients = modes.gradients, False
    try:
        return record(alias, (call,))
    finally:
        modes.gradients = previous


def calls_of(tensors: Sequence[Tensor]) -> list[Call]:
    """The recorded values of several tensors."""
    return [tensor.call for tensor in tensors]
