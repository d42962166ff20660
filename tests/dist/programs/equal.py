"""Values that the ranks have in common are equal: those of the first rank, whatever others give."""

import numpy as np

import metaop
from metaop.distributed import (
    distribute_tensor,
    get_rank,
    get_world_size,
    global_mode,
    placement,
    sbp,
)
from metaop.errors import DistributedError

rank, ranks = get_rank(), get_world_size()
row = placement.all("cpu")
whole = np.arange(3 * ranks, dtype=np.float32)
own = metaop.tensor(whole + rank)


def check(found: metaop.Tensor, expected: np.ndarray) -> None:
    """All ranks have the expected value; each looks at its own part."""
    parts = metaop.distributed.process_group.world_group().communicator.allgather(
        found.detach().to_local().numpy()
    )
    together = np.concatenate(parts) if found.sbp == sbp.split(0) else np.stack(parts)
    np.testing.assert_array_equal(together, np.broadcast_to(expected, together.shape))


for lie in (sbp.broadcast, sbp.split(0)):
    check(distribute_tensor(own, row, lie), whole)
    check(metaop.tensor(whole + rank, placement=row, sbp=lie), whole)
    with global_mode(True, placement=row, sbp=lie):
        check(metaop.tensor(whole + rank), whole)
check(own.to_global(row, sbp.broadcast), whole)
check(own.to(row.device), whole)

# Gradients that the ranks make of what they have in common.
for cut in (metaop.Tensor.to_local, metaop.Tensor.full_tensor):
    x = distribute_tensor(own, row, sbp.broadcast).requires_grad_()
    (cut(x) * (rank + 1)).sum().backward()
    check(x.grad, np.ones_like(whole))
x = distribute_tensor(own, row, sbp.broadcast).requires_grad_()
(x.to_local(grad_sbp=sbp.partial_sum) * (rank + 1)).sum().backward()
check(x.grad.to_global(sbp=sbp.broadcast), np.full_like(whole, ranks * (ranks + 1) // 2))

# Local numbers among global tensors.
x = distribute_tensor(own, row, sbp.split(0))
check(x * metaop.ones(2).sum(), whole * 2)
numbers = metaop.tensor(np.float32(rank + 5)), metaop.tensor([rank, 5.0]).sum(), rank + 5.0
for factor in numbers:
    try:
        (x * factor).to_local()
    except DistributedError as error:
        assert "takes the number" in str(error)
    else:
        raise AssertionError("ranks with different numbers go on")

# On a mesh the ranks of a line along an axis that has the value whole.
if ranks == 4:
    mesh = placement("cpu", ranks=[[0, 1], [2, 3]])
    part = metaop.full((2,), float(rank))
    found = part.to_global(mesh, (sbp.split(0), sbp.broadcast))
    assert found.full_tensor().tolist() == [0, 0, 2, 2]
    assert found.to_local().tolist() == [rank // 2 * 2.0] * 2
    found = part.to_global(mesh, (sbp.broadcast, sbp.split(0)))
    assert found.to_local().tolist() == [rank % 2 * 1.0] * 2
print(f"rank {rank} agrees")
