"""Pruning: masks parts of a parameter, kept as `name_orig` (trained) and `name_mask`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from numbers import Integral, Real
from typing import Any, ClassVar, TypeVar

from metaop.errors import ArgumentError, ArgumentTypeError, DimensionError, ShapeError
from metaop.nn.module import Module
from metaop.nn.utils.vectors import parameters_to_vector
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import ones_like
from metaop.tensor.functions.random import rand, rand_like

AnyModule = TypeVar("AnyModule", bound=Module)
Amount = int | float


class BasePruningMethod(ABC):
    """A pruning criterion; a subclass defines `compute_mask` and `PRUNING_TYPE`.

    As a hook it computes the pruned tensor before every forward pass. The type is "unstructured"
    (elements), "structured" (slices along `dim`) or "global" (elements of the whole tensor).

    The mask has the shape of the tensor.

    >>> class Last(nn.utils.prune.BasePruningMethod):
    ...     PRUNING_TYPE = "unstructured"
    ...     def compute_mask(self, t, default_mask):
    ...         return default_mask * metaop.tensor([1.0, 0.0])
    >>> layer = nn.Linear(2, 1)
    >>> method = Last.apply(layer, "weight")
    >>> layer.weight_mask
    tensor([[1., 0.]])
    """

    PRUNING_TYPE: ClassVar[str] = "unstructured"
    _tensor_name: str

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask (1 keeps, 0 prunes) for scores `t`, on top of `default_mask`."""

    def apply_mask(self, module: Module) -> Tensor:
        """The pruned tensor."""
        mask, original = (getattr(module, f"{self._tensor_name}_{k}") for k in ("mask", "orig"))
        return mask.to(original.dtype) * original

    @classmethod
    def apply(
        cls, module: Any, name: str, *args: Any, importance_scores: Any = None, **kwargs: Any
    ) -> Any:
        """Prunes parameter `name`, on top of earlier pruning; returns the method."""
        tensor = getattr(module, name)
        scores = tensor if importance_scores is None else importance_scores
        _check_scores(scores, tensor)
        method: BasePruningMethod = cls(*args, **kwargs)
        method._tensor_name = name
        earlier = _hook_of(module, name)
        mask = ones_like(tensor) if earlier is None else getattr(module, f"{name}_mask").detach()
        if earlier is not None:
            number, old = earlier
            container = old if isinstance(old, PruningContainer) else PruningContainer(old)
            container.add_pruning_method(method)
            method = container
        mask = method.compute_mask(scores.detach(), mask.clone())
        if earlier is None:
            del module._parameters[name]
            module.register_parameter(f"{name}_orig", tensor)
        else:
            del module._forward_pre_hooks[number]
        module.register_buffer(f"{name}_mask", mask)
        setattr(module, name, method.apply_mask(module))
        module.register_forward_pre_hook(method)
        return method

    def prune(
        self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None
    ) -> Tensor:
        """Prunes a tensor `t` without a module."""
        scores = t if importance_scores is None else importance_scores
        _check_scores(scores, t)
        mask = ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, default_mask=mask)

    def remove(self, module: Module) -> None:
        """Makes the pruned values a plain parameter again."""
        name = self._tensor_name
        pruned = self.apply_mask(module).detach()
        delattr(module, name)
        original = module._parameters.pop(f"{name}_orig")
        assert original is not None
        original.data = pruned
        del module._buffers[f"{name}_mask"]
        setattr(module, name, original)


def _hook_of(module: Module, name: str) -> tuple[int, BasePruningMethod] | None:
    for number, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            return number, hook
    return None


def _check_scores(scores: Tensor, tensor: Tensor) -> None:
    if scores.shape != tensor.shape:
        raise ShapeError(
            f"importance_scores should have the same shape as the tensor, got "
            f"{list(scores.shape)} vs {list(tensor.shape)}"
        )


