"""What `Graph.debug` prints of the first step: its building, modules, operators and programs."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from metaop.codegen.lowering.repetition import flattened
from metaop.dist.picture import show_plan
from metaop.dist.sbp import NdSbp, nd_text
from metaop.dist.sharding_search import Plan
from metaop.execution import executor
from metaop.execution.compilations import compilations_of, plan_of
from metaop.execution.executor import pending_subgraph
from metaop.nn.hooks import register_module_forward_hook, register_module_forward_pre_hook
from metaop.nn.module import Module
from metaop.tensor.core import Tensor
from metaop.trees import tree_flatten
from metaop.unified_graph.cut import Key, Subgraph, recorder
from metaop.unified_graph.node import Node
from metaop.unified_graph.recording import Call, next_sequence

MODULES, OPERATORS, PROGRAMS = 1, 2, 3


class _Visit(NamedTuple):
    """One forward of a module: the calls that it recorded, its inputs and its outputs."""

    name: str
    start: int
    end: int
    inputs: Sequence[Call]
    outputs: Sequence[Call]


class GraphReport(executor.Watcher):
    """Watches one step of a graph and prints it at a level: see `Graph.debug`."""

    def __init__(self, name: str, level: int, modules: dict[str, Module]) -> None:
        self._name, self._level = name, level
        self._names = {
            module: path
            for root, top in modules.items()
            for path, module in top.named_modules(prefix=root)
        }
        self._open: list[tuple[Module, int, Sequence[Call]]] = []
        self._visits: list[_Visit] = []
        self._states: dict[Call, NdSbp] = {}
        self._programs: dict[Key, list[str]] = {}

    @contextmanager
    def of_step(self, describe: Callable[[], str]) -> Iterator[None]:
        """Prints what happens inside; its programs run there or are pending afterwards.

        What was visited is printed after an error as well.
        """
        start = time.perf_counter()
        self._print("building starts")
        ending = "failed"
        executor.watchers.append(self)
        try:
            yield
            for group in _by_device(recorder.take_roots(keep=True)):
                self.begun(pending_subgraph(group))
            ending = "ended"
        finally:
            executor.watchers.remove(self)
            self._print(describe())
            for visit in self._visits if self._level >= MODULES else ():
                self._print(self._module_line(visit))
            for line in itertools.chain.from_iterable(self._programs.values()):
                self._print(line)
            self._print(f"building {ending} after {time.perf_counter() - start:.3f} s")

    def watched(self, build: Callable[..., Any]) -> Callable[..., Any]:
        """`build`, with its modules noted in the first call only: micro-batches are alike."""

        def noted(*args: Any, **kwargs: Any) -> Any:
            if self._visits or self._level < MODULES:
                return build(*args, **kwargs)
            handles = (
                register_module_forward_pre_hook(self._enter),
                register_module_forward_hook(self._leave),
            )
            try:
                return build(*args, **kwargs)
            finally:
                for handle in handles:
                    handle.remove()

        return noted

    def _print(self, text: str) -> None:
        print("\n".join(f"{self._name}: {line}" for line in text.splitlines()), file=sys.stderr)

    # --- modules ----------------------------------------------------------------------------

    def _enter(self, module: Module, args: Any) -> None:
        self._open.append((module, next_sequence(), _calls(args)))

    def _leave(self, module: Module, args: Any, output: Any) -> None:
        _, start, inputs = self._open.pop()
        name = self._names.get(module, type(module).__name__)
        self._visits.append(_Visit(name, start, next_sequence(), inputs, _calls(output)))

    def _module_line(self, visit: _Visit) -> str:
        inputs = ", ".join(map(self._value, visit.inputs))
        return f"module {visit.name}: {inputs} -> {', '.join(map(self._value, visit.outputs))}"

    def _module_of(self, call: Call) -> str:
        """The innermost module that recorded a call."""
        inside = [one for one in self._visits if one.start < call.sequence < one.end]
        return f" in {max(inside, key=lambda one: one.start).name}" if inside else ""

    def _value(self, call: Call) -> str:
        """Describes the type of a value, where it is, and its sharding there."""
        text = f"{call.type} on {call.type.device}"
        states = getattr(call.buffer, "states", None) or self._states.get(call)
        return text if states is None else f"{text} {nd_text(states)}"

    # --- programs ---------------------------------------------------------------------------

    def begun(self, subgraph: Subgraph) -> None:
        if self._level < MODULES or subgraph.key in self._programs:
            return
        device, plan = subgraph.outputs[0].type.device, None
        if device.placement is not None:
            plan = plan_of(subgraph)
            self._states.update(_states_of(subgraph, plan))
        lines = self._programs[subgraph.key] = []
        if self._level >= OPERATORS:
            lines.append(f"program on {device} of {len(subgraph.order)} recorded values")
            lines += self._operators(subgraph)
        if self._level >= PROGRAMS:
            lines += _kernels(subgraph)
            lines += [] if plan is None else [f"  {line}" for line in show_plan(plan).splitlines()]

    def _operators(self, subgraph: Subgraph) -> Iterator[str]:
        for call, signature in subgraph.operators:
            inputs = map(self._value, subgraph.inputs_of(call))
            given = ", ".join([*inputs, *map(repr, signature.attributes)])
            yield (
                f"  operator {signature.composite.name}{self._module_of(call)}: "
                f"({given}) -> {self._value(call)}"
            )


def _calls(values: Any) -> list[Call]:
    return [value.call for value in tree_flatten(values)[0] if isinstance(value, Tensor)]


def _by_device(calls: Sequence[Call]) -> list[list[Call]]:
    """Groups the calls by device, without those on placements without this process."""
    groups: dict[Any, list[Call]] = {}
    for call in calls:
        placement = call.type.device.placement
        if placement is None or placement.world.owned:
            groups.setdefault(call.type.device, []).append(call)
    return list(groups.values())


def _states_of(subgraph: Subgraph, plan: Plan) -> dict[Call, NdSbp]:
    """The shardings that a plan gives the values of a subgraph, before any move."""
    nodes = subgraph.nodes_of(plan.inputs)
    sharding: dict[Node, NdSbp] = dict(zip(plan.inputs, plan.given))
    for node, states in plan.used:
        sharding.setdefault(node, states)
    return {call: sharding[made[0]] for call, made in nodes.items() if made[0] in sharding}


def _kernels(subgraph: Subgraph) -> Iterator[str]:
    """Describes the kernels that run, on each rank of a placement."""
    placement = subgraph.outputs[0].type.device.placement
    ranks = [((), "")] if placement is None else _places(placement)
    for place, name in ranks:
        found = [one.schedule for one in compilations_of(subgraph, place=place)]
        count = sum(len(list(flattened(schedule.launches))) for schedule in found)
        arena = max((schedule.arena_bytes for schedule in found), default=0)
        yield f"  {name}{count} kernels, temporaries of {arena} bytes"


def _places(placement: Any) -> list[tuple[tuple[int, ...], str]]:
    return [(place, f"rank {rank}: ") for place, rank in np.ndenumerate(placement.ranks)]
