"""PyTorch's collectives that join values, and those on groups of some ranks, against NumPy."""

import warnings

import numpy as np

import metaop
import metaop.distributed as dist
from metaop.distributed import GroupMember, ReduceOp
from metaop.errors import ArgumentError, DistributedError, ShapeError

rank, ranks = dist.get_rank(), dist.get_world_size()

# Equal parts, then rank k sends k + j rows to rank j, of types that MPI does not know too.
for dtype in (metaop.float32, metaop.bfloat16, metaop.int64, metaop.complex64):
    value = (metaop.arange(2 * ranks * 3).reshape(2 * ranks, 3) + rank).to(dtype)
    found = metaop.zeros(2 * ranks, 3).to(dtype)
    work = dist.all_to_all_single(found, value, async_op=True)
    assert work.wait() and work.get_future().value()[0] is found
    whole = np.arange(2 * ranks * 3).reshape(2 * ranks, 3)
    expected = np.concatenate([whole[2 * rank : 2 * rank + 2] + k for k in range(ranks)])
    assert (found == metaop.tensor(expected).to(dtype)).all()
    sizes = [rank + k for k in range(ranks)]
    value = metaop.full((sum(sizes), 2), rank + 1).to(dtype)
    found = metaop.zeros(sum(sizes), 2).to(dtype)
    dist.all_to_all_single(found, value, sizes, sizes)
    assert (found == metaop.cat([metaop.full((rank + k, 2), k + 1) for k in range(ranks)])).all()

# Several tensors as one: small ones, and so many elements that they go through shared memory.
for sizes in ((3, 5), (70_001, 3)):
    for op, expected in (("sum", sum(range(ranks))), ("max", ranks - 1), ("avg", (ranks - 1) / 2)):
        values = [metaop.full((size, 2), float(rank)) for size in sizes]
        assert dist.all_reduce_coalesced(values, op) is None
        assert all((value == expected).all() for value in values), (sizes, op)
    lists = [[metaop.zeros(size, 2) for size in sizes] for _ in range(ranks)]
    given = [metaop.full((size, 2), float(10 * rank + k)) for k, size in enumerate(sizes)]
    future = dist.all_gather_coalesced(lists, given, async_op=True)
    assert len(future.wait()) == 2 * ranks
    for k, row in enumerate(lists):
        assert all((value == 10 * k + number).all() for number, value in enumerate(row))
value = metaop.full((2,), float(rank))
found = metaop.zeros(2 * ranks)
dist.all_gather_single(found, value)
assert (found == metaop.arange(ranks).repeat_interleave(2)).all()
dist.reduce_scatter_single(value, found)
assert (value == ranks * rank).all()

# Bits, of integers and booleans; factors of each rank; complex means.
bits = np.array([[0b1100 ^ k, 7 * k, k] for k in range(ranks)])
for size in (1, 50_000):
    for op, combine in (("BAND", np.bitwise_and), ("BOR", np.bitwise_or), ("BXOR", np.bitwise_xor)):
        for dtype in (metaop.int64, metaop.uint8, metaop.bool):
            there = bits.astype(dtype.numpy)
            value = metaop.tensor(there[rank]).repeat(size)
            dist.all_reduce(value, getattr(ReduceOp, op))
            expected = metaop.tensor(combine.reduce(there)).repeat(size)
            assert value.dtype is dtype and (value == expected).all(), (op, dtype)
        value = metaop.zeros(1, dtype=metaop.int64)
        parts = [metaop.tensor([3 * k + rank]) for k in range(ranks)]
        dist.reduce_scatter(value, parts, getattr(ReduceOp, op))
        assert value == int(combine.reduce([3 * rank + k for k in range(ranks)]))

# Booleans: a sum is "any", a product is "all".
flags = np.array([[True, k == 0, False] for k in range(ranks)])
for size in (1, 50_000):
    for op, combine in (("SUM", np.any), ("MAX", np.any), ("PRODUCT", np.all), ("MIN", np.all)):
        value = metaop.tensor(flags[rank]).repeat(size)
        dist.all_reduce(value, getattr(ReduceOp, op))
        expected = metaop.tensor(combine(flags, axis=0)).repeat(size)
        assert value.dtype is metaop.bool and (value == expected).all(), op
        value = metaop.zeros(1, dtype=metaop.bool)
        parts = [metaop.tensor([k != rank]) for k in range(ranks)]
        dist.reduce_scatter(value, parts, getattr(ReduceOp, op))
        assert value == combine([k != rank for k in range(ranks)]), op

# What is scattered may stack the outputs, and must be as large as all of them.
value = metaop.zeros(2, 3)
dist.reduce_scatter_tensor(value, metaop.arange(6.0 * ranks).reshape(ranks, 2, 3))
assert (value == ranks * (metaop.arange(6.0).reshape(2, 3) + 6 * rank)).all()
for wrong in (2 * ranks - 1, 2 * ranks + 1, 3 * ranks):
    try:
        dist.reduce_scatter_tensor(metaop.zeros(2), metaop.zeros(wrong))
    except metaop.errors.ShapeError:
        continue
    raise AssertionError(f"{wrong} elements were scattered into outputs of 2")