class PruningContainer(BasePruningMethod):
    """Several methods for one tensor; each one prunes what the previous ones kept.

    The mask has the tensor's shape.

    >>> layer = nn.Linear(2, 1)
    >>> layer = nn.utils.prune.l1_unstructured(layer, "weight", 1)
    >>> layer = nn.utils.prune.l1_unstructured(layer, "weight", 1)
    >>> layer.weight_mask
    tensor([[0., 0.]])
    """

    def __init__(self, *args: BasePruningMethod) -> None:
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        if len(args) == 1:
            self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod) -> None:
        """Adds a method for the same tensor."""
        if not isinstance(method, BasePruningMethod):
            raise ArgumentTypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method._tensor_name != self._tensor_name:
            raise ArgumentError(
                "Can only add pruning methods acting on the parameter named "
                f"'{self._tensor_name}' to PruningContainer {self}. Found '{method._tensor_name}'"
            )
        self._pruning_methods = (*self._pruning_methods, method)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: int) -> BasePruningMethod:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask of the last method, which sees only what the others kept."""
        method = self._pruning_methods[-1]
        mask = default_mask.to(t.dtype).clone()
        kept = _kept_part(method, mask)
        mask[kept] = method.compute_mask(t[kept], default_mask=mask[kept]).to(mask.dtype)
        return mask


def _kept_part(method: BasePruningMethod, mask: Tensor) -> Any:
    """The index of the part that is not yet pruned."""
    if method.PRUNING_TYPE == "unstructured":
        return mask.eq(1)
    if method.PRUNING_TYPE == "global":
        return (slice(None),) * mask.ndim
    if method.PRUNING_TYPE != "structured":
        raise ArgumentError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
    dim = method.dim % mask.ndim  # type: ignore[attr-defined]
    alive = mask.sum([k for k in range(mask.ndim) if k != dim]).ne(0)
    return (*(slice(None),) * dim, alive)


class Identity(BasePruningMethod):
    """Prunes nothing; the mask has the tensor's shape.

    >>> nn.utils.prune.Identity().prune(metaop.tensor([3.0, 4.0]))
    tensor([3., 4.])
    """

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask


def _checked(amount: Amount) -> Amount:
    if not isinstance(amount, Real):
        raise ArgumentTypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    if float(amount) < 0 or (not isinstance(amount, Integral) and float(amount) > 1):
        raise ArgumentError(
            f"amount={amount} should either be a float in the range [0, 1] or a non-negative "
            "integer"
        )
    return amount


def _count(amount: Amount, total: int) -> int:
    """An amount as a number of elements out of `total`."""
    if not isinstance(amount, Integral):
        return round(amount * total)
    if amount > total:
        raise ArgumentError(
            f"amount={amount} should be smaller than the number of parameters to prune={total}"
        )
    return int(amount)


class _Unstructured(BasePruningMethod):
    """Prunes the elements with the lowest scores."""

    def __init__(self, amount: Amount) -> None:
        self.amount = _checked(amount)

    def _scores(self, t: Tensor) -> Tensor:
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        count = _count(self.amount, t.numel())
        mask = default_mask.clone()
        if count:
            lowest = self._scores(t).flatten().topk(count, largest=False).indices
            mask.view(-1)[lowest] = 0
        return mask


class RandomUnstructured(_Unstructured):
    """Prunes random elements, `amount` as a count or a fraction; the shape is unchanged.

    >>> (nn.utils.prune.RandomUnstructured(0.5).prune(metaop.ones(4)) == 0).sum()
    tensor(2)
    """

    def _scores(self, t: Tensor) -> Tensor:
        return rand_like(t)


class L1Unstructured(_Unstructured):
    """Prunes the smallest elements, `amount` as a count or a fraction; the shape is unchanged.

    >>> nn.utils.prune.L1Unstructured(1).prune(metaop.tensor([3.0, -1.0, 2.0]))
    tensor([3., -0., 2.])
    """

    def _scores(self, t: Tensor) -> Tensor:
        return t.abs()


class _Structured(BasePruningMethod):
    """Prunes the slices along `dim` with the lowest scores."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: Amount, dim: int = -1) -> None:
        self.amount = _checked(amount)
        self.dim = dim

    def _scores(self, t: Tensor) -> Tensor:
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if t.ndim <= 1:
            raise ArgumentError(
                "Structured pruning can only be applied to multidimensional tensors. Found tensor "
                f"of shape {list(t.shape)} with {t.ndim} dims"
            )
        if not -t.ndim <= self.dim < t.ndim:
            raise DimensionError(f"Invalid index {self.dim} for tensor of size {list(t.shape)}")
        extent = t.shape[self.dim]
        count = _count(self.amount, extent)
        if not count:
            return default_mask
        kept = self._scores(t).topk(extent - count).indices
        line = t.new_zeros(extent)
        line[kept] = 1
        shape = [1] * t.ndim
        shape[self.dim] = extent
        return line.reshape(shape) * default_mask.to(t.dtype)


class RandomStructured(_Structured):
    """Prunes random slices along `dim`, `amount` as a count or a fraction.

    The mask is zero in whole slices along dimension `dim`.

    >>> (nn.utils.prune.RandomStructured(1, dim=0).prune(metaop.ones(3, 2)) == 0).sum()
    tensor(2)
    """

    def _scores(self, t: Tensor) -> Tensor:
        return rand(t.shape[self.dim], device=t.device)


