"""The verifier finds each class of fault that a pass could make, and lets right nests pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from metaop.codegen.nest.ir import (
    Alloc,
    CheckedIndex,
    For,
    InBounds,
    Let,
    LoopNest,
    MicroKernel,
    Name,
    Store,
    Sum,
    ValueIndex,
)
from metaop.codegen.nest.verify import VerificationError, verify_nest
from metaop.codegen.schedule import Schedule, donations
from metaop.codegen.verify import verify_donations, verify_launches, verify_memory
from metaop.compiler import schedule
from metaop.elementwise import apply
from metaop.operators.linear_algebra import matmul
from metaop.reduce.meta_op import reduce_axes
from metaop.unified_graph.node import input_node
from tests.codegen.run_nest import F32, I64, READ_WRITE, call, index, load, nest, serial, vector

N = 8


def scratch_nest(*body: Any) -> LoopNest:
    """A nest whose four tasks each have N elements of scratch memory."""
    return nest(READ_WRITE, serial("p", 4, Alloc(-1, N, F32), *body, kind="parallel"))


def stored(offset: Sum, value: Any, buffer: int = 1) -> Store:
    return Store(buffer, offset, value)


def micro_kernel(**changes: Any) -> MicroKernel:
    plain = MicroKernel(0, index(), -1, index(), -2, index(), 4, 2, 4, index(3), index(), F32)
    return plain._replace(**changes)


def panels(kernel: MicroKernel, filled: int = 12) -> LoopNest:
    """A micro-kernel on a panel of which `filled` elements are written."""
    fill = vector("i", filled, Store(-1, index(i=1), load(0, F32, i=1)), kind="serial")
    read = vector("j", 8, stored(index(j=1), load(-2, F32, j=1)), kind="serial")
    return nest(READ_WRITE, Alloc(-1, 12, F32), Alloc(-2, 8, F32), fill, kernel, read)


def sizes(found: LoopNest) -> list[int]:
    """Panels are read from 12 elements, all other buffers have N."""
    reads_a_panel = any(isinstance(statement, MicroKernel) for statement in found.body)
    return [12 if reads_a_panel else N] * len(found.parameters)


twice = call("add", load(1, F32, i=1), load(1, F32, i=1))
RIGHT = {
    "map": nest(READ_WRITE, vector("i", N, stored(index(i=1), load(0, F32, i=1)))),
    "later loop": nest(
        READ_WRITE,
        vector("i", N, stored(index(i=1), load(0, F32, i=1)), kind="serial"),
        vector("j", N - 1, Let("t", load(1, F32, 1, j=1)), kind="serial"),
    ),
    "guarded": nest(
        READ_WRITE,
        vector("i", N + 3, Store(1, index(i=1), load(0, F32), (InBounds(index(i=1), N),))),
    ),
    "scratch": scratch_nest(
        vector("i", N, Store(-1, index(i=1), load(0, F32, i=1)), kind="serial"),
        vector("j", 2, stored(index(p=2, j=1), load(-1, F32, 1, j=2)), kind="serial"),
    ),
    "panels": panels(micro_kernel()),
    "looked up": nest(
        [(F32, "read"), (F32, "write"), (I64, "read")],
        vector(
            "i",
            N,
            CheckedIndex("k", load(2, I64, i=1), N, 0),
            stored(index(i=1), load(0, F32)._replace(offset=Sum(((ValueIndex("k"), 1),), 0))),
        ),
    ),
}
WRONG = {
    "a read in front of its write": (
        nest(READ_WRITE, vector("i", N, Let("t", twice), stored(index(i=1), Name("t", F32)))),
        "read before it is written",
    ),
    "a read beside its write": (
        nest(READ_WRITE, vector("i", N, stored(index(i=1), twice))),
        "read before it is written",
    ),
    "a read that one lane after another would allow": (
        nest(
            READ_WRITE,
            vector(
                "i",
                N,
                Let("t", load(1, F32, -1, i=1)._replace(conditions=(InBounds(index(-1, i=1), N),))),
                stored(index(i=1), load(0, F32, i=1)),
                kind="serial",
            ),
        ),
        "read before it is written",
    ),
    "a neighbour's lane": (
        nest(
            READ_WRITE,
            serial(
                "p",
                1,
                vector(
                    "i",
                    N - 2,
                    stored(index(1, i=1), load(0, F32, i=1)),
                    Let("t", load(1, F32, 2, i=1)),
                    kind="serial",
                ),
                stored(index(N - 1), load(0, F32)),
                kind="parallel",
            ),
        ),
        "read before it is written",
    ),
    "an element of another task": (
        nest(
            READ_WRITE,
            serial(
                "p",
                N,
                stored(index(p=1), load(0, F32, p=1)),
                Let("t", load(1, F32)),
                kind="parallel",
            ),
        ),
        "by a task that does not write it",
    ),
    "two tasks at one element": (
        nest(READ_WRITE, serial("p", 4, stored(index(), load(0, F32)), kind="parallel")),
        "written by two tasks",
    ),
    "beyond the end": (
        nest(READ_WRITE, vector("i", N, stored(index(i=1), load(0, F32, 1, i=1)))),
        "element 8 of b0, which has 8",
    ),
    "before the start": (
        nest(READ_WRITE, vector("i", N, stored(index(-1, i=1), load(0, F32, i=1)))),
        "element -1 of b1, which has 8",
    ),
    "beyond the end where data leads": (
        nest(
            [(F32, "read"), (F32, "write"), (I64, "read")],
            vector(
                "i",
                N,
                CheckedIndex("k", load(2, I64, i=1), N + 1, 0),
                stored(index(i=1), load(0, F32)._replace(offset=Sum(((ValueIndex("k"), 1),), 0))),
            ),
        ),
        "element 8 of b0, which has 8",
    ),
    "scratch memory that is never written": (
        scratch_nest(
            vector("i", N - 1, Store(-1, index(i=1), load(0, F32, i=1)), kind="serial"),
            vector("j", 2, stored(index(p=2, j=1), load(-1, F32, 6, j=1)), kind="serial"),
        ),
        "read, but never written",
    ),
    "scratch memory that only the first task writes": (
        scratch_nest(
            vector(
                "i",
                N,
                Store(-1, index(i=1), load(0, F32, i=1), (InBounds(index(p=1), 1),)),
                kind="serial",
            ),
            vector("j", 2, stored(index(p=2, j=1), load(-1, F32, j=1)), kind="serial"),
        ),
        "read, but never written",
    ),
    "scratch memory of an outer loop's earlier turn": (
        scratch_nest(
            serial(
                "k",
                2,
                vector("j", 1, stored(index(p=2, k=1), load(-1, F32, k=1)), kind="serial"),
                vector("i", N, Store(-1, index(i=1), load(0, F32, i=1)), kind="serial"),
            ),
        ),
        "read before it is written",
    ),
    "a panel that is not packed whole": (panels(micro_kernel(), 10), "never written"),
    "a panel beyond its memory": (panels(micro_kernel(depth=index(4))), "which has"),
    "a tile that is added to before it is there": (
        panels(micro_kernel(accumulate=index(1))),
        "b-2 is read",
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_nest_passes(name: str) -> None:
    found = RIGHT[name]
    verify_nest(found, sizes(found))


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_nest_is_found(name: str) -> None:
    found, message = WRONG[name]
    with pytest.raises(VerificationError, match=message):
        verify_nest(found, sizes(found))


IN_PLACE_RIGHT = {
    "the same element": nest(READ_WRITE, vector("i", N, stored(index(i=1), load(0, F32, i=1)))),
    "the same element, if data says so": nest(
        [*READ_WRITE, (I64, "read")],
        vector(
            "i",
            N,
            CheckedIndex("k", load(2, I64, i=1), 2, 0),
            stored(
                index(i=1),
                load(0, F32, i=1)._replace(
                    conditions=(InBounds(Sum(((ValueIndex("k"), 1),), 0), 1),)
                ),
            ),
        ),
    ),
}
IN_PLACE_WRONG = {
    "a neighbour": nest(READ_WRITE, vector("i", N, stored(index(i=1), load(0, F32, N - 1, i=-1)))),
    "a later read": nest(
        READ_WRITE,
        serial(
            "p",
            1,
            vector("i", N, stored(index(i=1), load(0, F32, i=1)), kind="serial"),
            Let("t", load(0, F32)),
            kind="parallel",
        ),
    ),
}


@pytest.mark.parametrize("name", IN_PLACE_RIGHT)
def test_a_result_may_take_the_memory_of_an_operand_that_was_read(name: str) -> None:
    found = IN_PLACE_RIGHT[name]
    verify_nest(found, sizes(found), [(1, 0)])


@pytest.mark.parametrize("name", IN_PLACE_WRONG)
def test_a_result_must_not_overwrite_an_operand_that_is_read_later(name: str) -> None:
    verify_nest(IN_PLACE_WRONG[name], [N, N])
    with pytest.raises(VerificationError, match="over it"):
        verify_nest(IN_PLACE_WRONG[name], [N, N], [(1, 0)])


# --- schedules ----------------------------------------------------------------------------------


@pytest.fixture
def plan() -> Schedule:
    """Launches with temporaries between them, and a result that may take an input's place."""
    x, w, y = (input_node(k, (32, 32), F32) for k in range(3))
    product = matmul(matmul(matmul(x, w), w), w)
    return schedule([x, w, y], [apply("mul", reduce_axes("add", product, (1,)), y)])


