"""The builder of loop nests: what its `with` blocks emit is what one would write by hand."""

from __future__ import annotations

import pytest

from metaop.codegen.nest import ir
from metaop.codegen.nest.builder import NestBuilder, RuntimeExtent
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph import index_expr
from metaop.unified_graph.index_expr import Axis
from metaop.unified_graph.shape_env import ShapeEnv


def _let(name: str) -> ir.Let:
    return ir.Let(name, ir.Number(1, dtypes.int64))


def test_loops_lie_as_their_blocks_do() -> None:
    nest = NestBuilder()
    nest.emit(_let("before"))
    with nest.loop("p", 4, "parallel") as task:
        nest.emit(_let("outside"))
        with nest.loop("k", 3, vector=True, literal=True) as step:
            nest.emit(_let("inside"))
        nest.emit(_let("behind"))
    inner = ir.For("k", 3, "serial", (_let("inside"),), (), True, True)
    outer = ir.For("p", 4, "parallel", (_let("outside"), inner, _let("behind")))
    assert nest.body == (_let("before"), outer)
    assert (task, step) == (index_expr.axis("p", 4), index_expr.axis("k", 3))


def test_a_block_may_add_accumulators_to_its_loop() -> None:
    nest, sums = NestBuilder(), list[ir.Accumulator]()
    with nest.loop("k", 3, accumulators=sums):
        sums.append(ir.Accumulator("a", "add", dtypes.float32))
        nest.emit(ir.Accumulate("a", ir.Number(2, dtypes.float32)))
    (loop,) = nest.body
    assert isinstance(loop, ir.For)
    assert loop.accumulators == (ir.Accumulator("a", "add", dtypes.float32),)


@pytest.mark.parametrize("extent", [1, 5])
def test_the_index_of_a_counted_loop_is_never_left_out(extent: int) -> None:
    nest = NestBuilder()
    with nest.loop("i", extent) as plain, nest.loop("j", extent, counted=True) as counted:
        pass
    assert plain.is_constant is (extent == 1)
    assert counted == index_expr.of(Axis("j", extent))


def test_a_counted_loop_asks_nothing_about_a_symbolic_size() -> None:
    env = ShapeEnv()
    size = env.symbol(9) - 7
    nest = NestBuilder()
    with nest.loop("i", size, counted=True):
        pass
    assert not env.guards
    with nest.loop("j", size):
        pass
    assert len(env.guards) == 1


def test_an_extent_of_the_run_bounds_the_index() -> None:
    nest, count = NestBuilder(), ir.ValueIndex("count")
    with nest.loop("q", RuntimeExtent(count, 6), counted=True) as panel:
        pass
    assert panel.high == 5
    assert nest.body == (ir.For("q", count, "serial", ()),)


def test_statements_can_go_in_front_of_the_loop_that_is_open() -> None:
    nest = NestBuilder()
    with nest.loop("p", 2), nest.loop("k", 3):
        nest.emit(_let("inside"))
        with nest.before_loop(), nest.loop("z", 4):
            nest.emit(_let("front"))
        nest.emit(_let("inside too"))
    front = ir.For("z", 4, "serial", (_let("front"),))
    inner = ir.For("k", 3, "serial", (_let("inside"), _let("inside too")))
    assert nest.body == (ir.For("p", 2, "serial", (front, inner)),)


def test_an_error_inside_a_loop_comes_out_and_emits_no_loop() -> None:
    nest = NestBuilder()
    with pytest.raises(ZeroDivisionError), nest.loop("p", 2):
        raise ZeroDivisionError
    assert all(not scope.statements for scope in nest.scopes)
