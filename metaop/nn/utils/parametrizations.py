"""Parametrisations of weights: orthogonal, of spectral norm 1, or as norm and direction."""

from __future__ import annotations

from typing import Any, TypeVar

from metaop.errors import ArgumentError, DimensionError
from metaop.nn import functional as F
from metaop.nn.module import Module
from metaop.nn.utils import parametrize
from metaop.nn.utils.weight_norm import norm_except_dim
from metaop.tensor.core import Tensor
from metaop.tensor.functions.joining import cat
from metaop.tensor.functions.random import randn
from metaop.tensor.functions.ranges import eye
from metaop.tensor.grad_mode import no_grad
from metaop.tensor.linear_algebra.decompositions import solve
from metaop.tensor.linear_algebra.householder import geqrf, householder_product
from metaop.tensor.linear_algebra.matrix_functions import matrix_exp

AnyModule = TypeVar("AnyModule", bound=Module)

_MAPS = ("matrix_exp", "cayley", "householder")


def _orthogonalised(A: Tensor) -> Tensor:
    """Q of the QR decomposition whose R has a positive diagonal."""
    packed, tau = geqrf(A)
    signs = packed.diagonal(dim1=-2, dim2=-1).sgn()
    return householder_product(packed, tau) * signs.unsqueeze(-2)


class _Orthogonal(Module):
    """Maps any matrix to an orthogonal one, by a skew-symmetric matrix or by reflections."""

    base: Tensor | None

    def __init__(self, weight: Tensor, orthogonal_map: str, use_trivialization: bool) -> None:
        super().__init__()
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        self.trivialized = use_trivialization
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        wide = X.shape[-2] < X.shape[-1]
        X = X.mT if wide else X
        Q = self._from_reflections(X) if self.orthogonal_map == "householder" else self._mapped(X)
        if self.trivialized:
            assert self.base is not None
            Q = self.base @ Q
        return Q.mT if wide else Q

    def _mapped(self, X: Tensor) -> Tensor:
        rows, columns = X.shape[-2:]
        lower = X.tril()
        if rows != columns:
            lower = cat([lower, X.new_zeros((*X.shape[:-2], rows, rows - columns))], -1)
        skew = lower - lower.mT
        if self.orthogonal_map == "matrix_exp":
            Q = matrix_exp(skew)
        else:
            identity = eye(rows, dtype=X.dtype, device=X.device)
            Q = solve(identity - skew / 2, identity + skew / 2)
        return Q[..., :columns]

    def _from_reflections(self, X: Tensor) -> Tensor:
        vectors = X.tril(-1)
        tau = 2.0 / (1.0 + (vectors * vectors).sum(-2))
        signs = X.diagonal(dim1=-2, dim2=-1).detach().int()
        return householder_product(vectors, tau) * signs.unsqueeze(-2)

    @no_grad()
    def right_inverse(self, Q: Tensor) -> Tensor:
        """The matrix that `forward` maps to Q; with trivialization, the nearest orthogonal base."""
        if Q.shape != self.shape:
            raise ArgumentError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of "
                f"shape {Q.shape}."
            )
        rows, columns = Q.shape[-2:]
        tall = Q.mT if rows < columns else Q
        if self.trivialized:
            self.base = self._base_for(tall)
            negative = Q.new_zeros(Q.shape)
            negative.diagonal(dim1=-2, dim2=-1).fill_(-1.0)
            return negative
        if self.orthogonal_map != "householder":
            raise NotImplementedError(
                "It is not possible to assign to the matrix exponential or the Cayley "
                "parametrizations when use_trivialization=False."
            )
        packed, tau = geqrf(tall)
        diagonal = packed.diagonal(dim1=-2, dim2=-1)
        # LAPACK returns a factor of exactly 0 where it does not reflect.
        diagonal.copy_(diagonal.sign() * (1 - 2 * (tau == 0.0).to(tau.dtype)))
        return packed.mT if rows < columns else packed

    def _base_for(self, Q: Tensor) -> Tensor:
        rows, columns = Q.shape[-2:]
        if rows != columns:
            extra = randn(*Q.shape[:-2], rows, rows - columns, dtype=Q.dtype, device=Q.device)
            return _orthogonalised(cat([Q, extra], -1))
        identity = eye(rows, dtype=Q.dtype, device=Q.device)
        tolerance = 10 * rows * (2.0**-52 if Q.dtype.itemsize == 8 else 2.0**-23)
        if (Q.mT @ Q - identity).abs().max() <= tolerance:
            return Q.clone()
        return _orthogonalised(Q)


