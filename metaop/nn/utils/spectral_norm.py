"""Spectral normalisation: weights divided by their largest singular value."""

from __future__ import annotations

from typing import Any, TypeVar

from metaop.errors import ArgumentError
from metaop.nn import functional as F
from metaop.nn.convolution import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from metaop.nn.module import Module
from metaop.nn.parameter import Parameter
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import empty
from metaop.tensor.grad_mode import no_grad

AnyModule = TypeVar("AnyModule", bound=Module)


class SpectralNorm:
    """Computes `name` from `name_orig` before every forward.

    The singular vectors are the buffers `name_u` and `name_v`, refined by power iteration in
    training.
    """

    _version = 1

    def __init__(
        self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        if n_power_iterations <= 0:
            raise ArgumentError(
                "Expected n_power_iterations to be positive, but got "
                f"n_power_iterations={n_power_iterations}"
            )
        self.name = name
        self.dim = dim
        self.n_power_iterations = n_power_iterations
        self.eps = eps

    def reshape_weight_to_matrix(self, weight: Tensor) -> Tensor:
        """The weight with dimension `dim` as rows and all others as columns."""
        if self.dim != 0:
            order = [self.dim, *(k for k in range(weight.ndim) if k != self.dim)]
            weight = weight.permute(*order)
        return weight.reshape(weight.shape[0], -1)

    def compute_weight(self, module: Module, do_power_iteration: bool) -> Tensor:
        """The weight over its largest singular value."""
        weight = getattr(module, f"{self.name}_orig")
        u, v = (getattr(module, f"{self.name}_{side}") for side in "uv")
        matrix = self.reshape_weight_to_matrix(weight)
        if do_power_iteration:
            with no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(F.normalize(matrix.t() @ u, dim=0, eps=self.eps))
                    u.copy_(F.normalize(matrix @ v, dim=0, eps=self.eps))
            # Later steps overwrite these buffers, but backward needs their current values.
            u, v = u.clone(), v.clone()
        return weight / (u * (matrix @ v)).sum()

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, module.training))


def spectral_norm(
    module: AnyModule,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> AnyModule:
    """Divides parameter `name` by its largest singular value, in every forward pass.

    `dim` is the output dimension. The value is estimated by `n_power_iterations` per call, which
    continue from the last call. From Miyato et al., "Spectral normalization for generative
    adversarial networks" (2018).

    >>> layer = nn.utils.spectral_norm(nn.Linear(2, 2), n_power_iterations=50)
    >>> result = layer(metaop.ones(2))
    >>> metaop.linalg.svdvals(layer.weight)[0].round(decimals=2).item()
    1.0
    """
    if dim is None:
        transposed = (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)
        dim = 1 if isinstance(module, transposed) else 0
    for known in module._forward_pre_hooks.values():
        if isinstance(known, SpectralNorm) and known.name == name:
            raise ArgumentError(
                f"Cannot register two spectral_norm hooks on the same parameter {name}"
            )
    hook = SpectralNorm(name, n_power_iterations, dim, eps)
    weight = module._parameters[name]
    if weight is None:
        raise ArgumentError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
    with no_grad():
        rows, columns = hook.reshape_weight_to_matrix(weight).shape
        u, v = (
            F.normalize(
                empty(size, dtype=weight.dtype, device=weight.device).normal_(0, 1), dim=0, eps=eps
            )
            for size in (rows, columns)
        )
    del module._parameters[name]
    module.register_parameter(f"{name}_orig", weight)
    setattr(module, name, weight.detach())
    module.register_buffer(f"{name}_u", u)
    module.register_buffer(f"{name}_v", v)
    module.register_forward_pre_hook(hook)
    return module


def remove_spectral_norm(module: AnyModule, name: str = "weight") -> AnyModule:
    """Makes the normalised weight a plain parameter again, of the same shape.

    Raises ArgumentError for a module without it.

    >>> layer = nn.utils.spectral_norm(nn.Linear(2, 2))
    >>> sorted(dict(nn.utils.remove_spectral_norm(layer).named_parameters()))
    ['bias', 'weight']
    """
    for number, hook in module._forward_pre_hooks.items():
        if isinstance(hook, SpectralNorm) and hook.name == name:
            with no_grad():
                weight = hook.compute_weight(module, False).detach()
            module.__dict__.pop(name, None)
            del module._buffers[f"{name}_u"], module._buffers[f"{name}_v"]
            del module._parameters[f"{name}_orig"]
            module.register_parameter(name, Parameter(weight))
            del module._forward_pre_hooks[number]
            return module
    raise ArgumentError(f"spectral_norm of '{name}' not found in {module}")
