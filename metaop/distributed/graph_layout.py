"""Searches for the cheapest sharding of the parameters of a step, which is recorded once.

Recording computes nothing. What it changes (statistics of a batch norm, gradients, the state of
the random number generator) is restored afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from metaop.dist.placement import Placement
from metaop.dist.sbp import BROADCAST
from metaop.dist.search import Search
from metaop.dist.sharding_search import Plan
from metaop.distributed.graph_config import GraphConfig
from metaop.distributed.graph_run import nothing_computed
from metaop.errors import ArgumentError
from metaop.nn.module import Module
from metaop.nn.parameter import Parameter
from metaop.random import fork_rng
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.grad_mode import no_grad
from metaop.tensor.sharded.global_tensor import distribute_tensor, to_global
from metaop.trees import tree_flatten, tree_map
from metaop.unified_graph.cut import cut_at
from metaop.unified_graph.recording import Call


def common_placement(modules: Sequence[Module], arguments: Any) -> Placement:
    """The ranks on which a step runs: those of its global tensors, or all."""
    tensors = [x for x in tree_flatten(arguments)[0] if isinstance(x, Tensor)]
    tensors += [value for module in modules for value in _values(module)]
    found = {x.device.placement for x in tensors if x.device.placement is not None}
    if len(found) > 1:
        raise ArgumentError(
            f"auto parallel over {len(found)} placements: {', '.join(map(str, found))}",
            fix="put everything on one mesh; pipeline stages are set by hand with set_stage()",
        )
    types = {x.device.type for x in tensors}
    return found.pop() if found else Placement.all("cuda" if "cuda" in types else "cpu")


def _values(module: Module) -> Iterator[Tensor]:
    yield from module.parameters()
    yield from module.buffers()


def made_global(arguments: Any, placement: Placement) -> Any:
    """Replaces local tensors in the arguments, equal on all ranks, by replicated global ones."""
    whole = (BROADCAST,) * placement.ranks.ndim

    def placed(value: Any) -> Any:
        if isinstance(value, Tensor) and value.device.placement is None:
            return distribute_tensor(value, placement, whole)
        return value

    return tree_map(placed, arguments)


def lay_out(
    modules: Sequence[Module], step: Callable[[], Any], placement: Placement, config: GraphConfig
) -> Plan:
    """Shards the parameters in the way that is cheapest for `step`; returns the plan."""
    whole = (BROADCAST,) * placement.ranks.ndim
    for module in modules:
        if any(value.device.placement is None for value in _values(module)):
            module.to_global(placement, whole)
    parameters = [p for module in modules for p in module.parameters() if p.requires_grad]
    plan, searched = _searched(modules, parameters, step, placement, config)
    placement.world.verify("\n".join(map(repr, plan.given)))
    with no_grad():
        for position, parameter in searched.items():
            buffer: Any = parameter.buffer()
            if buffer.states != plan.given[position]:
                parameter.data = to_global(parameter.data, sbp=plan.given[position])
    return plan


def _searched(
    modules: Sequence[Module],
    parameters: Sequence[Parameter],
    step: Callable[[], Any],
    placement: Placement,
    config: GraphConfig,
) -> tuple[Plan, dict[int, Parameter]]:
    """The cheapest plan, and which of its inputs are parameters."""
    values = {value.call: value for module in modules for value in _values(module)}
    for value in values.values():
        value.buffer()
    with _trial(values, parameters):
        results = [x.call for x in tree_flatten(step())[0] if isinstance(x, Tensor)]
        updated = {p.call: p.grad.call for p in parameters if p.grad is not None}
        if updated:
            # A training step returns scalars to read; a tensor is hardly ever read.
            results = [call for call in results if not call.type.shape]
        roots = [*updated.values(), *results]
        subgraph = cut_at([call for call in roots if call.is_pending], lambda call: ())
        nodes, kept = subgraph.expand()
        made = dict(zip(subgraph.outputs, kept))
        inputs = dict(zip(subgraph.leaves, nodes))
        wanted = updated or [parameter.call for parameter in parameters]
        searched = {call: inputs[call] for call in wanted if call in inputs}
        # The output subtracts the gradient, so the plan must shard it like its parameter.
        outputs = [inputs[call] - made[updated[call]] for call in searched if updated]
        outputs += [made[call] for call in results if call in made]
        positions = {node: k for k, node in enumerate(nodes)}
        fixed = {
            k: _sharding(call, placement)
            for k, call in enumerate(subgraph.leaves)
            if call not in searched or _is_kept(call, config)
        }
    chosen = [positions[node] for node in searched.values()] if updated else []
    search = Search(
        nodes, outputs, placement.shape, chosen, config.cluster, config.memory, fixed=fixed
    )
    found: dict[int, Any] = {positions[inputs[call]]: values[call] for call in searched}
    return search.best(), found


def _sharding(call: Call, placement: Placement) -> Any:
    whole = (BROADCAST,) * placement.ranks.ndim
    return getattr(call.buffer, "states", whole)


def _is_kept(call: Call, config: GraphConfig) -> bool:
    """Whether a parameter has been split by hand, which the search must respect."""
    states = getattr(call.buffer, "states", ())
    return not config.ignores_user_sbp and any(state != BROADCAST for state in states)


@contextmanager
def _trial(values: dict[Call, Tensor], parameters: Sequence[Parameter]) -> Iterator[None]:
    """Records what runs inside without computing it, and undoes its side effects."""
    gradients = [parameter.grad for parameter in parameters]
    try:
        with fork_rng(), nothing_computed():
            for parameter in parameters:
                parameter.grad = None
            yield
    finally:
        for parameter, gradient in zip(parameters, gradients):
            parameter.grad = gradient
        for call, value in values.items():
            if value.call is not call:
                value.data = wrap(call)
