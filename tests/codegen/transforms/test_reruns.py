"""Launches that run again, or early: the same values from less memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from metaop.codegen.budget import planned_bytes
from metaop.codegen.lowering import LoweredKernel
from metaop.codegen.schedule import Schedule, last_failure
from metaop.codegen.stages import plan_memory
from metaop.codegen.transforms.freeing import free_early
from metaop.codegen.verify import verify_launches, verify_memory
from metaop.compiler import schedule
from metaop.unified_graph.node import Node
from tests.codegen.interpret import run_schedule
from tests.codegen.lowering.test_lowering import GRAPHS, matmul, scheduled, tensor
from tests.fusion.test_recompute import STEPS, training_step

GRADIENTS = [name for name in GRAPHS if "gradient" in name]


def under(plain: Schedule, outputs: list[Node], share: float) -> Schedule:
    """The schedule of which the temporaries take a share of those of a plain one."""
    own = planned_bytes(plain) - plain.arena_bytes
    return schedule(plain.inputs, outputs, budget=own + int(share * plain.arena_bytes))


def test_values_are_the_same_bit_by_bit() -> None:
    outputs = training_step(5)
    plain, values, _ = scheduled(outputs)
    found = under(plain, outputs, 0.75)
    assert found.arena_bytes <= 0.75 * plain.arena_bytes
    reruns = [launch for launch in found.launches if launch.is_rerun]
    assert reruns and len(found.launches) == len(plain.launches) + len(reruns)
    verify_launches(found, {})
    verify_memory(found)
    for actual, expected in zip(
        run_schedule(found, values), run_schedule(plain, values), strict=True
    ):
        np.testing.assert_array_equal(actual, expected)


def test_without_need_nothing_changes() -> None:
    outputs = training_step()
    plain, _, _ = scheduled(outputs)
    assert under(plain, outputs, 1.0).launches == plain.launches


@pytest.mark.parametrize("name", [*STEPS, *GRADIENTS])
def test_launches_that_free_memory_run_early(name: str) -> None:
    plain, values, _ = scheduled((STEPS | GRAPHS)[name]())
    found = plan_memory(free_early(plain))
    assert sorted(map(id, found.launches)) == sorted(map(id, plain.launches))
    verify_launches(found, {})
    verify_memory(found)
    for actual, expected in zip(
        run_schedule(found, values), run_schedule(plain, values), strict=True
    ):
        np.testing.assert_array_equal(actual, expected)


def test_what_frees_memory_does_not_wait_for_what_takes_more() -> None:
    """Of wide values, each of which becomes a narrow one, no two need be there at once."""
    wide = [matmul(tensor(k, 20 + k, 6), tensor(9, 6, 400)) for k in range(4)]
    plain, _, _ = scheduled([matmul(value, tensor(8, 400, 2)) for value in wide])
    ends = [one for one in plain.launches if results_of(one) <= set(plain.outputs)]
    first = [one for one in plain.launches if one not in ends]
    late = plan_memory(plain._replace(launches=(*first, *ends)))
    early = plan_memory(free_early(late))
    assert late.arena_bytes >= 4 * wide[0].nbytes
    assert early.arena_bytes < 2 * wide[0].nbytes


def results_of(launch: LoweredKernel) -> set[Node]:
    roles = zip(launch.buffers, launch.nest.parameters)
    return {node for node, parameter in roles if parameter.role != "read"}


def test_a_rerun_refuses_nothing() -> None:
    plain, _, _ = scheduled(GRAPHS["gathered"]())
    step = last_failure(plain.launches)
    launches = (*plain.launches, replace(plain.launches[step], is_rerun=True))
    assert step >= 0 and last_failure(launches) == step
