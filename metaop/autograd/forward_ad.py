"""Derivatives along a direction, carried by tensors (`torch.autograd.forward_ad`).

A tangent is computed when `unpack_dual` asks for it, by differentiating twice: the gradient by the
sources of a level is linear in its cotangent, and the derivative of that is the tangent. So inside
a level dual tensors track gradients, also after it, where PyTorch's do not.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from metaop.autograd.gradients import grad
from metaop.errors import ArgumentError, DTypeError, GradientError, ShapeError
from metaop.tensor.core import Tensor
from metaop.tensor.functions.complex_numbers import inner_product
from metaop.tensor.functions.creation import zeros_like
from metaop.tensor.grad_mode import enable_grad
from metaop.unified_graph.recording import modes

__all__ = [
    "UnpackedDualTensor",
    "dual_level",
    "enter_dual_level",
    "exit_dual_level",
    "make_dual",
    "unpack_dual",
]


class UnpackedDualTensor(NamedTuple):
    """The value of a dual tensor and its tangent, None where there is none."""

    primal: Tensor
    tangent: Tensor | None


class _Level:
    """The sources of the tangents of the level that is open now."""

    def __init__(self) -> None:
        self.sources: list[tuple[Tensor, Tensor]] = []
        self.tracking: Any = enable_grad()


_open: list[_Level] = []


def enter_dual_level() -> int:
    """Opens the level in which dual tensors can be made; returns its number, 0.

    Raises GradientError when one is open: PyTorch does not nest them either.
    """
    if _open:
        raise GradientError(
            "Nested forward mode AD is not supported at the moment", fix="use metaop.func.jvp"
        )
    _open.append(_Level())
    _open[0].tracking.__enter__()
    modes.duals = True
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """Closes the level: tensors have no tangents any more."""
    if not _open or level not in (None, 0):
        raise ArgumentError(f"exit_dual_level: no level {level or 0} is open")
    modes.duals = False
    _open.pop().tracking.__exit__(None, None, None)


class dual_level:
    """`with dual_level():` is the level in which dual tensors live."""

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *exception: object) -> None:
        exit_dual_level()


def _check_level(level: int | None) -> None:
    if level not in (None, 0):
        raise GradientError(f"forward mode at level {level}", fix="use level 0, the only one")


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """`tensor` with a tangent of its shape; what is computed of the result has tangents too.

    Raises GradientError outside of a level, and ShapeError and DTypeError for a tangent of another
    shape and a tensor without derivatives.
    Example: `unpack_dual(metaop.sin(make_dual(x, v))).tangent`
    """
    _check_level(level)
    if not _open:
        raise GradientError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to "
            "enter_dual_level() first."
        )
    if not tensor.dtype.is_differentiable:
        raise _NoDerivative(f"Expected primal to be floating point, but got: {tensor.dtype}")
    if tensor.shape != tangent.shape:
        raise ShapeError(
            "Trying to set a forward gradient that has a different size than that of the original "
            f"Tensor. Tensor is of size {list(tensor.shape)} while the given forward gradient is "
            f"of size {list(tangent.shape)}."
        )
    if unpack_dual(tensor).tangent is not None:
        raise GradientError(
            "Making a dual Tensor based on a Tensor that already has a forward gradient at the "
            "same level 0 is not supported."
        )
    source = tensor.clone() if tensor.requires_grad else tensor.detach().requires_grad_()
    _open[0].sources.append((source, tangent))
    return source.clone()


class _NoDerivative(DTypeError, ValueError):
    """PyTorch's Python finds this mistake."""


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """The value and the tangent of a tensor.

    Raises GradientError for another level than 0, the only one.
    """
    _check_level(level)
    sources = _open[0].sources if _open else []
    if not sources or not tensor.requires_grad:
        return UnpackedDualTensor(tensor, None)
    weight = zeros_like(tensor).requires_grad_()
    own = [source for source, _ in sources]
    slopes = grad(tensor, own, weight, retain_graph=True, create_graph=True, allow_unused=True)
    pairs = [(slope, part) for slope, (_, part) in zip(slopes, sources) if slope is not None]
    primal = tensor if _has_other_history(sources) else tensor.detach()
    if not pairs:
        return UnpackedDualTensor(primal, None)
    tracked = [(slope, part) for slope, part in pairs if slope.requires_grad]
    if not tracked:
        return UnpackedDualTensor(primal, zeros_like(tensor))
    (tangent,) = grad(inner_product(tracked), [weight], create_graph=True, materialize_grads=True)
    assert tangent is not None
    return UnpackedDualTensor(primal, tangent if _has_other_history(sources) else tangent.detach())


def _has_other_history(sources: list[tuple[Tensor, Tensor]]) -> bool:
    """Whether somebody may differentiate through the tangents as well."""
    return any(not source.is_leaf or tangent.requires_grad for source, tangent in sources)
