"""PyTorch's collectives on GPU tensors of all types, against NumPy; nothing goes by the host."""

import numpy as np

import metaop
import metaop.distributed as dist
from metaop.dist.memory import GpuMemory, memory_of
from metaop.dist.nccl import NcclTransport
from metaop.errors import ArgumentError
from metaop.unified_graph import dtype as dtypes

rank, ranks = dist.get_rank(), dist.get_world_size()
device = metaop.device("cuda")
assert device.index == rank and dist.is_nccl_available()
others = [k for k in range(ranks) if k != rank]


def given(k: int, shape: tuple[int, ...], dtype: dtypes.DType) -> np.ndarray:
    """What rank k has: small whole numbers, so that every type combines them exactly."""
    values = np.random.default_rng(k).integers(0, 2 if dtype is metaop.bool else 4, shape)
    return values.astype(dtype.numpy)


def there(values: np.ndarray, dtype: dtypes.DType) -> metaop.Tensor:
    wide = np.float32 if dtype is metaop.bfloat16 else values.dtype
    return metaop.tensor(values.astype(wide), dtype=dtype, device=device)


def check(tensor: metaop.Tensor, expected: np.ndarray, what: object) -> None:
    assert tensor.device == device, what
    found = tensor.detach().cpu().to(metaop.float64).numpy()
    np.testing.assert_array_equal(found, np.asarray(expected, np.float64), err_msg=str(what))


# Copies to the host would be counted here.
read = GpuMemory.get
GpuMemory.get = None  # type: ignore[method-assign, assignment]
for dtype in dtypes.ALL:
    for shape in ((), (5, 3)):
        all_values = [given(k, shape, dtype) for k in range(ranks)]
        stacked = np.stack(all_values).astype(np.float64)
        sums = {"sum": stacked.sum(0), "max": stacked.max(0), "min": stacked.min(0)}
        sums["prod"] = stacked.prod(0)
        if dtype is metaop.bool:
            sums["sum"] = sums["max"]
        for op, expected in sums.items():
            value = there(all_values[rank], dtype)
            dist.all_reduce(value, op)
            check(value, expected, (op, dtype))
        value = there(all_values[rank], dtype)
        dist.reduce(value, 1)
        check(value, sums["sum"] if rank == 1 else all_values[rank], ("reduce", dtype))
        value = there(all_values[rank], dtype)
        dist.broadcast(value, 1)
        check(value, all_values[1], ("broadcast", dtype))
        places = [there(np.zeros_like(one), dtype) for one in all_values]
        dist.all_gather(places, there(all_values[rank], dtype))
        for place, expected in zip(places, all_values):
            check(place, expected, ("all_gather", dtype))
    rows = [given(k, (2 * ranks, 3), dtype) for k in range(ranks)]
    whole = there(np.zeros((2 * ranks * ranks, 3)).astype(dtype.numpy), dtype)
    dist.all_gather_into_tensor(whole, there(rows[rank], dtype))
    check(whole, np.concatenate(rows), ("all_gather_into_tensor", dtype))
    total = np.stack(rows).astype(np.float64).sum(0)
    total = total > 0 if dtype is metaop.bool else total
    part = there(np.zeros((2, 3)).astype(dtype.numpy), dtype)
    dist.reduce_scatter_tensor(part, there(rows[rank], dtype))
    check(part, total[2 * rank : 2 * rank + 2], ("reduce_scatter_tensor", dtype))
    # Blocks of different sizes: rank k has k + 1 rows for rank j, and so on.
    pieces = [given(10 * rank + j, (rank + 1, j + 1), dtype) for j in range(ranks)]
    places = [there(np.zeros((k + 1, rank + 1)).astype(dtype.numpy), dtype) for k in range(ranks)]
    dist.all_to_all(places, [there(piece, dtype) for piece in pieces])
    for k, place in enumerate(places):
        check(place, given(10 * k + rank, (k + 1, rank + 1), dtype), ("all_to_all", dtype))
    value = there(given(rank, (3,), dtype), dtype)
    if rank == 0:
        dist.send(value, 1)
        dist.recv(value, 1, tag=3)
    elif rank == 1:
        before = value.clone()
        assert dist.recv(value) == 0
        dist.send(before, 0, tag=3)
    if rank < 2:
        check(value, given(1 - rank, (3,), dtype), ("send", dtype))

