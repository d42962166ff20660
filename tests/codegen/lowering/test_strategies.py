"""The table of strategies: who is asked, who is chosen, and what is told about it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from metaop.codegen.cuda.schedules import CUDA
from metaop.codegen.llvm.machine import host_machine
from metaop.codegen.lowering import Machine
from metaop.codegen.lowering.choice import Choice, rivals, show_choices
from metaop.codegen.lowering.machine import WITH_FEWER_PRODUCTS
from metaop.codegen.lowering.strategies import STRATEGIES
from metaop.codegen.lowering.strategy import Rival
from metaop.compiler import schedule
from metaop.elementwise import apply
from metaop.operators.convolution import convolution
from metaop.reduce.meta_op import reduce_axes
from metaop.unified_graph.dtype import float32
from metaop.unified_graph.node import Node, input_node


def image(channels: int, groups: int = 1) -> tuple[list[Node], Node]:
    """A 3x3 convolution of four images."""
    nodes = [
        input_node(0, (4, channels, 28, 28), float32),
        input_node(1, (channels, channels // groups, 3, 3), float32),
    ]
    return nodes, convolution(*nodes, None, (1, 1), (1, 1), (1, 1), (1, 1), groups)


def choice_of(nodes: list[Node], output: Node, machine: Machine) -> Choice:
    """How the last kernel of a graph is lowered."""
    return schedule(nodes, [output], machine).choices[-1]


def test_names_are_unique_and_machines_lack_known_ones() -> None:
    names = [one.name for one in STRATEGIES]
    assert len(set(names)) == len(names)
    assert set(CUDA.without) | set(WITH_FEWER_PRODUCTS) <= set(names)


@pytest.mark.parametrize(
    "groups, without, wanted",
    [
        (1, (), "winograd"),
        (1, WITH_FEWER_PRODUCTS, "panels"),
        (32, (), "stencil"),
    ],
)
def test_the_cheapest_strategy_of_the_machine_is_chosen(
    groups: int, without: tuple[str, ...], wanted: str
) -> None:
    machine = replace(host_machine(), without=without)
    request, tactic = choice_of(*image(32, groups), machine)
    assert tactic.strategy == wanted
    assert tactic.share == min(one.share for one in rivals(request))
    assert not {one.strategy for one in rivals(request)} & set(without)


def test_a_machine_chooses_among_rivals_only() -> None:
    asked: list[str] = []

    def choose(request, default):
        asked.append(default.strategy)
        return rivals(request)[-1]

    machine = replace(host_machine(), choose=choose)
    nodes, output = image(32)
    choices = schedule(nodes, [apply("exp", reduce_axes("add", output, (1,)))], machine).choices
    strategies = {one.name: one for one in STRATEGIES}
    assert all(isinstance(strategies[name], Rival) for name in asked) and asked
    assert "panels" in [tactic.strategy for _, tactic in choices]


def test_all_rivals_are_told_with_their_costs_or_what_they_need() -> None:
    text = show_choices([choice_of(*image(32), replace(host_machine(), without=()))])
    first, *rest = text.splitlines()
    assert first.startswith("[lowering] winograd 4x4, tiles ")
    for name in ("winograd 2x2", "panels"):
        assert any(f"not {name}: " in line and "of the plain time" in line for line in rest)
    for one in STRATEGIES:
        if one.name in ("thin", "long windows", "stencil"):
            assert f"[lowering]   not {one.name}: needs {one.needs}" in rest


def test_strategies_that_the_machine_lacks_are_told_as_such() -> None:
    machine = replace(host_machine(), without=WITH_FEWER_PRODUCTS)
    text = show_choices([choice_of(*image(32), machine)])
    assert "[lowering]   not winograd: switched off here" in text.splitlines()


def test_reductions_are_told_by_their_reason() -> None:
    x = input_node(0, (512, 640), float32)
    machine = host_machine()
    columns = choice_of([x], reduce_axes("add", x, (0,)), replace(machine, cut=lambda *_: None))
    rows = choice_of([x], reduce_axes("add", x, (1,)), machine)
    assert (columns.tactic.name, rows.tactic.name) == ("columns", "rows")
    assert "memory is read in its order" in show_choices([columns])
