"""Following the schedule of actors on processes: one rank acts, sends and waits.

`actor.run` has simulated the order in which the actors of a device act, and every rank follows it.
So all ranks run the collectives inside acts in one order, no more registers are in use than in the
simulation, and nothing can deadlock that did not deadlock there.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from metaop.dist.actor import Action, Actor
from metaop.dist.collectives import MPIWorld
from metaop.dist.memory import HOST_MEMORY, Memory
from metaop.dist.nccl import NcclTransport
from metaop.dist.pairs import pair_of
from metaop.dist.point_to_point import Arrays, Edge, PointToPoint

# An act: maps its number and the results of its sources, by name, to its result.
# Arrays are in host memory or in the memory of the rank.
Work = Callable[[int, Mapping[str, Sequence[Any]]], Sequence[Any]]


class Home(NamedTuple):
    """The rank that acts for a device of a schedule, by its number in the job, and its memory."""

    rank: int
    type: str


class Follower:
    """The actors of one rank: `ranks[device]` of a world acts for a device of the schedule.

    Results in `memory` go from GPU to GPU if `homes` is given and says that both ends of an edge
    have a GPU.
    """

    def __init__(
        self,
        actors: Sequence[Actor],
        ranks: Sequence[int],
        world: MPIWorld,
        memory: Memory = HOST_MEMORY,
        homes: Sequence[Home] = (),
    ) -> None:
        self.actors = {actor.name: actor for actor in actors}
        self.ranks = list(ranks)
        self.world = world
        self.memory, self.homes = memory, list(homes)
        self.edges = [(source, actor) for actor in actors for source in actor.sources]
        self.numbers = {(s.name, a.name): number for number, (s, a) in enumerate(self.edges)}
        self.device = self.ranks.index(world.rank)

    def edge_from(self, source: Actor, actor: Actor) -> Edge:
        """The edge by which `actor` of this rank gets the result of `source`."""
        return self.ranks[source.device], self.numbers[source.name, actor.name]

    def run(self, schedule: Sequence[Action], work: Mapping[str, Work]) -> list[Action]:
        """Acts according to the schedule; returns what this rank did, in seconds since the start.

        `work` has the actors of this device. Raises DistributedError on all ranks if their
        schedules differ, and on this rank if an input does not arrive within
        METAOP_TIMEOUT_SECONDS.
        """
        order = "\n".join(f"{a.actor} number {a.number} on {a.device}" for a in schedule)
        self.world.agree(order, "schedules")
        mine = [action for action in schedule if action.device == self.device]
        incoming = [
            self.edge_from(source, actor)
            for actor in self.actors.values()
            for source in actor.sources
            if actor.device == self.device != source.device
        ]
        held: dict[tuple[str, str, int], Sequence[Any]] = {}
        done = []
        links = self._links()
        started = time.perf_counter()
        with PointToPoint(self.world.communicator, incoming, links, self.memory) as channel:
            for action in mine:
                actor = self.actors[action.actor]
                inputs = {
                    source.name: held.pop((source.name, actor.name, action.number))
                    if source.device == self.device
                    else self._receive(channel, source, actor, action.number)
                    for source in actor.sources
                }
                begun = time.perf_counter() - started
                result = work[actor.name](action.number, inputs)
                ended = time.perf_counter() - started
                done.append(Action(actor.name, self.device, action.number, begun, ended))
                for consumer in actor.consumers:
                    if consumer.device == self.device:
                        held[actor.name, consumer.name, action.number] = result
                    else:
                        edge = (
                            self.ranks[consumer.device],
                            self.numbers[actor.name, consumer.name],
                        )
                        channel.send(edge, action.number, result)
        return done

    def _links(self) -> dict[Edge, MPIWorld]:
        """The worlds that carry arrays over the edges between this rank's GPU and others.

        Every edge has its own link, so one that waits for its receiver does not delay the others.
        All ranks create their links in one global order, so both ends of a link create it together.
        """
        found: dict[Edge, MPIWorld] = {}
        ways: Counter[tuple[int, int]] = Counter()
        for source, actor in self.edges if self.homes else ():
            ends = self.homes[source.device], self.homes[actor.device]
            if source.device == actor.device or {end.type for end in ends} != {"cuda"}:
                continue
            first, second = ends[0].rank, ends[1].rank
            ways[first, second] += 1
            if self.device in (source.device, actor.device):
                link = pair_of(first, second, self.memory, ways[first, second])
                if isinstance(link.transport, NcclTransport):
                    other = actor if self.device == source.device else source
                    number = self.numbers[source.name, actor.name]
                    found[self.ranks[other.device], number] = link
        return found

    def _receive(self, channel: PointToPoint, source: Actor, actor: Actor, number: int) -> Arrays:
        edge = self.edge_from(source, actor)
        found: list[Arrays] = []

        def is_there() -> bool:
            arrays = channel.take(edge, number)
            found.extend([] if arrays is None else [arrays])
            return bool(found)

        what = f"{actor.name!r} number {number} for {source.name!r} of rank {edge[0]}"
        self.world.watchdog.wait_for([edge[0]], is_there, what)
        return found[0]