value = metaop.full((4,), float(rank), device=device)
dist.all_reduce(value, "avg")
check(value, np.full(4, np.arange(ranks).mean()), "avg")
part = metaop.zeros(rank + 1, device=device)
dist.reduce_scatter(part, [metaop.full((k + 1,), k + rank, device=device) for k in range(ranks)])
check(part, np.full(rank + 1, sum(rank + k for k in range(ranks))), "uneven reduce_scatter")
# Views, and values that have not been computed yet.
value = (metaop.arange(6, device=device).reshape(2, 3).T * (rank + 1))[1:]
dist.all_reduce(value)
check(value, np.arange(6).reshape(2, 3).T[1:] * sum(k + 1 for k in range(ranks)), "view")
places = [metaop.zeros(3, device=device) for _ in range(ranks)]
dist.gather(value[0, 0] * metaop.ones(3, device=device), places if rank == 0 else None)
if rank == 0:
    for place in places:
        check(place, np.full(3, sum(k + 1 for k in range(ranks))), "gather")
parts = [metaop.full((2,), float(rank), device=device), metaop.full((1,), 1.0, device=device)]
dist.all_reduce_coalesced(parts)
check(parts[0], np.full(2, sum(range(ranks))), "all_reduce_coalesced")
lists = [[metaop.zeros(2, device=device), metaop.zeros(1, device=device)] for _ in range(ranks)]
dist.all_gather_coalesced(lists, parts)
check(lists[1][1], np.full(1, ranks), "all_gather_coalesced")
sizes = [rank + k for k in range(ranks)]
sent, part = (metaop.full((sum(sizes), 2), float(rank), device=device) for _ in range(2))
dist.all_to_all_single(part, sent, sizes, sizes)
expected = np.repeat(np.arange(ranks), sizes)[:, None].repeat(2, 1)
check(part, expected, "all_to_all_single")
sent = metaop.full((2,), 2.0, device=device)
dist.all_reduce(sent, dist.ReduceOp.PREMUL_SUM(0.5))
check(sent, np.full(2, ranks), "PREMUL_SUM")
try:
    dist.all_reduce(sent.int(), "band")
except ArgumentError as error:
    assert "NCCL combines no bits" in str(error), error
else:
    raise AssertionError("bits on a GPU")
part = metaop.zeros(2, device=device)
dist.scatter(
    part, [metaop.full((2,), float(k), device=device) for k in range(ranks)] if rank == 0 else None
)
check(part, np.full(2, rank), "scatter")
GpuMemory.get = read  # type: ignore[method-assign]

# Messages that do not block go through host memory, also to a `recv` and from a `send`.
sent, part = metaop.full((4,), float(rank), device=device), metaop.zeros(4, device=device)
after, before = (rank + 1) % ranks, (rank - 1) % ranks
operations = [dist.P2POp(dist.isend, sent, after), dist.P2POp(dist.irecv, part, before)]
for work in dist.batch_isend_irecv(operations):
    work.wait()
check(part, np.full(4, before), "batch_isend_irecv")
if rank == 0:
    dist.isend(sent + 7, 1).wait()
    dist.send(sent + 8, 1)
elif rank == 1:
    assert dist.recv(part, 0) == 0
    check(part, np.full(4, 7), "recv of an isend")
    work = dist.irecv(part, 0)
    assert work.wait()
    check(part, np.full(4, 8), "irecv of a send")

# From a GPU to a host and back.
here = metaop.zeros(3, device="cpu")
if rank == 0:
    dist.send(metaop.ones(3, device=device), 1)
    dist.recv(value[0], 1)
    assert value[0].tolist() == [2, 2]
elif rank == 1:
    dist.recv(here, 0)
    assert here.tolist() == [1.0, 1.0, 1.0]
    dist.send(metaop.full((2,), 2, device="cpu"), 0)
transport = dist.group.WORLD.world.transport_at(memory_of(device))
assert isinstance(transport, NcclTransport)
print(f"rank {rank} agrees")