def verify(plan: Schedule) -> None:
    verify_launches(plan, {})
    verify_memory(plan)
    verify_donations(plan, donations(plan))


def test_a_right_schedule_passes(plan: Schedule) -> None:
    assert len(plan.temporaries) > 1 and donations(plan)
    verify(plan)


def test_a_launch_that_comes_too_early_is_found(plan: Schedule) -> None:
    with pytest.raises(VerificationError, match="which no kernel has written by then"):
        verify(plan._replace(launches=plan.launches[::-1]))


def test_a_launch_that_is_missing_is_found(plan: Schedule) -> None:
    with pytest.raises(VerificationError, match="no kernel writes element 0"):
        verify(plan._replace(launches=plan.launches[:-1]))


def test_elements_that_no_launch_writes_are_found(plan: Schedule) -> None:
    last = plan.launches[-1]
    (loop,) = last.nest.body
    assert isinstance(loop, For) and isinstance(loop.extent, int)
    shorter = last.nest._replace(body=(loop._replace(extent=loop.extent - 1),))
    launches = (*plan.launches[:-1], replace(last, nest=shorter))
    with pytest.raises(VerificationError, match="no kernel writes element"):
        verify(plan._replace(launches=launches))


def test_temporaries_that_overlap_are_found(plan: Schedule) -> None:
    overlapping = plan._replace(offsets=tuple(64 for _ in plan.offsets), arena_bytes=1 << 20)
    with pytest.raises(VerificationError, match="alive together|over it|two tasks"):
        verify(overlapping)
    with pytest.raises(VerificationError, match="behind the end"):
        verify(plan._replace(arena_bytes=plan.arena_bytes - 1))


def test_an_input_that_is_overwritten_while_it_is_needed_is_found(plan: Schedule) -> None:
    (output, source), *_ = donations(plan).items()
    other = next(x for x in plan.inputs if x is not source)
    with pytest.raises(VerificationError, match="while that is needed|over it|by another task"):
        verify_donations(plan, {plan.temporaries[0]: other})
    verify_donations(plan, {output: source})
