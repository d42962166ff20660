"""A plan, compiled for the ranks of this process: local programs with collectives between them.

A collective starts as soon as the last kernel that produces its data is done, and makes progress
between the kernels that follow; the next stage waits for it. Every rank starts collectives in the
order of the plan, whatever the order of its kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from metaop.dist.boxing import Parts
from metaop.dist.buckets import Bucket, buckets, packed_move
from metaop.dist.local_graph import Stage, local_stages
from metaop.dist.mesh_world import MeshWorld, Moving
from metaop.dist.sbp import nd_text
from metaop.dist.sharding_search import Plan, State
from metaop.unified_graph.node import Node, topological

# Makes a local program from input and output nodes: see `codegen.backend.LocalProgram`.
Compile = Callable[[Sequence[Node], Sequence[Node]], Any]


class PlannedProgram:
    """Runs a plan; `peak_bytes` is the peak memory of a rank of this process in the last run."""

    def __init__(self, plan: Plan, world: MeshWorld, compile_local: Compile) -> None:
        self.plan = plan
        self.world = world
        self.buckets = [buckets(boxes) for boxes in plan.boxes]
        self.stages: dict[int, list[Stage]] = {}
        self.programs: dict[int, list[Any]] = {}
        for rank in world.owned:
            self.stages[rank] = local_stages(plan, world.place(rank))
            self.programs[rank] = [
                compile_local(stage.inputs, stage.outputs) if stage.outputs else None
                for stage in self.stages[rank]
            ]
        self.goals = stage_goals(plan)
        self.dying = dying_states(plan)
        self.peak_bytes = 0
        self._description = describe(plan)

    def run(self, arguments: Sequence[Parts], numbers: tuple = ()) -> list[Parts]:
        """Computes the parts of the outputs from those of the inputs, by rank.

        `numbers` are the arguments that every rank provides by itself.
        """
        self.world.verify(self._description, numbers)
        with self.world.memory.active():
            return self._run(arguments)

    def _run(self, arguments: Sequence[Parts]) -> list[Parts]:
        plan = self.plan
        self.peak_bytes = 0
        values: dict[State, Parts] = dict(zip(zip(plan.inputs, plan.given), arguments))
        for k, goals in enumerate(self.goals):
            sending = _Sending(self.buckets[k], self.world, values)
            for goal in goals:
                values[goal] = {}
            for rank in self.world.owned:
                self._compute(k, rank, goals, values, sending)
            self._note(values, k)
            sending.finish()
            self._note(values, None)
            for pair in self.dying[k]:
                del values[pair]
        return [values[pair] for pair in zip(plan.outputs, plan.states)]

    def _compute(
        self,
        k: int,
        rank: int,
        goals: Sequence[State],
        values: dict[State, Parts],
        sending: _Sending,
    ) -> None:
        program = self.programs[rank][k]
        if program is None:
            return
        sources = [values[pair][rank] for pair in self.stages[rank][k].sources]

        def ready(number: int, result: np.ndarray | None) -> None:
            if result is not None:
                values[goals[number]][rank] = result
            sending.progress()

        # Simulated ranks compute one after another, so no collective can overlap with kernels.
        overlaps = len(self.world.owned) == 1 and self.buckets[k]
        results = program(sources, ready) if overlaps else program(sources)
        for goal, result in zip(goals, results):
            values[goal][rank] = result

    def _note(self, values: dict[State, Parts], stage: int | None) -> None:
        for rank in self.world.owned:
            held = sum(parts[rank].nbytes for parts in values.values())
            program = None if stage is None else self.programs[rank][stage]
            arena = 0 if program is None else program.arena_bytes
            self.peak_bytes = max(self.peak_bytes, held + arena)


class _Sending:
    """The collectives after one stage, which start as their sources are computed."""

    def __init__(
        self, waiting: Sequence[Bucket], world: MeshWorld, values: dict[State, Parts]
    ) -> None:
        self.waiting = list(reversed(waiting))
        self.world, self.values = world, values
        self.moving: list[tuple[Bucket, Moving]] = []

    def progress(self) -> None:
        """Starts what can start, and lets MPI work on what is in progress."""
        for _, moving in self.moving:
            moving.is_done()
        while self.waiting and self._has_sources(self.waiting[-1]):
            bucket = self.waiting.pop()
            self.moving.append((bucket, self._started(bucket)))

    def finish(self) -> None:
        """Starts the rest and waits for all."""
        self.progress()
        for bucket, moving in self.moving:
            self._take(bucket, moving.result())

    def _has_sources(self, bucket: Bucket) -> bool:
        owned = len(self.world.owned)
        return all(
            len(self.values.get((node, move.source), ())) == owned for node, move in bucket.boxes
        )

    def _started(self, bucket: Bucket) -> Moving:
        parts = [self.values[node, move.source] for node, move in bucket.boxes]
        if not bucket.is_packed:
            node, move = bucket.boxes[0]
            return self.world.start(parts[0], move, node.shape)
        flat = {
            rank: np.concatenate([one[rank].reshape(-1) for one in parts])
            for rank in self.world.owned
        }
        return self.world.start(flat, packed_move(bucket, self.world.mesh), None)

    def _take(self, bucket: Bucket, result: Parts) -> None:
        if not bucket.is_packed:
            node, move = bucket.boxes[0]
            self.values[node, move.target] = result
            return
        for rank, flat in result.items():
            start = 0
            for node, move in bucket.boxes:
                like = self.values[node, move.source][rank]
                part = flat[start : start + like.size].reshape(like.shape)
                self.values.setdefault((node, move.target), {})[rank] = part
                start += like.size


def stage_goals(plan: Plan) -> list[list[State]]:
    """The states that each stage computes: those that no earlier stage has made."""
    known: set[State] = set(zip(plan.inputs, plan.given))
    found = []
    for goals, boxes in zip(plan.stages, plan.boxes):
        found.append([goal for goal in goals if goal not in known])
        known.update(goals)
        known.update((node, move.target) for node, move in boxes)
    return found


def dying_states(plan: Plan) -> list[list[State]]:
    """The states that nothing reads after each stage; inputs belong to the caller and stay."""
    place = (0,) * len(plan.mesh)
    last: dict[State, int] = {}
    for k, (goals, stage) in enumerate(zip(stage_goals(plan), local_stages(plan, place))):
        last.update(dict.fromkeys(goals, k))
        last.update(dict.fromkeys(stage.sources, k))
        for node, move in plan.boxes[k]:
            last[node, move.source] = last[node, move.target] = k
    kept = {*zip(plan.inputs, plan.given), *zip(plan.outputs, plan.states)}
    found: list[list[State]] = [[] for _ in plan.stages]
    for pair, k in last.items():
        if pair not in kept:
            found[k].append(pair)
    return found


def describe(plan: Plan) -> str:
    """What the ranks are about to compute and send; it must be the same on all of them."""
    lines = [
        f"input {node.dtype.name}{list(node.shape)} {nd_text(states)}"
        for node, states in zip(plan.inputs, plan.given)
    ]
    lines += [repr(node) for node in topological(plan.outputs)]
    for boxes in plan.boxes:
        for node, move in boxes:
            kind = f"{node.dtype.name}{list(node.shape)}"
            lines.append(f"{nd_text(move.source)}->{nd_text(move.target)} {kind}")
    return "\n".join(lines)
