"""Changing all values of a module at once: dtype, device, training mode, gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from metaop.dist.placement import Placement
from metaop.errors import ArgumentError, ArgumentTypeError
from metaop.nn.parameter import Parameter
from metaop.nn.signature_choice import SbpChoice, signature_by_name
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import empty_like
from metaop.tensor.grad_mode import no_grad
from metaop.tensor.options import device_of
from metaop.tensor.sharded.global_tensor import spread_first
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType, from_python_type
from metaop.unified_graph.tensor_type import Device

if TYPE_CHECKING:
    from metaop.nn.module import Module

Self = TypeVar("Self", bound="ConversionMixin")


class ConversionMixin:
    """`to`, `float`, `cuda`, `train`, `requires_grad_` and the like; all return the module."""

    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    if TYPE_CHECKING:
        children: Callable[[], Iterator[Module]]
        parameters: Callable[..., Iterator[Parameter]]
        named_parameters: Callable[..., Iterator[tuple[str, Parameter]]]
        named_buffers: Callable[..., Iterator[tuple[str, Tensor]]]
        named_modules: Callable[..., Iterator[tuple[str, Module]]]
    training: bool

    @no_grad()
    def _apply(self: Self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Applies `fn` to the values of all parameters, gradients and buffers.

        Parameters stay the same objects, so optimizers keep working.
        """
        if recurse:
            for module in self.children():
                module._apply(fn)
        for parameter in self._parameters.values():
            if parameter is None:
                continue
            parameter.data = fn(parameter.data)
            if parameter.grad is not None:
                parameter.grad = fn(parameter.grad)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    def apply(self: Self, fn: Callable[[Module], Any]) -> Self:
        """Calls `fn` with every submodule, children first, then with this one."""
        for module in self.children():
            module.apply(fn)
        fn(self)  # type: ignore[arg-type]
        return self

    @no_grad()
    def to_global(
        self: Self, placement: Placement | None = None, sbp: SbpChoice | None = None
    ) -> Self:
        """Distributes the parameters, their gradients and the buffers over a placement.

        Values are those of its first rank. Without `placement` global ones keep their own. `sbp`
        has one state per mesh axis for all values; or it maps name patterns to states, where `*`
        matches anything (`{"*.weight": sbp.split(0)}`; other values are replicated), or it is a
        function of name and tensor. A dimension too small to be split stays whole.
        """
        if sbp is None:
            raise ArgumentError("to_global() needs sbp", fix="use sbp.broadcast or sbp.split(0)")
        choose = signature_by_name(
            sbp, [*dict(self.named_parameters()), *dict(self.named_buffers())]
        )

        def placed(name: str, tensor: Tensor) -> Tensor:
            target = placement or tensor.device.placement
            if target is None:
                raise ArgumentError(
                    f"to_global() of the local {name} needs a placement",
                    fix='to_global(placement.all("cpu"), sbp.broadcast)',
                )
            return spread_first(tensor, target, choose(name, tensor, target))

        for name, parameter in self.named_parameters():
            parameter.data = placed(name, parameter.data)
            if parameter.grad is not None:
                parameter.grad = placed(name, parameter.grad)
        for owner, module in self.named_modules():
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    path = f"{owner}.{name}" if owner else name
                    module._buffers[name] = placed(path, buffer)
        return self

    def to(self: Self, *args: Any, **kwargs: Any) -> Self:
        """Moves and/or converts: `to(device)`, `to(dtype)`, `to(device, dtype)`, `to(tensor)`.

        Only floating-point parameters and buffers change their dtype; complex ones only if the new
        dtype is complex.
        """
        device, dtype, _, _ = parse_to(*args, **kwargs)
        if dtype is not None and not dtype.is_differentiable:
            raise ArgumentTypeError(
                "nn.Module.to only accepts floating point or complex dtypes, but got desired "
                f"dtype={dtype!r}",
                fix="convert the tensors of the module one by one",
            )

        def convert(tensor: Tensor) -> Tensor:
            kinds = ("float", "complex") if dtype is not None and dtype.is_complex else ("float",)
            converts = dtype is not None and tensor.dtype.kind in kinds
            return tensor.to(device or tensor.device, dtype if converts else tensor.dtype)

        return self._apply(convert)

    def __to_float(self: Self, dtype: DType) -> Self:
        return self._apply(lambda t: t.to(dtype) if t.dtype.is_floating_point else t)

    def float(self: Self) -> Self:
        """Converts floating-point values to float32."""
        return self.__to_float(dtypes.float32)

    def double(self: Self) -> Self:
        """Converts floating-point values to float64."""
        return self.__to_float(dtypes.float64)

    def half(self: Self) -> Self:
        """Converts floating-point values to float16."""
        return self.__to_float(dtypes.float16)

    def bfloat16(self: Self) -> Self:
        """Converts floating-point values to bfloat16."""
        return self.__to_float(dtypes.bfloat16)

    def type(self: Self, dst_type: DType) -> Self:
        """Converts all values to `dst_type`."""
        return self._apply(lambda t: t.to(dst_type))

    def cpu(self: Self) -> Self:
        """Moves all values to host memory."""
        return self._apply(lambda t: t.to(Device("cpu")))

    def cuda(self: Self, device: Device | str | int | None = None) -> Self:
        """Moves all values to a GPU, the current one unless `device` names another."""
        target = Device("cuda" if device is None else device)
        return self._apply(lambda t: t.to(target))

    def to_empty(self: Self, *, device: Any, recurse: bool = True) -> Self:
        """Moves the module without its values: they are zero afterwards."""
        return self._apply(lambda t: empty_like(t, device=device), recurse=recurse)

    def share_memory(self: Self) -> Self:
        """Moves all values to shared memory (see `Tensor.share_memory_`)."""
        for _, tensor in (*self.named_parameters(), *self.named_buffers()):
            tensor.share_memory_()
        return self

    def train(self: Self, mode: bool = True) -> Self:
        """Sets the module and its children to training mode (or evaluation mode)."""
        if not isinstance(mode, bool):
            raise ArgumentError("training mode is expected to be boolean", fix="pass True or False")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self: Self) -> Self:
        """Sets the module and its children to evaluation mode."""
        return self.train(False)

    def requires_grad_(self: Self, requires_grad: bool = True) -> Self:
        """Sets `requires_grad` of all parameters."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients of all parameters (or fills them with zeros)."""
        for parameter in self.parameters():
            if parameter.grad is None or set_to_none:
                parameter.grad = None
            else:
                parameter.grad = parameter.grad.detach().zero_()


def parse_to(
    *args: Any,
    device: Any = None,
    dtype: DType | None = None,
    non_blocking: bool = False,
    memory_format: Any = None,
    tensor: Tensor | None = None,
) -> tuple[Device | None, DType | None, bool, Any]:
    """Parses the arguments of `to`: a device, a dtype, non_blocking and a memory format.

    Those not requested are None. Modules that override `to` call it.
    """
    dtype = from_python_type(dtype) or dtype
    for argument in (*args, tensor):
        if named := from_python_type(argument):
            dtype = named
        elif isinstance(argument, Tensor):
            device, dtype = argument.device, argument.dtype
        elif isinstance(argument, DType):
            dtype = argument
        elif isinstance(argument, bool):
            non_blocking = argument
        elif isinstance(argument, (str, int, Device)):
            device = argument
    return (None if device is None else device_of(device)), dtype, non_blocking, memory_format
