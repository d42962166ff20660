"""The oracle of derived signatures: ranks simulated in one process against the logical result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from metaop.codegen.reference import evaluate
from metaop.dist.assign import assign
from metaop.dist.boxing import assemble, shard
from metaop.dist.derivation import derive, text
from metaop.dist.mesh_world import SimulatedMesh
from metaop.dist.program import PlannedProgram
from metaop.dist.sbp import Partial, Sbp
from metaop.dist.trace import trace


def check_signatures(function: Callable[..., Any], *tensors: Any, ranks: int) -> list[str]:
    """Runs every signature of `function` on simulated ranks; returns their texts."""
    inputs, outputs = trace(function, *tensors)
    count = len(tensors)
    values = [tensor.numpy() for tensor in tensors]
    random = np.random.default_rng(0)
    # Numbers that the function takes along have no array of their own here.
    assert len(inputs) == count, "the oracle takes functions of tensors alone"
    expected = evaluate(outputs, values)
    world = SimulatedMesh((ranks,))
    found = derive(inputs, outputs, ranks)
    for states, wanted in found:
        given, goals = ([(state,) for state in side] for side in (states, wanted))
        plan = assign(inputs, given, outputs, (ranks,), goals, boxing=False)
        program = PlannedProgram(plan, world, local_program)
        parts = [deal(value, state, ranks, random) for value, state in zip(values, states)]
        results = program.run(parts)
        for result, state, right in zip(results, wanted, expected):
            whole = assemble([result[rank] for rank in range(ranks)], state)
            np.testing.assert_allclose(
                whole, right, rtol=1e-9, atol=1e-9, err_msg=text((states, wanted))
            )
    assert not any(world.sent)
    return [text(entry) for entry in found]


def local_program(inputs: Any, outputs: Any) -> Callable[[Any], Any]:
    """A graph run by the NumPy reference."""
    return lambda arguments: evaluate(outputs, list(arguments))


def deal(value: np.ndarray, state: Sbp, ranks: int, random: np.random.Generator) -> dict:
    """The value dealt to the ranks, partial values at random."""
    if not isinstance(state, Partial):
        return {rank: shard(value, state, ranks, rank) for rank in range(ranks)}
    if state.op != "add":
        sign = -1 if state.op == "max" else 1
        parts = [value + sign * random.uniform(0, 2, value.shape) for _ in range(ranks)]
        owner = random.integers(0, ranks, value.shape)
        return {k: np.where(owner == k, value, part) for k, part in enumerate(parts)}
    if value.dtype.kind == "f":
        parts = [random.normal(size=value.shape) for _ in range(ranks - 1)]
    else:
        parts = [random.integers(-9, 9, value.shape) for _ in range(ranks - 1)]
    parts.append(value - sum(parts))
    return {rank: part.astype(value.dtype) for rank, part in enumerate(parts)}