value = metaop.ones(3)
dist.all_reduce(value, ReduceOp.PREMUL_SUM(metaop.tensor(float(rank + 1))))
assert (value == ranks * (ranks + 1) / 2).all()
value = metaop.full((2,), complex(rank, 1))
dist.all_reduce(value, "avg")
assert (value == complex((ranks - 1) / 2, 1)).all()

# Groups of some ranks: the others do nothing, and are told so.
count = dist.get_pg_count()
mine, groups = dist.new_subgroups(1)
assert len(groups) == ranks and mine is groups[rank] and mine.size() == 1
assert dist.get_process_group_ranks(mine) == [rank] and dist.get_pg_count() == count + ranks
# MPI may number the ranks of a host in another order.
locally: list[int] = [0] * ranks
dist.all_gather_object(locally, dist.get_node_local_rank())
assert sorted(locally) == list(range(ranks))
pair = dist.new_group([0, 1], backend="gloo", group_desc="a pair")
mine, groups = dist.new_subgroups_by_enumeration([[1, 0], [2]] if ranks > 2 else [[1, 0]])
assert (pair is GroupMember.NON_GROUP_MEMBER) == (rank > 1) and mine.size() == (
    {0: 2, 1: 2, 2: 1}.get(rank, -1)
)
assert dist.get_rank(pair) == (rank if rank < 2 else -1)
assert dist.get_world_size(pair) == (2 if rank < 2 else -1)
value, found = metaop.ones(2), [metaop.zeros(2), metaop.zeros(2)]
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    dist.all_reduce(value, group=pair)
    dist.all_gather(found, value, pair)
    dist.broadcast(value * (rank + 1), group_src=1, group=pair)
    dist.monitored_barrier(pair, timeout=60.0)
assert (value == (2 if rank < 2 else 1)).all()
assert (found[1] == (2 if rank < 2 else 0)).all()
assert len(caught) == (0 if rank < 2 else 4), [one.message for one in caught]
if rank < 2:
    assert dist.get_global_rank(mine, 0) == 0 and dist.get_group_rank(mine, 1) == 1
    dist.reduce(value, group_dst=1, group=pair)
    assert (value == (4 if rank == 1 else 2)).all()
    dist.gather(value, found if rank == 1 else None, group_dst=1, group=pair)
    assert rank == 0 or (found[0] == 2).all()
    dist.scatter(value, found if rank == 1 else None, group_src=1, group=pair)
    assert (value == (2 if rank == 0 else 4)).all()

# A barrier that the last rank misses names it; when that rank comes after all, work goes on.
if rank == ranks - 1:
    for k in range(rank):
        dist.recv(metaop.zeros(1), k)
    dist.monitored_barrier()
else:
    try:
        dist.monitored_barrier(timeout=0.1, wait_all_ranks=True)
    except DistributedError as error:
        assert f"for rank {ranks - 1} in monitored_barrier" in str(error), error
        dist.send(metaop.ones(1), ranks - 1)
    else:
        raise AssertionError("a rank was missing")
value = metaop.ones(2)
dist.all_reduce(value)
assert (value == ranks).all()

# What cannot be meant is refused on all ranks, and nothing is left waiting.
half = metaop.ones(2 * ranks + 1)
for call, kind, text in (
    (lambda: dist.all_to_all_single(half, half), ShapeError, "pass input_split_sizes"),
    (
        lambda: dist.all_to_all_single(half, half, None, [1] * ranks),
        ShapeError,
        f"input_split_sizes are {[1] * ranks} for {2 * ranks + 1} rows",
    ),
    (
        lambda: dist.all_to_all_single(
            half[:ranks], half, None, [2 * ranks + 1] + [0] * (ranks - 1)
        ),
        ShapeError,
        "has room for",
    ),
    (lambda: dist.all_reduce(half, "band"), ArgumentError, "band of float32 on cpu"),
    (lambda: dist.all_reduce(half * 1j, "max"), ArgumentError, "max of complex64"),
    (lambda: dist.all_reduce_coalesced([half, half.double()]), ArgumentError, "of one type"),
    (lambda: dist.all_gather_coalesced([[half]] * (ranks + 1), [half]), ArgumentError, "a list of"),
    (lambda: dist.new_group([ranks]), ArgumentError, f"a group of the ranks [{ranks}] of {ranks}"),
    (lambda: dist.new_group([0, 0]), ArgumentError, "each once"),
    (lambda: dist.new_subgroups(ranks + 1), ArgumentError, "use a group_size that divides"),
    (lambda: dist.broadcast(half, 0, group_src=0), ArgumentError, "one rank is named twice"),
    (lambda: dist.broadcast(half, group_src=ranks), DistributedError, f"has no number {ranks}"),
    (lambda: dist.isend(half, ranks), DistributedError, f"rank {ranks} is not in the group"),
):
    try:
        call()
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(text)
dist.barrier()
