"""The pipeline runtime: actors act when their inputs are ready and their outputs have room.

An actor owns *registers*: copies of its result that consumers hold until they are done with them.
It acts while every input has a filled register and every output has a free one; then it notifies
its consumers and returns its inputs to their producers. Free registers are *credits*: if each
stage has one credit fewer than the previous one, a pipeline runs exactly one-forward-one-backward.
The clock here is simulated: `run` computes the schedule that processes follow (`follow`).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from metaop.errors import DistributedError


@dataclass
class Actor:
    """An actor that acts `count` times; each act takes `seconds` of `device`.

    `credits` limits how many of its results may wait or be in use. Of the ready actors of a
    device, the one with the highest `priority` acts first.
    """

    name: str
    device: int
    seconds: float
    count: int
    credits: int
    sources: list[Actor] = field(default_factory=list)
    priority: int = 0
    consumers: list[Actor] = field(default_factory=list, repr=False)
    # How often it has begun and finished; how many of its results each consumer has returned.
    begun: int = 0
    finished: int = 0
    returned: dict[str, int] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for source in self.sources:
            source.consumers.append(self)
            source.returned[self.name] = 0

    def in_use(self) -> int:
        """The number of registers that hold a result or are reserved for the one in progress."""
        return self.begun - min(self.returned.values(), default=self.finished)

    def is_ready(self) -> bool:
        """Whether the inputs have arrived and a register is free for the result."""
        if self.begun == self.count or self.in_use() >= self.credits:
            return False
        return all(source.finished > self.begun for source in self.sources)

    def reason(self) -> str:
        """Why the actor does not act, for the watchdog."""
        waits = [source.name for source in self.sources if source.finished <= self.begun]
        if waits:
            return f"{self.name} waits for {', '.join(waits)}"
        return f"{self.name} has no free register ({self.in_use()} of {self.credits} in use)"


@dataclass(frozen=True)
class Action:
    """One act of an actor."""

    actor: str
    device: int
    number: int
    start: float
    end: float


def run(actors: Sequence[Actor]) -> list[Action]:
    """Simulates the actors; returns all acts in the order in which they begin.

    Raises DistributedError, which lists the waiting actors, if none can act any more.
    """
    free_at: dict[int, float] = {actor.device: 0.0 for actor in actors}
    busy: list[tuple[float, int, Actor]] = []
    actions: list[Action] = []
    now, order = 0.0, 0
    while any(actor.finished < actor.count for actor in actors):
        for device in free_at:
            if free_at[device] > now:
                continue
            ready = [actor for actor in actors if actor.device == device and actor.is_ready()]
            if not ready:
                continue
            chosen = max(ready, key=lambda actor: actor.priority)
            end = now + chosen.seconds
            actions.append(Action(chosen.name, device, chosen.begun, now, end))
            chosen.begun += 1
            free_at[device] = end
            heapq.heappush(busy, (end, order, chosen))
            order += 1
        if not busy:
            waiting = [actor.reason() for actor in actors if actor.finished < actor.count]
            raise DistributedError(
                "no actor can act: " + "; ".join(waiting), fix="give the producers more credits"
            )
        now = busy[0][0]
        while busy and busy[0][0] == now:
            _, _, done = heapq.heappop(busy)
            done.finished += 1
            for source in done.sources:
                source.returned[done.name] += 1
    return actions


def pipeline(
    stages: int,
    batches: int,
    forward: float = 1.0,
    backward: float = 2.0,
    all_forwards_first: bool = False,
) -> list[Actor]:
    """The actors of a training step of `batches` micro-batches through `stages` stages.

    Stage `s` of `S` may hold the results of `S - s` forwards, as one-forward-one-backward needs.
    With `all_forwards_first`, each stage may hold all results, and backwards come last.
    """
    forwards: list[Actor] = []
    for s in range(stages):
        sources = [forwards[-1]] if forwards else []
        credits, priority = (batches, 2) if all_forwards_first else (stages - s, 0)
        forwards.append(Actor(f"forward {s}", s, forward, batches, credits, sources, priority))
    previous: list[Actor] = []
    actors = list(forwards)
    for s in reversed(range(stages)):
        sources = [forwards[s], *previous]
        actor = Actor(f"backward {s}", s, backward, batches, 2, sources, priority=1)
        previous = [actor]
        actors.append(actor)
    return actors


def peak_stash(actions: Sequence[Action], stage: int) -> int:
    """The largest number of micro-batches whose activations a stage keeps at once."""
    held = peak = 0
    for action in sorted(actions, key=lambda action: (action.start, action.actor)):
        if action.actor == f"forward {stage}":
            held += 1
            peak = max(peak, held)
        elif action.actor == f"backward {stage}":
            held -= 1
    return peak
