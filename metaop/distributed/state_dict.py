"""The state of a model and its optimizers in a job: `torch.distributed.checkpoint.state_dict`.

Parameters are known by the names that they have without a data-parallel wrapper, also in the states
of optimizers, so that a state fits whatever number of ranks, and whatever groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from metaop.distributed.shards import ranks_of_job
from metaop.distributed.wrapping import Wrapper, plain_name
from metaop.errors import ArgumentError
from metaop.nn.module import Module
from metaop.nn.module_state import IncompatibleKeys
from metaop.nn.parallel import DataParallel, DistributedDataParallel
from metaop.optim.optimizer import Optimizer
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import zeros_like
from metaop.tensor.grad_mode import no_grad
from metaop.tensor.sharded.global_tensor import full_tensor, spread
from metaop.trees import tree_leaves, tree_map
from metaop.unified_graph.tensor_type import META

__all__ = [
    "StateDictOptions",
    "get_model_state_dict",
    "get_optimizer_state_dict",
    "get_state_dict",
    "set_model_state_dict",
    "set_optimizer_state_dict",
    "set_state_dict",
]

Optimizers = Optimizer | Iterable[Optimizer]


@dataclass
class StateDictOptions:
    """How a state is taken and loaded.

    `full_state_dict` gathers global tensors, `cpu_offload` moves everything to the host,
    `ignore_frozen_params` omits parameters that are not trained, and `strict` is passed to
    `load_state_dict`. With `broadcast_from_rank0`, all ranks load the state that rank 0 has; others
    may pass an empty one.
    """

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    strict: bool = True
    broadcast_from_rank0: bool = False


def get_model_state_dict(
    model: Module, *, options: StateDictOptions | None = None
) -> dict[str, Any]:
    """The state of a model, under the names that it has without a data-parallel wrapper."""
    options = options or StateDictOptions()
    inner = _unwrapped(model)
    frozen = {plain_name(name) for name, one in inner.named_parameters() if not one.requires_grad}
    state = {
        name: taken(value, options)
        for name, value in inner.state_dict().items()
        if not (options.ignore_frozen_params and name in frozen)
    }
    return state


def get_optimizer_state_dict(
    model: Module, optimizers: Optimizers, *, options: StateDictOptions | None = None
) -> dict[str, Any]:
    """The state of optimizers, with the names of parameters in place of their numbers.

    An optimizer that has not made a step gets the state that it would begin with, so that a
    checkpoint can be loaded into it.
    """
    options = options or StateDictOptions()
    state: dict[str, Any] = {}
    groups: list[dict[str, Any]] = []
    for optimizer in _listed(optimizers):
        _begin(optimizer)
        names, found = _names(model, optimizer), optimizer.state_dict()
        state |= {names[number]: value for number, value in found["state"].items()}
        groups += [
            {**one, "params": [names[k] for k in one["params"]]} for one in found["param_groups"]
        ]
    return tree_map(lambda value: taken(value, options), {"state": state, "param_groups": groups})  # type: ignore[no-any-return]


def get_state_dict(
    model: Module, optimizers: Optimizers, *, options: StateDictOptions | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The state of a model and that of its optimizers."""
    return (
        get_model_state_dict(model, options=options),
        get_optimizer_state_dict(model, optimizers, options=options),
    )


@no_grad()
def set_model_state_dict(
    model: Module, model_state_dict: Mapping[str, Any], *, options: StateDictOptions | None = None
) -> IncompatibleKeys:
    """Loads a state into a model; tensors on the meta device are replaced by those of the state.

    Values for global tensors may be local ones of the whole shape, the same on all ranks.
    """
    options = options or StateDictOptions()
    inner = _unwrapped(model)
    own = inner.state_dict()
    given = _of_rank_0(model_state_dict) if options.broadcast_from_rank0 else model_state_dict
    state = {name: _placed(value, own.get(name)) for name, value in given.items()}
    empty = any(isinstance(one, Tensor) and one.device is META for one in own.values())
    return inner.load_state_dict(state, strict=options.strict, assign=empty)