def orthogonal(
    module: AnyModule,
    name: str = "weight",
    orthogonal_map: str | None = None,
    *,
    use_trivialization: bool = True,
) -> AnyModule:
    """Keeps the columns (or rows, if fewer) of a matrix orthonormal.

    `orthogonal_map` is "matrix_exp" (the default for square matrices), "cayley" or "householder".
    With `use_trivialization` the parameter is relative to a base, which assignments set (Casado
    2019).

    Raises ArgumentError for tensors of fewer than two dimensions.

    >>> layer = nn.utils.parametrizations.orthogonal(nn.Linear(2, 2))
    >>> (layer.weight @ layer.weight.T).round().abs().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ArgumentError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.ndim < 2:
        raise ArgumentError(
            f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions."
        )
    if orthogonal_map is None:
        square = weight.shape[-2] == weight.shape[-1]
        orthogonal_map = "matrix_exp" if square else "householder"
    if orthogonal_map not in _MAPS:
        raise ArgumentError(
            'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: '
            f"{orthogonal_map}"
        )
    made = _Orthogonal(weight, orthogonal_map, use_trivialization)
    return parametrize.register_parametrization(module, name, made, unsafe=True)


class _WeightNorm(Module):
    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return weight_v * (weight_g / norm_except_dim(weight_v, 2, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The norms and the direction."""
        return norm_except_dim(weight, 2, self.dim), weight


def weight_norm(module: AnyModule, name: str = "weight", dim: int = 0) -> AnyModule:
    """Splits the weight into norm `original0` and direction `original1` (Salimans & Kingma 2016).

    `dim` is the dimension whose slices have their own norm. State dicts of the older
    `nn.utils.weight_norm` can be loaded.

    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 3))
    >>> layer.parametrizations.weight.original0.shape
    metaop.Size([3, 1])
    """
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def translate(state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        keys = [f"{prefix}{name}_{kind}" for kind in "gv"]
        if all(key in state_dict for key in keys):
            for k, key in enumerate(keys):
                state_dict[f"{prefix}parametrizations.{name}.original{k}"] = state_dict.pop(key)

    module._register_load_state_dict_pre_hook(translate)
    return module


class _SpectralNorm(Module):
    """Divides by the largest singular value, tracked by power iteration during training."""

    _u: Tensor
    _v: Tensor

    def __init__(
        self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        super().__init__()
        ndim = weight.ndim
        if not -ndim <= dim < ndim:
            raise DimensionError(
                f"Dimension out of range (expected to be in range of [-{ndim}, {ndim - 1}] but got "
                f"{dim})"
            )
        if n_power_iterations <= 0:
            raise ArgumentError(
                "Expected n_power_iterations to be positive, but got n_power_iterations="
                f"{n_power_iterations}"
            )
        self.dim = dim % ndim
        self.eps = eps
        if ndim > 1:
            self.n_power_iterations = n_power_iterations
            matrix = self._as_matrix(weight.detach())
            for buffer, extent in zip(("_u", "_v"), matrix.shape):
                start = matrix.new_empty(extent).normal_(0, 1)
                self.register_buffer(buffer, F.normalize(start, dim=0, eps=eps))
            self._iterate(matrix, 15)

    def _as_matrix(self, weight: Tensor) -> Tensor:
        return weight.movedim(self.dim, 0).flatten(1)

    @no_grad()
    def _iterate(self, matrix: Tensor, count: int) -> None:
        for _ in range(count):
            self._u.copy_(F.normalize(matrix.mv(self._v), dim=0, eps=self.eps))
            self._v.copy_(F.normalize(matrix.t().mv(self._u), dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._as_matrix(weight)
        if self.training:
            self._iterate(matrix.detach(), self.n_power_iterations)
        # Copies, so that a second forward may update the vectors before the first backward.
        u, v = self._u.clone(), self._v.clone()
        return weight / u.dot(matrix.mv(v))

    def right_inverse(self, value: Tensor) -> Tensor:
        """The value itself; `forward` divides by its norm again."""
        return value


def spectral_norm(
    module: AnyModule,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> AnyModule:
    """Divides the weight by its largest singular value (Miyato et al. 2018).

    `dim` is the output dimension; the default is 0, or 1 for transposed convolutions.

    >>> layer = nn.utils.parametrizations.spectral_norm(nn.Linear(2, 2), n_power_iterations=50)
    >>> metaop.linalg.svdvals(layer.weight)[0].round(decimals=2).item()
    1.0
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ArgumentError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if dim is None:
        dim = 1 if getattr(module, "transposed", False) else 0
    made = _SpectralNorm(weight, n_power_iterations, dim, eps)
    return parametrize.register_parametrization(module, name, made)
