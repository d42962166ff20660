"""PyTorch's reductions of local tensors, of types and sizes of all kinds."""

import numpy as np

import metaop
import metaop.distributed as dist

rank, ranks = dist.get_rank(), dist.get_world_size()
given = np.arange(ranks) + 2
EXPECTED = {
    "sum": given.sum(),
    "avg": given.mean(),
    "max": given.max(),
    "min": given.min(),
    "prod": given.prod(),
}
TYPES = (metaop.float32, metaop.float64, metaop.float16, metaop.bfloat16, metaop.int64)

# Scalars, messages, and several rounds in the window of a host.
for shape in ((), (5,), (3, 70_001)):
    for dtype in TYPES:
        for op, expected in EXPECTED.items():
            value = metaop.full(shape, rank + 2).to(dtype)
            dist.all_reduce(value, op)
            wanted = int(expected) if dtype is metaop.int64 else float(expected)
            assert (value.to(metaop.float64) == wanted).all(), (shape, dtype, op)

for size in (5, 200_003):
    part = metaop.zeros(size + rank)
    dist.reduce_scatter(part, [metaop.full((size + k,), float(k + rank)) for k in range(ranks)])
    assert (part == sum(rank + k for k in range(ranks))).all()
    part = metaop.zeros(size)
    dist.reduce_scatter_tensor(part, metaop.arange(size * ranks).float(), "avg")
    assert (part == metaop.arange(rank * size, (rank + 1) * size).float()).all()
