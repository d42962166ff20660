"""Plans that the search finds are run: twenty steps give the losses of one process."""

import sys
from pathlib import Path

import numpy as np

import metaop
from metaop.dist.search import auto_parallel
from metaop.distributed import distribute_tensor, get_rank, get_world_size, placement

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.dist.steps import (
    classifier,
    convolutional,
    mlp,
    training_step,
    transformer,
    transformer_shapes,
    wide_and_deep,
)

rank, ranks = get_rank(), get_world_size()
random = np.random.default_rng(0)


def normal(*shape):
    return (random.normal(size=shape) * 0.2).astype(np.float32)


def losses(step, arrays, count, where, states) -> list[float]:
    """The losses of twenty steps, on one process or with tensors sharded as `states`."""
    tensors = [metaop.tensor(array) for array in arrays]
    if where is not None:
        tensors = [distribute_tensor(x, where, s) for x, s in zip(tensors, states)]
    found = []
    for _ in range(20):
        *updated, loss = step(*tensors)
        tensors = [*(tensor.detach() for tensor in updated), *tensors[count:]]
        found.append(loss.item())
    return found


def check(loss, shapes, data, mesh) -> None:
    arrays = [*(normal(*shape) for shape in shapes), *data]
    count = len(shapes)
    step = training_step(loss, count)
    tensors = [metaop.tensor(array) for array in arrays]
    plan = auto_parallel(step, *tensors, ranks=mesh, updated=range(count))
    where = placement("cpu", ranks=np.arange(ranks).reshape(mesh))
    expected = losses(step, arrays, count, None, None)
    actual = losses(step, arrays, count, where, plan.given)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


row, mesh = (ranks,), (ranks // 2, 2)
images, classes = normal(8, 3, 8, 8), np.arange(8) % 5
check(mlp, [(10, 33), (33, 9)], [normal(21, 10), normal(21, 9)], row)
check(mlp, [(10, 33), (33, 9)], [normal(21, 10), normal(21, 9)], mesh)
check(convolutional, [(6, 3, 3, 3), (7, 6, 3, 3), (28, 5)], [images, classes], row)
check(transformer(4, 1), transformer_shapes(1, 16), [normal(4, 9, 16)] * 2, row)
check(classifier, [(12, 41)], [normal(9, 12), np.arange(9) * 4], row)
ids = random.integers(0, 50, (12, 3))
check(wide_and_deep, [(50, 4), (12, 8), (8, 1)], [ids, abs(normal(12, 1))], row)
print(f"rank {rank} agrees")
