"""The oracle of derived signatures: ranks simulated in one process against the logical result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from metaop.dist.boxing import assemble, shard
from metaop.dist.derivation import derive, text
from metaop.dist.mesh_world import SimulatedMesh
from metaop.dist.planned import PlannedProgram
from metaop.dist.sbp import Partial, Sbp
from metaop.dist.sharding_search import assign
from metaop.dist.trace import trace
from metaop.fusion.two_stages import with_short_scans
from metaop.fusion.unroll import unroll
from metaop.unified_graph.evaluation import evaluate
from metaop.unified_graph.node import Node, topological

# Sums of summands that are rounded one by one: some units in the last place of the larger ones.
TOLERANCES = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 0.15}
_MOST = 12


class _Oracle:
    """A local program that takes arrays of any type, because `deal` makes some of float64."""

    arena_bytes = 0

    def __init__(self, inputs: Sequence[Node], outputs: Sequence[Node]) -> None:
        self.outputs = with_short_scans(outputs)

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        return evaluate(self.outputs, list(arrays))


def check_signatures(function: Callable[..., Any], *tensors: Any, ranks: int) -> list[str]:
    """Runs every signature of `function` on simulated ranks; returns their texts."""
    inputs, outputs = trace(function, *tensors)
    # Numbers that the function takes along have no array of their own here.
    assert len(inputs) == len(tensors), "the oracle takes functions of tensors alone"
    return check_graph(inputs, outputs, [tensor.numpy() for tensor in tensors], ranks)


def check_graph(
    inputs: Sequence[Node], outputs: Sequence[Node], values: Sequence[np.ndarray], ranks: int
) -> list[str]:
    """Runs every signature of a graph on simulated ranks; returns their texts.

    Of very many signatures `_MOST` are drawn.
    """
    random = np.random.default_rng(0)
    # As the compiler does before it splits a graph.
    outputs = unroll(outputs)
    expected = evaluate(outputs, values)
    world = SimulatedMesh((ranks,))
    found = derive(inputs, outputs, ranks)
    tolerance = max(TOLERANCES.get(node.dtype.name, 1e-9) for node in topological(outputs))
    drawn = random.permutation(len(found))[:_MOST]
    for states, wanted in (found[k] for k in drawn):
        given, goals = ([(state,) for state in side] for side in (states, wanted))
        plan = assign(inputs, given, outputs, (ranks,), goals, boxing=False)
        program = PlannedProgram(plan, world, _Oracle)
        parts = [deal(value, state, ranks, random) for value, state in zip(values, states)]
        results = program.run(parts)
        for result, state, right in zip(results, wanted, expected):
            whole = assemble([result[rank] for rank in range(ranks)], state)
            wide = np.complex128 if np.iscomplexobj(right) else np.float64
            np.testing.assert_allclose(
                np.asarray(whole, wide),
                np.asarray(right, wide),
                rtol=tolerance,
                atol=tolerance,
                err_msg=text((states, wanted)),
            )
    assert not any(world.sent)
    return [text(entry) for entry in found]


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
