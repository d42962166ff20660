"""Predicts a plan on a cluster of any size: time, traffic and memory of one rank.

Kernels run one after another on a rank, and so do collectives on each link; a collective starts
when the kernel that makes its last source has ended, and a stage begins when the collectives before
it are done. Traffic and memory are counted as when the plan runs; times come from the model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

from metaop.dist.buckets import Bucket, buckets
from metaop.dist.cost import HOST, Cluster, collective_seconds, sent_bytes
from metaop.dist.local_graph import Place, local_stages
from metaop.dist.planned import dying_states, stage_goals
from metaop.dist.sbp import BROADCAST, mesh_shape, replaced
from metaop.dist.sharding_search import Plan, State
from metaop.unified_graph.node import Node, Shape

# The work of a local graph's program: see `codegen.estimate`.
Estimate = Callable[[Sequence[Node], Sequence[Node]], Any]


class Event(NamedTuple):
    """Something that a rank does, on its `lane`: compute, or the link of a mesh axis."""

    name: str
    lane: str
    start: float
    seconds: float
    nbytes: int


@dataclass
class Prediction:
    """One step on one rank: seconds, bytes sent, peak bytes held, and all events in order."""

    seconds: float = 0.0
    sent_bytes: int = 0
    peak_bytes: int = 0
    events: list[Event] = field(default_factory=list)

    def chrome_trace(self) -> str:
        """The timeline as JSON for chrome://tracing or https://ui.perfetto.dev."""
        lanes = list(dict.fromkeys(event.lane for event in self.events))
        names = [
            {"ph": "M", "name": "thread_name", "pid": 0, "tid": k, "args": {"name": lane}}
            for k, lane in enumerate(lanes)
        ]
        entries = [
            {
                "ph": "X",
                "name": event.name,
                "pid": 0,
                "tid": lanes.index(event.lane),
                "ts": 1e6 * event.start,
                "dur": 1e6 * event.seconds,
                "args": {"bytes": event.nbytes},
            }
            for event in self.events
        ]
        return json.dumps({"traceEvents": [*names, *entries]})

    def __str__(self) -> str:
        return (
            f"{1e3 * self.seconds:.3f} ms a step, {self.sent_bytes} bytes sent and at most "
            f"{self.peak_bytes} bytes held by a rank"
        )


def simulate(
    plan: Plan, estimate: Estimate, cluster: Cluster = HOST, place: Place | None = None
) -> Prediction:
    """Predicts what the rank at `place` of the mesh (by default the first) will do."""
    return _Simulation(plan, cluster, place or (0,) * len(plan.mesh)).run(estimate)


class _Simulation:
    def __init__(self, plan: Plan, cluster: Cluster, place: Place) -> None:
        self.plan, self.cluster, self.place = plan, cluster, place
        self.found = Prediction()
        self.now = 0.0
        self.links = [0.0] * len(plan.mesh)
        self.held: dict[State, int] = {}
        self.ready: dict[State, float] = {}

    def run(self, estimate: Estimate) -> Prediction:
        plan = self.plan
        for pair in zip(plan.inputs, plan.given):
            self._hold(pair)
        stages = local_stages(plan, self.place)
        dying = dying_states(plan)
        for k, (goals, stage) in enumerate(zip(stage_goals(plan), stages)):
            arena = 0
            if stage.outputs:
                work = estimate(stage.inputs, stage.outputs)
                arena = work.arena_bytes
                ends = [self.now, *(self._compute(kernel) for kernel in work.kernels)]
                for goal, last in zip(goals, work.finished_after):
                    self._hold(goal, ends[last])
            self._note(arena)
            for bucket in buckets(plan.boxes[k]):
                self._send(bucket)
            self._note(0)
            self.now = max([self.now, *self.links])
            for pair in dying[k]:
                del self.held[pair]
        self.found.seconds = self.now
        return self.found

    def _shape(self, pair: State) -> Shape:
        return mesh_shape(pair[0].shape, pair[1], self.plan.mesh, self.place)

    def _hold(self, pair: State, ready: float = 0.0) -> None:
        self.held[pair] = prod(self._shape(pair)) * pair[0].dtype.itemsize
        self.ready[pair] = ready

    def _note(self, arena: int) -> None:
        self.found.peak_bytes = max(self.found.peak_bytes, sum(self.held.values()) + arena)

    def _compute(self, kernel: Any) -> float:
        cluster = self.cluster
        seconds = cluster.launch + max(
            kernel.operations / cluster.flops, kernel.nbytes / cluster.memory_bandwidth
        )
        self.found.events.append(Event(kernel.name, "compute", self.now, seconds, kernel.nbytes))
        self.now += seconds
        return self.now

    def _send(self, bucket: Bucket) -> None:
        node, move = bucket.boxes[0]
        axis = move.axis
        shape = self._together(bucket)
        states = (move.source[axis], move.target[axis])
        ranks, itemsize = self.plan.mesh[axis], node.dtype.itemsize
        sent = sent_bytes(*states, shape, itemsize, ranks, self.place[axis])
        link = self.cluster.link(axis)
        seconds = collective_seconds(*states, shape, itemsize, ranks, link)
        ready = max(self.ready[box, moved.source] for box, moved in bucket.boxes)
        start = max(self.links[axis], ready)
        if seconds:
            name = f"{states[0]!r} -> {states[1]!r} {list(shape)}"
            self.found.events.append(Event(name, f"link {axis}", start, seconds, sent))
            self.links[axis] = start + seconds
        self.found.sent_bytes += sent
        for box, moved in bucket.boxes:
            self._hold((box, moved.target), start + seconds)

    def _together(self, bucket: Bucket) -> Shape:
        """The shape of what a line of ranks holds together; packed values form one row."""
        if bucket.is_packed:
            return (sum(prod(self._shape((n, move.source))) for n, move in bucket.boxes),)
        node, move = bucket.boxes[0]
        others = replaced(move.source, move.axis, BROADCAST)
        return mesh_shape(node.shape, others, self.plan.mesh, self.place)
