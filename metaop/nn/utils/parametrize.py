"""Parametrisations: `module.weight` as a function of the trained parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from metaop.errors import ArgumentError
from metaop.nn.containers import ModuleDict, ModuleList
from metaop.nn.module import Module
from metaop.nn.parameter import Parameter
from metaop.tensor.core import Tensor
from metaop.tensor.grad_mode import no_grad

AnyModule = TypeVar("AnyModule", bound=Module)


class _Cache:
    """The cached values of parametrised tensors, while any `cached()` is open."""

    def __init__(self) -> None:
        self.depth = 0
        self.values: dict[tuple[int, str], Tensor] = {}


_cache = _Cache()


@contextmanager
def cached() -> Iterator[None]:
    """Computes every parametrised tensor only once inside, for loops that read it many times.

    >>> with nn.utils.parametrize.cached():
    ...     nn.Linear(2, 1)(metaop.ones(2)).shape
    metaop.Size([1])
    """
    _cache.depth += 1
    try:
        yield
    finally:
        _cache.depth -= 1
        if not _cache.depth:
            _cache.values.clear()


def _register(module: Module, name: str, tensor: Tensor) -> None:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


class ParametrizationList(ModuleList):
    """The parametrisations of one tensor, applied in order, and the input of the first one.

    The input is `original`, or `original0`, `original1`, … if the `right_inverse` of the first one
    returns several tensors. Unless `unsafe`, dtype and shape must stay those of the tensor.

    >>> class Doubled(nn.Module):
    ...     def forward(self, x):
    ...         return 2 * x
    >>> layer = nn.Linear(2, 1)
    >>> nn.utils.parametrize.register_parametrization(layer, "weight", Doubled()).weight.shape
    metaop.Size([1, 2])
    >>> type(layer.parametrizations.weight).__name__, len(layer.parametrizations.weight)
    ('ParametrizationList', 1)
    """

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if not modules:
            raise ArgumentError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, dtype = original.shape, original.dtype
        with no_grad():
            sources: Any = original
            for module in reversed(list(self)):
                sources = _inverted(module, sources, required=False)
        self.is_tensor = isinstance(sources, Tensor)
        self.ntensors = 1 if self.is_tensor else len(sources)
        if self.is_tensor:
            _check_source(sources, original)
            # The parameter stays the same object, so that optimizers keep working.
            original.data = sources.detach()
            _register(self, "original", original)
        else:
            for k, source in enumerate(sources):
                if isinstance(original, Parameter):
                    source = Parameter(source, original.requires_grad)
                _register(self, f"original{k}", source)
        if not unsafe:
            _check_result(self(), shape, dtype)

    def right_inverse(self, value: Tensor) -> None:
        """Sets the originals such that the parametrised tensor becomes `value`."""
        with no_grad():
            sources: Any = value
            for module in reversed(list(self)):
                sources = _inverted(module, sources, required=True)
            if self.is_tensor:
                _check_source(sources, self.original)
                self.original.data = sources.detach()
                return
            if len(sources) != self.ntensors:
                raise ArgumentError(
                    f"'right_inverse' must return a sequence of tensors of length {self.ntensors}. "
                    f"Got a sequence of length {len(sources)}."
                )
            for k, source in enumerate(sources):
                getattr(self, f"original{k}").data = source.detach()

    def originals(self) -> tuple[Tensor, ...]:
        """The inputs of the first parametrisation."""
        if self.is_tensor:
            return (self.original,)
        return tuple(getattr(self, f"original{k}") for k in range(self.ntensors))

    def forward(self) -> Tensor:
        first, *others = self
        result = first(*self.originals())
        for module in others:
            result = module(result)
        return result


def _inverted(module: Module, value: Any, required: bool) -> Any:
    inverse = getattr(module, "right_inverse", None)
    if inverse is None:
        if required:
            raise ArgumentError(
                f"parametrization {type(module).__name__} does not implement right_inverse.",
                fix="define it, or set the original itself",
            )
        return value
    try:
        found = inverse(value)
    except NotImplementedError:
        if required:
            raise
        return value
    if not isinstance(found, (Tensor, Sequence)):
        raise ArgumentError(
            "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got "
            f"{type(found).__name__}"
        )
    return found


def _check_source(source: Tensor, original: Tensor) -> None:
    if source.dtype is not original.dtype or source.device is not original.device:
        raise ArgumentError(
            "When `right_inverse` outputs one tensor, it may not change the dtype or the device: "
            f"{original.dtype!r} on {original.device} became {source.dtype!r} on {source.device}"
        )


def _check_result(result: Any, shape: Any, dtype: Any) -> None:
    if not isinstance(result, Tensor):
        raise ArgumentError(f"A parametrization must return a tensor. Got {type(result).__name__}.")
    if result.dtype is not dtype or result.shape != shape:
        raise ArgumentError(
            "Registering a parametrization may not change the dtype or the shape of the tensor, "
            f"unless `unsafe` flag is enabled: {dtype!r} {list(shape)} became {result.dtype!r} "
            f"{list(result.shape)}"
        )


def _property_of(name: str) -> property:
    """A property that computes the parametrised tensor `name`."""

    def get(self: Any) -> Tensor:
        if not _cache.depth:
            return self.parametrizations[name]()
        key = (id(self), name)
        if key not in _cache.values:
            _cache.values[key] = self.parametrizations[name]()
        return _cache.values[key]

    def set(self: Any, value: Tensor) -> None:
        self.parametrizations[name].right_inverse(value)

    return property(get, set)


def _own_class(module: Module) -> None:
    """Gives the module its own class, to which properties can be added."""
    plain = type(module)
    module.__class__ = type(f"Parametrized{plain.__name__}", (plain,), {})  # type: ignore[assignment]


def register_parametrization(
    module: AnyModule, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> AnyModule:
    """Makes `module.tensor_name` the result of `parametrization`, which must keep its shape.

    The parameter (or buffer) itself moves to `module.parametrizations.tensor_name.original`. A
    second parametrisation applies to the result of the first. Assigning to the tensor requires
    all of them to have a `right_inverse`.

    >>> class Symmetric(nn.Module):
    ...     def forward(self, x):
    ...         return x.triu() + x.triu(1).T
    >>> layer = nn.Linear(3, 3)
    >>> layer = nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric())
    >>> metaop.equal(layer.weight, layer.weight.T)
    True
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        listed = module.parametrizations[tensor_name]
        if not unsafe:
            before = getattr(module, tensor_name)
            _check_result(parametrization(before), before.shape, before.dtype)
        listed.append(parametrization)
        listed.unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        original = getattr(module, tensor_name)
        listed = ParametrizationList([parametrization], original, unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _own_class(module)
            module.parametrizations = ModuleDict()
        setattr(type(module), tensor_name, _property_of(tensor_name))
        module.parametrizations[tensor_name] = listed
    else:
        raise ArgumentError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element "
            f"with name '{tensor_name}'"
        )
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a tensor of the module (any when None) is parametrised.

    >>> nn.utils.parametrize.is_parametrized(nn.Linear(2, 1), "weight")
    False
    """
    found = module._modules.get("parametrizations")
    if not isinstance(found, ModuleDict):
        return False
    return len(found) > 0 if tensor_name is None else tensor_name in found


def remove_parametrizations(
    module: AnyModule, tensor_name: str, leave_parametrized: bool = True
) -> AnyModule:
    """Makes the tensor a plain one, with its current value or that of its original.

    It has the shape of that value.

    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 1))
    >>> layer = nn.utils.parametrize.remove_parametrizations(layer, "weight")
    >>> sorted(dict(layer.named_parameters()))
    ['bias', 'weight']
    """
    if not is_parametrized(module, tensor_name):
        raise ArgumentError(f"Module {module} does not have a parametrization on {tensor_name}")
    listed = module.parametrizations[tensor_name]
    if not (listed.is_tensor or leave_parametrized):
        raise ArgumentError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is "
            "parametrized in terms of a sequence of tensors."
        )
    if listed.is_tensor:
        tensor = listed.original
        if leave_parametrized:
            with no_grad():
                tensor.data = getattr(module, tensor_name).detach()
    else:
        value = getattr(module, tensor_name)
        tensor = Parameter(value.detach()) if value.requires_grad else value
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _register(module, tensor_name, tensor)
    if not is_parametrized(module):
        del module.parametrizations
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class of the module before it was parametrised.

    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 1))
    >>> nn.utils.parametrize.type_before_parametrizations(layer) is nn.Linear
    True
    """
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(
    from_module: Module, to_module: AnyModule, tensor_name: str | None = None
) -> AnyModule:
    """Copies the parametrisations (of one tensor, or all) and their originals to `to_module`.

    Shapes become those of `from_module`.

    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 1))
    >>> other = nn.Linear(2, 1)
    >>> other = nn.utils.parametrize.transfer_parametrizations_and_params(layer, other)
    >>> metaop.equal(layer.weight, other.weight)
    True
    """
    if not is_parametrized(from_module):
        return to_module
    names = list(from_module.parametrizations) if tensor_name is None else [tensor_name]
    for name in names:
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name).detach()))
        source = from_module.parametrizations[name]
        for parametrization in source:
            register_parametrization(to_module, name, parametrization)
        target = to_module.parametrizations[name]
        for key in source._parameters:
            setattr(target, key, getattr(source, key))
    return to_module
