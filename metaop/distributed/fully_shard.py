"""`fully_shard`: a module whose parameters are sharded, and whole while it computes.

Every rank computes on local tensors, with its own share of the batch. When the module is called,
its parameters are gathered; in the backward pass their gradients are averaged over the ranks, and
each rank keeps its part. Parameters, gradients and the states of optimizers are global tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, wraps
from typing import Any, NamedTuple, TypeVar

from metaop import cuda
from metaop.autograd.function import Function, once_differentiable
from metaop.dist.collectives import everyone
from metaop.dist.placement import Placement
from metaop.dist.sbp import BROADCAST, PARTIAL, NdSbp, Sbp, Split
from metaop.errors import ArgumentError, ArgumentTypeError
from metaop.execution.executor import realize
from metaop.nn.module import Module
from metaop.nn.utils.stateless import reparametrised
from metaop.tensor.core import Tensor
from metaop.tensor.sharded.device_mesh import DeviceMesh, init_device_mesh, mesh_of
from metaop.tensor.sharded.global_tensor import spread_first, to_global, to_local
from metaop.tensor.sharded.mesh_placements import Shard
from metaop.trees import tree_map
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.tensor_type import META

M = TypeVar("M", bound=Module | Sequence[Module])


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """The types in which a module computes; its sharded parameters keep their own.

    Parameters are gathered as `param_dtype`, and gradients are averaged as `reduce_dtype` (by
    default, as they have been computed). Floating-point arguments become `param_dtype` with
    `cast_forward_inputs`, and results `output_dtype`.

    >>> from metaop.distributed.fsdp import MixedPrecisionPolicy
    >>> MixedPrecisionPolicy(param_dtype=metaop.bfloat16).cast_forward_inputs
    True
    """

    param_dtype: DType | None = None
    reduce_dtype: DType | None = None
    output_dtype: DType | None = None
    cast_forward_inputs: bool = True


@dataclass(frozen=True)
class OffloadPolicy:
    """Sharded parameters stay on the device of the mesh."""


@dataclass(frozen=True)
class CPUOffloadPolicy(OffloadPolicy):
    """Sharded parameters are in host memory, where those of a mesh of "cpu" are anyway."""

    pin_memory: bool = True


class _Layout(NamedTuple):
    """How a parameter lies between calls, while its module computes, and before it is reduced."""

    placement: Placement
    sharded: NdSbp
    whole: NdSbp
    summed: NdSbp
    # How it lies on a mesh of tensor parallelism, of which the module computes with global tensors.
    inner: tuple[Placement, NdSbp] | None


@dataclass
class _Group:
    """The parameters that one module gathers."""

    module: Module
    # All names of each parameter: tied ones have several. The values behind them may be replaced.
    names: list[list[str]]
    mesh: DeviceMesh
    policy: MixedPrecisionPolicy
    split_of: Callable[[Tensor], Sbp]
    layouts: dict[int, _Layout] = field(default_factory=dict)
    divisor: float = 0.0
    reduces: bool = True
    is_whole: bool = False
    # Gradients that have not been reduced yet: those of passes in which `reduces` was false.
    kept: dict[int, Tensor] = field(default_factory=dict)

    def parameters(self) -> list[Tensor]:
        """The parameters, in the order of their names."""
        return [self.module.get_parameter(aliases[0]) for aliases in self.names]

    def shard(self) -> None:
        """Makes the parameters global that are not; those without values wait until they have."""
        for number, parameter in enumerate(self.parameters()):
            known, home = self.layouts.get(number), parameter.device.placement
            if parameter.device is not META and (known is None or home is not known.placement):
                self.layouts[number] = _sharded(parameter, self.mesh, self.split_of(parameter))

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Gives the module whole parameters until the block is left, unless it has them already."""
        if self.is_whole:
            yield
            return
        self.shard()
        values: dict[str, Tensor] = {}
        for number, value in enumerate(_Gather.apply(self, *self.parameters())):
            inner = self.layouts[number].inner
            if inner is not None:
                value = to_global(value, *inner)
            values.update(dict.fromkeys(self.names[number], value))
        self.is_whole = True
        try:
            with reparametrised(self.module, values):
                yield
        finally:
            self.is_whole = False

    @contextmanager
    def summoned(self, writeback: bool) -> Iterator[None]:
        """Makes the parameters whole themselves until the block is left, then sharded again.

        With `writeback` every rank keeps its parts of what they are then.
        """
        self.shard()
        parameters, layouts = self.parameters(), self.layouts
        before = [parameter.detach() for parameter in parameters]
        wholes = [to_global(one, sbp=layouts[number].whole) for number, one in enumerate(before)]
        realize(*(one.call for one in wholes))
        for number, parameter in enumerate(parameters):
            value, inner = to_local(wholes[number]), layouts[number].inner
            parameter.data = value if inner is None else to_global(value, *inner)
        self.is_whole = True
        try:
            yield
        finally:
            self.is_whole = False
            for number, parameter in enumerate(parameters):
                value, layout = before[number], layouts[number]
                if writeback:
                    value = parameter.detach()
                    value = value if layout.inner is None else to_local(value)
                    value = to_global(value, layout.placement, layout.whole, check_meta=False)
                    value = to_global(value, sbp=layout.sharded)
                parameter.data = value

    def gathered(self, parameters: Sequence[Tensor]) -> list[Tensor]:
        """This rank's parts of gathered parameters, all of which are sent together."""
        dtype = self.policy.param_dtype
        wholes = [
            to_global(as_floats(parameter, dtype), sbp=self.layouts[number].whole)
            for number, parameter in enumerate(parameters)
        ]
        realize(*(one.call for one in wholes))
        return [to_local(one) for one in wholes]

    def reduced(self, gradients: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Sharded gradients, by number, from those that every rank has computed."""
        summed = {
            number: self.kept.pop(number) + one if number in self.kept else one
            for number, one in gradients.items()
        }
        if self.reduces:
            dtype = self.policy.reduce_dtype
            summed = {number: as_floats(one, dtype) for number, one in summed.items()}
        realize(*(one.call for one in summed.values()))
        if not self.reduces:
            self.kept |= summed
            return {}
        # All parts first: what is recorded after them is computed, and sent, together.
        layouts, divisor = self.layouts, self.divisor or self.mesh.size()
        parts = {
            number: to_global(
                one, layouts[number].placement, layouts[number].summed, check_meta=False
            )
            for number, one in summed.items()
        }
        return {
            number: to_global(one / divisor, sbp=layouts[number].sharded)
            for number, one in parts.items()
        }


class _Gather(Function):
    """Parts of whole parameters from sharded ones; gradients go back summed and sharded."""

    @staticmethod
    def forward(ctx: Any, group: _Group, *parameters: Tensor) -> tuple[Tensor, ...]:
        ctx.group, ctx.trained = group, [one.requires_grad for one in parameters]
        found = group.gathered(parameters)
        ctx.mark_non_differentiable(*(x for x, trained in zip(found, ctx.trained) if not trained))
        return tuple(found)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        given = {number: one for number, one in enumerate(gradients) if ctx.trained[number]}
        found = ctx.group.reduced(given)
        return (None, *map(found.get, range(len(gradients))))


class FSDPModule:
    """What a module is in addition, once `fully_shard` has sharded its parameters.

    Gathering follows the program, so PyTorch's hints of when to gather, to prefetch and to free
    change nothing; parameters that the backward pass needs stay until then.
    """

    _group: _Group

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        policy = self._group.policy
        if policy.cast_forward_inputs:
            args, kwargs = tree_map(lambda x: as_floats(x, policy.param_dtype), (args, kwargs))
        with self._group.whole():
            result = super().forward(*args, **kwargs)  # type: ignore[misc]
        return tree_map(lambda x: as_floats(x, policy.output_dtype), result)

    def to_empty(self, *, device: Any, recurse: bool = True) -> Any:
        """Moves the module without its values; parameters that had none are sharded now."""
        super().to_empty(device=device, recurse=recurse)  # type: ignore[misc]
        for group in _groups(self):
            group.shard()
        return self

    def set_requires_gradient_sync(
        self, requires_gradient_sync: bool, *, recurse: bool = True
    ) -> None:
        """Whether backward passes reduce gradients, or keep them for the next one that does."""
        for group in _groups(self) if recurse else [self._group]:
            group.reduces = requires_gradient_sync

    def set_gradient_divide_factor(self, factor: float) -> None:
        """The number by which sums of gradients are divided, in place of that of the ranks."""
        self._group.divisor = factor

    def unshard(self, async_op: bool = False) -> UnshardHandle | None:
        """Does nothing: parameters are gathered when the module is called."""
        return UnshardHandle() if async_op else None

    def reshard(self) -> None:
        """Does nothing: outside of calls parameters are sharded."""

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Does nothing: gathered parameters stay if the backward pass needs them."""

    def set_reshard_after_backward(
        self, reshard_after_backward: bool, *, recurse: bool = True
    ) -> None:
        """Does nothing: nobody needs gathered parameters after the backward pass."""

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Does nothing: each backward pass is complete in itself."""

    def set_modules_to_forward_prefetch(self, modules: list[FSDPModule]) -> None:
        """Does nothing: a module's parameters are gathered when it is called."""

    def set_modules_to_backward_prefetch(self, modules: list[FSDPModule]) -> None:
        """Does nothing: the backward pass gathers nothing."""


class UnshardHandle:
    """What `FSDPModule.unshard(async_op=True)` returns."""

    def wait(self) -> None:
        """Returns at once."""


def fully_shard(
    module: M,
    *,
    mesh: DeviceMesh | None = None,
    reshard_after_forward: bool | int | None = None,
    shard_placement_fn: Callable[[Tensor], Shard | None] | None = None,
    mp_policy: MixedPrecisionPolicy = MixedPrecisionPolicy(),
    offload_policy: OffloadPolicy = OffloadPolicy(),
    ignored_params: set[Tensor] | None = None,
) -> M:
    """Shards the parameters of a module in place, and returns it; it becomes an `FSDPModule` too.

    Call it for the inner modules first: an outer one takes the parameters that are left. They are
    split along dimension 0, or as `shard_placement_fn(parameter)` says, over a `mesh` of one axis
    (by default all ranks); on a mesh of two axes, over the second, and replicated along the first.
    Parameters that are too short stay whole. They get the values of the first rank, and stay the
    same objects. Those on the meta device are sharded when `to_empty` has given them memory.

    Parameters that `parallelize_module` has made global stay split on its mesh, if that and `mesh`
    are slices of one mesh. Gathered parameters that the backward pass needs stay until then,
    whatever `reshard_after_forward` says. `ignored_params` are left alone.

    Raises ArgumentError for a module that is sharded already, for a mesh of more than two axes, and
    for `CPUOffloadPolicy` on GPUs.

    >>> from metaop.distributed.fsdp import FSDPModule, fully_shard
    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> for layer in (model[0], model[2], model):
    ...     _ = fully_shard(layer)
    >>> isinstance(model, FSDPModule), model[0].weight.placements
    (True, (Shard(dim=0),))
    >>> model(metaop.ones(5, 3)).shape
    metaop.Size([5, 2])
    """
    modules = [module] if isinstance(module, Module) else list(module)
    for one in modules:
        if isinstance(one, FSDPModule):
            raise ArgumentError(
                f"fully_shard got a {type(one).__name__} that is sharded already",
                fix="call it once for a module, for inner modules first",
            )
    chosen = chosen_mesh(mesh, modules)
    if isinstance(offload_policy, CPUOffloadPolicy) and chosen.device_type != "cpu":
        raise ArgumentError(
            "fully_shard got CPUOffloadPolicy on GPUs", fix='omit it, or use a mesh of "cpu"'
        )

    def split_of(parameter: Tensor) -> Sbp:
        placement = None if shard_placement_fn is None else shard_placement_fn(parameter)
        return Split(0 if placement is None else placement.dim % parameter.ndim)

    for one in modules:
        shard(one, chosen, mp_policy, split_of, ignored_params or set())
    return module


def shard(
    module: Module,
    mesh: DeviceMesh,
    policy: MixedPrecisionPolicy,
    split_of: Callable[[Tensor], Sbp],
    ignored: set[Tensor],
) -> None:
    """Makes a module an `FSDPModule`; parameters lie as `split_of` says along the last axis."""
    module._group = _Group(module, _names(module, ignored), mesh, policy, split_of)
    module._group.shard()
    module.__class__ = _sharded_class(type(module))  # type: ignore[arg-type]


def register_fsdp_forward_method(module: Module, method_name: str) -> None:
    """Has a method of a sharded module gather its parameters, as `forward` does.

    Other modules stay as they are.
    """
    if not isinstance(module, FSDPModule):
        return
    method = getattr(module, method_name)

    @wraps(method)
    def run(*args: Any, **kwargs: Any) -> Any:
        with module._group.whole():
            return method(*args, **kwargs)

    setattr(module, method_name, run)


@lru_cache(maxsize=256)
def _sharded_class(kind: type[Module]) -> type[Module]:
    return type(f"FSDP{kind.__name__}", (FSDPModule, kind), {"__module__": kind.__module__})


def chosen_mesh(mesh: DeviceMesh | None, modules: Sequence[Module]) -> DeviceMesh:
    """The mesh that was given, checked, or all ranks in a row."""
    if mesh is None:
        kinds = {value.device.type for one in modules for value in one.parameters()}
        on_gpus = "cuda" in kinds or (kinds == {"meta"} and cuda.is_available())
        return init_device_mesh("cuda" if on_gpus else "cpu", (everyone().size,))
    if not isinstance(mesh, DeviceMesh):
        raise ArgumentTypeError(
            f"parameters cannot be sharded over {mesh!r}", fix="give init_device_mesh(…)"
        )
    if mesh.ndim > 2:
        raise ArgumentError(
            f"parameters cannot be sharded over {mesh}",
            fix="give one axis to split over, or two: replicas, shards",
        )
    return mesh


def _groups(module: Any) -> list[_Group]:
    return [one._group for one in module.modules() if isinstance(one, FSDPModule)]


@contextmanager
def summoned(module: Any, recurse: bool, writeback: bool) -> Iterator[None]:
    """Makes a module's parameters whole until the block is left, with `recurse` inner ones too."""
    groups = _groups(module)
    with ExitStack() as stack:
        for group in groups if recurse else groups[:1]:
            stack.enter_context(group.summoned(writeback))
        yield


def _names(module: Module, ignored: set[Tensor]) -> list[list[str]]:
    """The names of parameters that neither an inner module has sharded nor are ignored."""
    taken = {*ignored, *(one for group in _groups(module) for one in group.parameters())}
    found: dict[Tensor, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if parameter not in taken:
            found.setdefault(parameter, []).append(name)
    return list(found.values())


def _sharded(parameter: Tensor, mesh: DeviceMesh, along_last: Sbp) -> _Layout:
    """Makes a parameter global over a mesh, in place."""
    inner, outer = parameter.device.placement, mesh.placement
    split: NdSbp = (*(BROADCAST,) * (mesh.ndim - 1), along_last)
    states: NdSbp = ()
    value = parameter.detach()
    if inner is not None:
        known = value.sbp
        states = known if isinstance(known, tuple) else (known,)
        outer = mesh.joined(mesh_of(inner)).placement
        value = to_global(to_local(value), outer, (*(BROADCAST,) * mesh.ndim, *states))
    parameter.data = spread_first(value, outer, (*split, *states))
    kept = parameter.sbp
    return _Layout(
        outer,
        kept if isinstance(kept, tuple) else (kept,),
        (*(BROADCAST,) * mesh.ndim, *states),
        (*(PARTIAL,) * mesh.ndim, *states),
        None if inner is None else (inner, states),
    )


def as_floats(value: Any, dtype: DType | None) -> Any:
    """A floating-point tensor as `dtype`, if there is one; anything else as it is."""
    is_float = isinstance(value, Tensor) and value.dtype.kind == "float"
    return value if dtype is None or not is_float else value.to(dtype)
