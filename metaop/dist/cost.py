"""The cost of computing and sending on a cluster: alpha-beta links and the rates of a device.

Times are in seconds, sizes in bytes. `sent_bytes` is exact, also for uneven blocks; a collective
that sends n messages in sequence pays n latencies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, log2, prod

from metaop.dist.sbp import Broadcast, Partial, Sbp, Split, block
from metaop.fusion.work import operations_of
from metaop.reduce.meta_op import Reduce
from metaop.unified_graph.node import Input, Node


@dataclass(frozen=True)
class Link:
    """A link between ranks: latency in seconds, and bandwidth of one rank in bytes per second."""

    latency: float = 5e-6
    bandwidth: float = 2e9


@dataclass(frozen=True)
class Cluster:
    """The rates of one rank's device, and the links along the axes of a mesh, outermost first.

    A mesh with more axes than `links` uses the last link for the others. `launch` is the time to
    start a kernel; `memory_price` is the price, in seconds, of holding a byte for a step, so that
    the smaller of two equally fast plans is chosen.
    """

    flops: float = 2e10
    memory_bandwidth: float = 1e10
    launch: float = 2e-6
    links: tuple[Link, ...] = (Link(),)
    memory_price: float = 5e-11

    def link(self, axis: int) -> Link:
        """The link along one mesh axis."""
        return self.links[min(axis, len(self.links) - 1)]


HOST = Cluster()


def is_local(source: Sbp, target: Sbp) -> bool:
    """Whether the ranks only slice out their blocks, which needs no communication."""
    return isinstance(source, Broadcast) and isinstance(target, Split)


def sent_bytes(
    source: Sbp, target: Sbp, shape: Sequence[int], itemsize: int, ranks: int, rank: int
) -> int:
    """The bytes that one rank of a mesh axis sends to reshard."""
    if source == target or isinstance(source, Broadcast) or isinstance(target, Partial):
        return 0
    total = prod(shape) * itemsize
    if isinstance(source, Split):
        extent = shape[source.axis]
        mine = _share(total, extent, _length(extent, ranks, rank))
        if isinstance(target, Broadcast):
            return mine * (ranks - 1)
        extent = shape[target.axis]
        return mine - _share(mine, extent, _length(extent, ranks, rank))
    if isinstance(target, Split):
        extent = shape[target.axis]
        return total - _share(total, extent, _length(extent, ranks, rank))
    # An all-reduce is a reduce-scatter in blocks of elements, and an all-gather of these blocks.
    mine = _length(prod(shape), ranks, rank) * itemsize
    return total - mine + mine * (ranks - 1)


def _length(extent: int, ranks: int, rank: int) -> int:
    start, stop = block(extent, ranks, rank)
    return stop - start


def _share(total: int, extent: int, part: int) -> int:
    return total // extent * part if extent else 0


def collective_seconds(
    source: Sbp, target: Sbp, shape: Sequence[int], itemsize: int, ranks: int, link: Link
) -> float:
    """The time of resharding along one mesh axis; 0 if nothing is sent."""
    sent = sent_bytes(source, target, shape, itemsize, ranks, 0)
    if not sent:
        return 0.0
    rounds = ceil(log2(ranks)) if ranks > 1 else 0
    if isinstance(source, Partial) and isinstance(target, Broadcast):
        rounds *= 2
    return rounds * link.latency + sent / link.bandwidth


@lru_cache(maxsize=1 << 16)
def work_of(node: Node) -> tuple[int, int]:
    """Floating-point operations of a node, and the bytes that it moves through memory.

    Reindexes and elementwise functions are fused into their readers: only inputs and the results of
    reductions go through memory, each written once and read once.
    """
    if isinstance(node.op, Reduce):
        return operations_of(node), 2 * node.nbytes
    return operations_of(node), node.nbytes if isinstance(node.op, Input) else 0
