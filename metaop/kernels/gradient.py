"""The declared gradient of a custom kernel, recorded on the tape like any other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from metaop.autograd.function import Function
from metaop.errors import GradientError
from metaop.tensor.core import Tensor

# Maps the inputs, the outputs and their cotangents to the gradients of the inputs.
Gradient = Callable[..., Any]


class CustomKernel(Function):
    """Runs a kernel forward, and its declared gradient backward."""

    @staticmethod
    def forward(
        ctx: Any, name: str, launch: Callable[[], list[Tensor]], gradient: Any, *inputs: Tensor
    ) -> tuple[Tensor, ...]:
        outputs = launch()
        ctx.name, ctx.gradient, ctx.count = name, gradient, len(inputs)
        ctx.save_for_backward(*inputs, *outputs)
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Any, ...]:
        if ctx.gradient is None:
            raise GradientError(
                f"{ctx.name} is a custom kernel without a gradient",
                fix="declare one with gradient=, or call it on x.detach()",
            )
        saved = ctx.saved_tensors
        inputs, outputs = saved[: ctx.count], saved[ctx.count :]
        if hasattr(ctx.gradient, "source"):
            found = ctx.gradient(*inputs, *outputs, *cotangents)
        else:
            found = ctx.gradient(inputs, outputs, cotangents)
        listed = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        return (None, None, None, *listed)


def differentiable(
    name: str,
    launch: Callable[[], list[Tensor]],
    inputs: Sequence[Tensor],
    gradient: Gradient | None,
) -> Any:
    """The output of a kernel with its gradient attached: a tensor, or a tuple of several."""
    outputs = CustomKernel.apply(name, launch, gradient, *inputs)
    return outputs[0] if len(outputs) == 1 else outputs
