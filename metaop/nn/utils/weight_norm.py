"""Weight normalisation: weights as norm times direction."""

from __future__ import annotations

from typing import Any, TypeVar

from metaop.errors import ArgumentError
from metaop.nn.module import Module
from metaop.nn.parameter import Parameter
from metaop.tensor.core import Tensor

AnyModule = TypeVar("AnyModule", bound=Module)


def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """The norms of the slices along `dim` (of the whole tensor if `dim` is -1), broadcastable.

    >>> from metaop.nn.utils.weight_norm import norm_except_dim
    >>> norm_except_dim(metaop.tensor([[3.0, 4.0], [0.0, 1.0]]))
    tensor([[5.],
            [1.]])
    """
    if dim == -1:
        return v.norm(pow)
    others = tuple(k for k in range(v.ndim) if k != dim % v.ndim)
    return v.norm(pow, others, keepdim=True)


class WeightNorm:
    """Computes `name` from `name_g` (norm) and `name_v` (direction) before every forward."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name = name
        self.dim = -1 if dim is None else dim

    def compute_weight(self, module: Module) -> Tensor:
        """The weight: the direction scaled to its norm."""
        length, direction = (getattr(module, f"{self.name}_{kind}") for kind in "gv")
        return direction * (length / norm_except_dim(direction, 2, self.dim))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module: AnyModule, name: str = "weight", dim: int | None = 0) -> AnyModule:
    """Replaces parameter `name` by its norm `name_g` and direction `name_v`.

    `dim` is the dimension whose slices have their own norm; with None the whole weight has one
    norm. From Salimans and Kingma, "Weight normalization" (2016).

    >>> layer = nn.utils.weight_norm(nn.Linear(2, 3))
    >>> {name: value.shape for name, value in layer.named_parameters()}
    {'bias': metaop.Size([3]), 'weight_g': metaop.Size([3, 1]), 'weight_v': metaop.Size([3, 2])}
    """
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, WeightNorm) and hook.name == name:
            raise ArgumentError(
                f"Cannot register two weight_norm hooks on the same parameter {name}"
            )
    hook = WeightNorm(name, dim)
    weight = getattr(module, name)
    del module._parameters[name]
    module.register_parameter(f"{name}_g", Parameter(norm_except_dim(weight, 2, hook.dim).detach()))
    module.register_parameter(f"{name}_v", Parameter(weight.detach()))
    setattr(module, name, hook.compute_weight(module))
    module.register_forward_pre_hook(hook)
    return module


def remove_weight_norm(module: AnyModule, name: str = "weight") -> AnyModule:
    """Makes the weight a plain parameter again, of the same shape.

    >>> layer = nn.utils.weight_norm(nn.Linear(2, 3))
    >>> sorted(dict(nn.utils.remove_weight_norm(layer).named_parameters()))
    ['bias', 'weight']
    """
    for number, hook in module._forward_pre_hooks.items():
        if isinstance(hook, WeightNorm) and hook.name == name:
            weight = hook.compute_weight(module).detach()
            module.__dict__.pop(name, None)
            del module._parameters[f"{name}_g"], module._parameters[f"{name}_v"]
            setattr(module, name, Parameter(weight))
            del module._forward_pre_hooks[number]
            return module
    raise ArgumentError(f"weight_norm of '{name}' not found in {module}")
