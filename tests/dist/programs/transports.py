"""Every collective of every transport against NumPy: messages, one host, several hosts."""

from __future__ import annotations

from functools import reduce

import ml_dtypes
import numpy as np

from metaop.dist.boxing import COMBINE
from metaop.dist.collectives import MPIWorld, mpi
from metaop.dist.packing import Packed, Packing
from metaop.dist.sbp import block
from metaop.dist.transports import HostTransport, Transport, over_hosts, transport_of

everyone = mpi().COMM_WORLD
rank, ranks = everyone.rank, everyone.size
world = MPIWorld(everyone)
# Less than a slot, several slots, and more than all slots of a rank.
SIZES = (0, 1, 77, 70_001, 300_007, 2_700_011)


def transports() -> list[Transport]:
    """Of one host; with more than two ranks also as if they were on two, alike and not."""
    chosen = transport_of(everyone)
    assert transport_of(everyone) is chosen and isinstance(chosen, HostTransport)
    here = everyone.Split_type(mpi().COMM_TYPE_SHARED)
    assert chosen.is_alone == (here.size == ranks)
    chosen.by_messages = False
    found = [Transport(everyone), chosen]
    for first in {ranks // 2, 1} if ranks > 2 and chosen.is_alone else ():
        host = everyone.Split(rank < first)
        found.append(over_hosts(everyone, host, min(first, ranks - first)))
        assert not found[-1].is_alone
    return found


def values(size: int, dtype: type) -> list[np.ndarray]:
    """What each rank has, the same numbers on all ranks."""
    random = np.random.default_rng(size)
    return [random.integers(-3, 4, size).astype(dtype) for _ in range(ranks)]


def counts_of(size: int) -> list[int]:
    return [stop - start for start, stop in (block(size, ranks, k) for k in range(ranks))]


def wait(request: object) -> None:
    world.wait(request, "a collective of the test")


def check_reductions(transport: Transport, size: int, dtype: type, op: str) -> None:
    given = values(size, dtype)
    expected = reduce(COMBINE[op], given)
    total = np.empty_like(expected)
    wait(transport.all_reduce(Packed.alone(given[rank]), total, op))
    np.testing.assert_array_equal(total, expected)
    counts = counts_of(size)
    mine = np.empty(counts[rank], dtype)
    wait(transport.reduce_scatter(given[rank], mine, counts, op))
    np.testing.assert_array_equal(mine, expected[slice(*block(size, ranks, rank))])


def check_moves(transport: Transport, size: int, dtype: type) -> None:
    whole = values(size, dtype)[0]
    mine = whole[slice(*block(size, ranks, rank))]
    found = np.empty_like(whole)
    wait(transport.all_gather(mine, found, counts_of(size)))
    np.testing.assert_array_equal(found, whole)
    for root in range(ranks):
        sent = whole.copy() if rank == root else np.zeros_like(whole)
        wait(transport.broadcast(sent, root))
        np.testing.assert_array_equal(sent, whole)
    # Part j of rank k has size + j + 2 k elements and is full of 10 k + j.
    sizes = [[size // ranks + j + 2 * k for j in range(ranks)] for k in range(ranks)]
    given = np.concatenate([np.full(n, 10 * rank + j, dtype) for j, n in enumerate(sizes[rank])])
    arriving = [sizes[k][rank] for k in range(ranks)]
    received = np.empty(sum(arriving), dtype)
    wait(transport.all_to_all(given, sizes[rank], received, arriving))
    wanted = [np.full(n, 10 * k + rank, dtype) for k, n in enumerate(arriving)]
    np.testing.assert_array_equal(received, np.concatenate(wanted))


def check_several_at_once(transport: Transport) -> None:
    """Packed arrays, a mean, and collectives that overlap and are finished in another order."""
    shapes = [(300, 7), (), (64,), (0, 3), (111_111,)]
    packing = Packing(shapes, np.dtype(np.float32))
    arrays = [np.full(shape, rank + 1 + k, np.float32) for k, shape in enumerate(shapes)]
    totals = [np.empty(packing.size, np.float32) for _ in range(4)]
    requests = [
        transport.all_reduce(Packed(packing, arrays), total, "add", 1 / ranks) for total in totals
    ]
    for request in reversed(requests):
        wait(request)
    for total in totals:
        for k, part in enumerate(packing.parts(total)):
            np.testing.assert_allclose(part, np.full(shapes[k], k + (ranks + 1) / 2), rtol=1e-6)


for transport in transports():
    for size in SIZES:
        check_reductions(transport, size, np.float32, "add")
        check_moves(transport, size, np.float32)
    for dtype, op in [
        (np.float64, "max"),
        (np.int64, "min"),
        (np.int32, "mul"),
        (np.bool_, "or"),
        (np.float16, "add"),
        (ml_dtypes.bfloat16, "add"),
    ]:
        check_reductions(transport, 300_007, dtype, op)
        check_moves(transport, 300_007, dtype)
    check_several_at_once(transport)
print(f"rank {rank} agrees")
