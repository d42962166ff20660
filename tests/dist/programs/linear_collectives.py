"""Gradients through collectives: of a sum over all ranks, against what the definitions give."""

import numpy as np

import metaop
import metaop.distributed as dist
from metaop.distributed.nn import functional as F
from metaop.errors import ArgumentError

rank, ranks = dist.get_rank(), dist.get_world_size()
random = np.random.default_rng(3)


def values(*shape: int) -> list[np.ndarray]:
    """What the ranks have."""
    return [random.standard_normal(shape) for _ in range(ranks)]


def given(array: np.ndarray) -> metaop.Tensor:
    return metaop.tensor(array, requires_grad=True)


def check(found: metaop.Tensor, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found.detach().cpu().numpy(), expected, rtol=1e-12, atol=1e-12)


# The objective is the sum over the ranks of w_k * y_k: its gradient in x_k is the adjoint of w.
x, w = values(4, 3), values(4, 3)
mine = given(x[rank])
for op, factor in (("sum", 1.0), ("avg", 1 / ranks)):
    mine.grad = None
    y = F.all_reduce(mine, op)
    check(y, sum(x) * factor)
    (y * metaop.tensor(w[rank])).sum().backward()
    check(mine.grad, sum(w) * factor)

    mine.grad = None
    y = F.reduce(mine, 1, op)
    check(y, sum(x) * factor if rank == 1 else np.zeros((4, 3)))
    (y * metaop.tensor(w[rank])).sum().backward()
    check(mine.grad, w[1] * factor)

mine.grad = None
y = F.broadcast(mine, 1)
check(y, x[1])
(y * metaop.tensor(w[rank])).sum().backward()
check(mine.grad, sum(w) if rank == 1 else np.zeros((4, 3)))

# Lists: weights[k][j] is what rank k has for entry j.
weights = [values(4, 3) for _ in range(ranks)]
inputs = [values(4, 3) for _ in range(ranks)]


def objective(parts: tuple[metaop.Tensor, ...]) -> metaop.Tensor:
    return sum((part * metaop.tensor(w)).sum() for part, w in zip(parts, weights[rank]))


mine.grad = None
parts = F.all_gather(mine)
for part, expected in zip(parts, x):
    check(part, expected)
objective(parts).backward()
check(mine.grad, sum(row[rank] for row in weights))

mine.grad = None
parts = F.gather(mine, 1)
for part, expected in zip(parts, x):
    check(part, expected if rank == 1 else np.zeros((4, 3)))
objective(parts).backward()
check(mine.grad, weights[1][rank])

row = [given(one) for one in inputs[rank]]
y = F.scatter(row, 1)
check(y, inputs[1][rank])
(y * metaop.tensor(w[rank])).sum().backward()
for k, one in enumerate(row):
    check(one.grad, w[k] if rank == 1 else np.zeros((4, 3)))

for op, factor in (("sum", 1.0), ("avg", 1 / ranks)):
    row = [given(one) for one in inputs[rank]]
    output = metaop.zeros(4, 3).double()
    y = F.reduce_scatter(output, row, op)
    check(y, sum(one[rank] for one in inputs) * factor)
    check(output, sum(one[rank] for one in inputs) * factor)
    (y * metaop.tensor(w[rank])).sum().backward()
    for k, one in enumerate(row):
        check(one.grad, w[k] * factor)

# Parts of different sizes: rank k has k + j + 1 rows for rank j.
pieces = [[random.standard_normal((k + j + 1, 2)) for j in range(ranks)] for k in range(ranks)]
factors = [[random.standard_normal((k + j + 1, 2)) for j in range(ranks)] for k in range(ranks)]
row = [given(piece) for piece in pieces[rank]]
outputs = [metaop.zeros(k + rank + 1, 2).double() for k in range(ranks)]
parts = F.all_to_all(outputs, row)
for k, part in enumerate(parts):
    check(part, pieces[k][rank])
    check(outputs[k], pieces[k][rank])
sum((part * metaop.tensor(f)).sum() for part, f in zip(parts, factors[rank])).backward()
for k, one in enumerate(row):
    check(one.grad, factors[k][rank])

whole = given(np.concatenate(pieces[rank]))
sizes = [k + rank + 1 for k in range(ranks)]
output = metaop.zeros(sum(sizes), 2).double()
y = F.all_to_all_single(output, whole, sizes, sizes)
check(y, np.concatenate([piece[rank] for piece in pieces]))
check(output, np.concatenate([piece[rank] for piece in pieces]))
(y * metaop.tensor(np.concatenate(factors[rank]))).sum().backward()
check(whole.grad, np.concatenate([one[rank] for one in factors]))

# Gradients of gradients: the objective is cubic in what is reduced.
mine.grad = None
(slope,) = metaop.autograd.grad((F.all_reduce(mine) ** 3).sum(), mine, create_graph=True)
check(slope, 3 * ranks * sum(x) ** 2)
slope.sum().backward()
check(mine.grad, 6 * ranks**2 * sum(x))

# A group of some ranks, and a reduction without a gradient.
pair = dist.new_group([0, 1])
if rank < 2:
    mine.grad = None
    F.all_reduce(mine * 2, group=pair).sum().backward()
    check(mine.grad, np.full((4, 3), 4.0))
check(F.all_reduce(mine.detach(), "max"), np.max(x, 0))
try:
    F.all_reduce(mine, "max")
except ArgumentError as error:
    assert "no gradient for the reduction 'max'" in str(error)
else:
    raise AssertionError("a gradient of a maximum")
dist.barrier()