class LnStructured(_Structured):
    """Prunes the slices along `dim` with the smallest n-norms; shapes are unchanged.

    >>> method = nn.utils.prune.LnStructured(1, n=2, dim=0)
    >>> method.prune(metaop.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[0., 0.],
            [3., 4.]])
    """

    def __init__(self, amount: Amount, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def _scores(self, t: Tensor) -> Tensor:
        dim = self.dim % t.ndim
        return t.norm(self.n, [k for k in range(t.ndim) if k != dim])


class CustomFromMask(BasePruningMethod):
    """Prunes where a given mask, of the tensor's shape, is 0.

    >>> method = nn.utils.prune.CustomFromMask(metaop.tensor([1.0, 0.0]))
    >>> method.prune(metaop.tensor([3.0, 4.0]))
    tensor([3., 0.])
    """

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask * self.mask.to(default_mask.dtype)


def identity(module: AnyModule, name: str) -> AnyModule:
    """Sets a parameter up for pruning without pruning anything; shapes are unchanged.

    >>> layer = nn.utils.prune.identity(nn.Linear(2, 1), "weight")
    >>> sorted(layer.state_dict())
    ['bias', 'weight_mask', 'weight_orig']
    """
    Identity.apply(module, name)
    return module


def random_unstructured(module: AnyModule, name: str, amount: Amount) -> AnyModule:
    """Prunes random elements of a parameter, `amount` as a count or a fraction, keeping its shape.

    >>> layer = nn.utils.prune.random_unstructured(nn.Linear(4, 1), "weight", 0.5)
    >>> layer.weight_mask.sum()
    tensor(2.)
    """
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(
    module: AnyModule, name: str, amount: Amount, importance_scores: Tensor | None = None
) -> AnyModule:
    """Prunes the smallest elements of a parameter, by value or by `importance_scores`.

    The scores have its shape.

    >>> layer = nn.utils.prune.l1_unstructured(nn.Linear(4, 1), "weight", 3)
    >>> layer.weight_mask.sum()
    tensor(1.)
    """
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: AnyModule, name: str, amount: Amount, dim: int) -> AnyModule:
    """Prunes random slices along dimension `dim` of a parameter.

    >>> layer = nn.utils.prune.random_structured(nn.Linear(2, 3), "weight", 1, dim=0)
    >>> layer.weight_mask.sum()
    tensor(4.)
    """
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: AnyModule,
    name: str,
    amount: Amount,
    n: Any,
    dim: int,
    importance_scores: Tensor | None = None,
) -> AnyModule:
    """Prunes the slices along dimension `dim` of a parameter with the smallest n-norms.

    >>> layer = nn.utils.prune.ln_structured(nn.Linear(2, 3), "weight", 1, n=2, dim=0)
    >>> layer.weight_mask.sum()
    tensor(4.)
    """
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Module, str]],
    pruning_method: type[BasePruningMethod],
    importance_scores: dict[tuple[Module, str], Tensor] | None = None,
    **kwargs: Any,
) -> None:
    """Prunes several parameters as if they were one: `amount` counts all their elements.

    Shapes may differ and are unchanged.

    >>> one, other = nn.Linear(2, 1), nn.Linear(3, 1)
    >>> parameters = [(one, "weight"), (other, "weight")]
    >>> nn.utils.prune.global_unstructured(parameters, nn.utils.prune.L1Unstructured, amount=2)
    >>> one.weight_mask.sum() + other.weight_mask.sum()
    tensor(3.)
    """
    listed = list(parameters)
    if pruning_method.PRUNING_TYPE != "unstructured":
        raise ArgumentTypeError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
            f"{pruning_method} of type {pruning_method.PRUNING_TYPE}"
        )
    given = importance_scores or {}
    tensors = [getattr(module, name) for module, name in listed]
    scores = [given.get(key, tensor) for key, tensor in zip(listed, tensors)]
    masks = [
        getattr(module, f"{name}_mask", ones_like(tensor))
        for (module, name), tensor in zip(listed, tensors)
    ]
    method = pruning_method(**kwargs)
    method._tensor_name = "all"
    container = PruningContainer(method)
    whole = container.compute_mask(
        parameters_to_vector(scores).detach(), parameters_to_vector(masks)
    )
    pieces = whole.split([tensor.numel() for tensor in tensors])
    for (module, name), tensor, piece in zip(listed, tensors, pieces):
        custom_from_mask(module, name, piece.reshape(tensor.shape))


def custom_from_mask(module: AnyModule, name: str, mask: Tensor) -> AnyModule:
    """Prunes a parameter where `mask`, of its shape, is 0.

    >>> mask = metaop.tensor([[1.0, 0.0]])
    >>> nn.utils.prune.custom_from_mask(nn.Linear(2, 1), "weight", mask).weight_mask
    tensor([[1., 0.]])
    """
    CustomFromMask.apply(module, name, mask)
    return module


def remove(module: AnyModule, name: str) -> AnyModule:
    """Makes the pruned values of a parameter permanent; its shape is unchanged.

    Raises ArgumentError for a parameter that is not pruned.

    >>> layer = nn.utils.prune.l1_unstructured(nn.Linear(2, 1), "weight", 1)
    >>> sorted(nn.utils.prune.remove(layer, "weight").state_dict())
    ['bias', 'weight']
    """
    found = _hook_of(module, name)
    if found is None:
        raise ArgumentError(
            f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed"
        )
    number, hook = found
    hook.remove(module)
    del module._forward_pre_hooks[number]
    return module


def is_pruned(module: Module) -> bool:
    """Whether a parameter of the module or of its children is pruned.

    >>> nn.utils.prune.is_pruned(nn.Linear(2, 1))
    False
    """
    return any(
        isinstance(hook, BasePruningMethod)
        for child in module.modules()
        for hook in child._forward_pre_hooks.values()
    )