@no_grad()
def set_optimizer_state_dict(
    model: Module,
    optimizers: Optimizers,
    optim_state_dict: Mapping[str, Any],
    *,
    options: StateDictOptions | None = None,
) -> None:
    """Loads what `get_optimizer_state_dict` returned into optimizers of the same parameters.

    Raises ArgumentError for a state in which a parameter is missing.
    """
    options = options or StateDictOptions()
    given = _of_rank_0(optim_state_dict) if options.broadcast_from_rank0 else optim_state_dict
    for optimizer in _listed(optimizers):
        optimizer.load_state_dict(numbered_state(model, optimizer, given))


def numbered_state(model: Module, optimizer: Optimizer, given: Mapping[str, Any]) -> dict[str, Any]:
    """What an optimizer loads, of a state with the names of parameters."""
    group_of = {name: group for group in given["param_groups"] for name in group["params"]}
    names = _names(model, optimizer)
    if missing := sorted(set(names) - set(group_of)):
        raise ArgumentError(
            f"the state of an optimizer has nothing of {', '.join(missing)}",
            fix="pass what get_optimizer_state_dict returned for the same parameters",
        )
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    state = {
        number: tree_map(partial(_placed, like=parameters[number]), given["state"][name])
        for number, name in enumerate(names)
        if name in given["state"]
    }
    groups, first = [], 0
    for group in optimizer.param_groups:
        after = first + len(group["params"])
        saved = group_of[names[first]] if after > first else group
        groups.append({**saved, "params": list(range(first, after))})
        first = after
    return {"state": state, "param_groups": groups}


def set_state_dict(
    model: Module,
    optimizers: Optimizers,
    *,
    model_state_dict: Mapping[str, Any],
    optim_state_dict: Mapping[str, Any],
    options: StateDictOptions | None = None,
) -> IncompatibleKeys:
    """Loads the state of a model and that of its optimizers."""
    set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return set_model_state_dict(model, model_state_dict, options=options)


def _unwrapped(model: Module) -> Module:
    while isinstance(model, (DataParallel, DistributedDataParallel, Wrapper)):
        model = model.wrapped if isinstance(model, Wrapper) else model.module
    return model


def _listed(optimizers: Optimizers) -> Sequence[Optimizer]:
    return [optimizers] if isinstance(optimizers, Optimizer) else list(optimizers)


def _names(model: Module, optimizer: Optimizer) -> list[str]:
    """The names of an optimizer's parameters, in the order in which it numbers them."""
    known = {id(one): plain_name(name) for name, one in _unwrapped(model).named_parameters()}
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    if not all(id(one) in known for one in parameters):
        raise ArgumentError(
            f"{type(optimizer).__name__} has parameters that the model does not have",
            fix="make the optimizer from model.parameters()",
        )
    return [known[id(one)] for one in parameters]


def _begin(optimizer: Optimizer) -> None:
    """Gives a new optimizer its state, by a step of length zero along gradients of zero."""
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    if optimizer.state or any(one.grad is not None for one in parameters):
        return
    rates = [group.get("lr") for group in optimizer.param_groups]
    for one in parameters:
        if one.requires_grad:
            one.grad = zeros_like(one)
    try:
        for group in optimizer.param_groups:
            group["lr"] = 0.0
        optimizer.step()
    finally:
        for group, rate in zip(optimizer.param_groups, rates):
            group["lr"] = rate
        optimizer.zero_grad()


def taken(value: Any, options: StateDictOptions) -> Any:
    """A value of a state, whole and on the host if the options say so."""
    if not isinstance(value, Tensor):
        return value
    if options.full_state_dict and value.device.placement is not None:
        value = full_tensor(value.detach())
    return value.cpu() if options.cpu_offload else value


def _placed(value: Any, like: Any) -> Any:
    """A local value of the whole shape, lying as the global tensor to which it belongs."""
    if not isinstance(value, Tensor) or not isinstance(like, Tensor):
        return value
    placement = like.device.placement
    if placement is None or value.device.placement is not None or value.shape != like.shape:
        return value
    return spread(value, placement, like.sbp)


def _of_rank_0(state: Mapping[str, Any]) -> Any:
    """The state that rank 0 has, on all ranks."""
    is_whole = not any(
        isinstance(one, Tensor) and one.device.placement is not None for one in tree_leaves(state)
    )
    given = ranks_of_job().bcast(dict(state) if is_whole else None, 0)
    if given is None:
        raise ArgumentError(
            "broadcast_from_rank0 got global tensors on rank 0",
            fix="take the state with full_state_dict=True",
        )
    return given
