"""Where the lanes of a row synchronise: buffers with slots need one barrier in each turn."""

from __future__ import annotations

import pytest

from metaop.codegen.cuda.emit import emit
from metaop.codegen.cuda.hazards import Hazards
from metaop.codegen.nest import ir
from metaop.compiler import schedule
from metaop.unified_graph import dtype as dtypes
from tests.cuda.cases import CASES, inputs_of, machine_of

F32 = dtypes.float32
PANEL, SIZE = -1, 64


def place(terms: tuple[tuple[ir.Factor, ir.Integer], ...]) -> ir.Sum:
    return ir.Sum(((ir.LoopIndex("t"), 1), *terms), 0)


def turns(slots: int | None, size: ir.Integer, shift: int = 0) -> ir.For:
    """A loop that writes a slot of shared memory, and then reads it."""
    turn = ir.LoopIndex("k")
    number = ir.RemainderIndex(ir.Sum(((turn, 1),), shift), slots) if slots else turn
    at = place(((number, size),))
    write = ir.For("t", 32, "serial", (ir.Store(PANEL, at, ir.Number(0, F32)),), vector=True)
    read = ir.For(
        "t", 32, "serial", (ir.Store(0, place(()), ir.Load(PANEL, at, F32)),), vector=True
    )
    return ir.For("k", 9 if slots else SIZE // 32, "serial", (write, read))


def entered(loop: ir.For) -> Hazards:
    hazards = Hazards(sizes={PANEL: SIZE})
    assert not hazards.enter(loop)
    return hazards


@pytest.mark.parametrize("slots", (2, None), ids=("in turn", "one each"))
def test_turns_do_not_meet_in_slots(slots: int | None) -> None:
    loop = turns(slots, 32)
    hazards = entered(loop)
    assert [hazards.must_wait(statement) for statement in loop.body] == [False, True]


NOT_SLOTS = {
    "one slot": turns(1, 64),
    "slots that overlap": turns(2, 16),
    "slots of a size that only the run tells": turns(2, ir.Argument(0)),
    "slots in another order": turns(2, 32, 1),
    "turns that overlap": turns(None, 16),
}


@pytest.mark.parametrize("name", NOT_SLOTS)
def test_turns_wait_where_they_may_meet(name: str) -> None:
    hazards, loop = entered(NOT_SLOTS[name]), NOT_SLOTS[name]
    assert [hazards.must_wait(statement) for statement in loop.body] == [True, True]


def test_turns_wait_for_what_one_statement_reads_and_writes() -> None:
    """It has no barrier inside, so nothing separates a turn from the one before the last."""
    at = place(((ir.RemainderIndex(ir.Sum(((ir.LoopIndex("k"), 1),), 0), 2), 32),))
    update = ir.Update(PANEL, at, "add", ir.Number(1, F32))
    inner = ir.For("t", 32, "serial", (update,), vector=True)
    hazards = entered(ir.For("k", 9, "serial", (inner,)))
    assert hazards.must_wait(inner)


def test_the_first_turn_waits_for_what_is_before_the_loop() -> None:
    hazards, loop = Hazards(sizes={PANEL: SIZE}), turns(2, 32)
    hazards.add(loop.body)
    assert hazards.enter(loop)


@pytest.mark.parametrize("name", ["large matmul", "large convolution", "deep matmul float64"])
def test_a_pipeline_has_one_barrier_a_step(name: str) -> None:
    outputs = CASES[name]()
    launches = schedule(inputs_of(outputs), outputs, machine_of(name)).launches
    nest = next(x.nest for x in launches if x.nest.name.startswith("contraction"))
    before, _, steps = emit(nest, "kernel").partition("        for (index_t kb")
    inside = steps.partition("\n        }\n")[0]
    assert before.count("__syncthreads();") == inside.count("__syncthreads();") == 1


def test_reads_ahead_of_a_pipeline_stay_before_its_barrier() -> None:
    """The compiler may move reads of what nobody else writes behind it, where they hide nothing."""
    outputs = CASES["large matmul"]()
    (launch,) = schedule(inputs_of(outputs), outputs, machine_of("large matmul")).launches
    head = emit(launch.nest, "kernel").partition("kernel(")[2]
    left, right, bias, result = head.splitlines()[1:5]
    assert "__restrict__" not in left + right + result
    assert "__restrict__" in bias
