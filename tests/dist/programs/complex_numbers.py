"""Complex numbers on several ranks: global tensors, averaged gradients and messages."""

import numpy as np

import metaop
from metaop import nn
from metaop.distributed import (
    all_gather,
    all_reduce,
    distribute_tensor,
    get_rank,
    get_world_size,
    placement,
    sbp,
)

rank, ranks = get_rank(), get_world_size()
everywhere = placement.all("cpu")
random = np.random.default_rng(3)
LEFT = random.normal(size=(9, 5, 2)) @ [1, 1j]
RIGHT = random.normal(size=(5, 9, 2)) @ [1, 1j]


def computed(dtype: type, state: sbp.Sbp | None) -> list[np.ndarray]:
    """A loss and its gradients, of local tensors where no state is given."""

    def placed(values: np.ndarray) -> metaop.Tensor:
        local = metaop.from_numpy(values.astype(dtype))
        if state is not None:
            local = distribute_tensor(local, everywhere, sbp.broadcast).to_global(sbp=state)
        return local.detach().requires_grad_()

    left, right = placed(LEFT), placed(RIGHT)
    loss = (left @ right).abs().sum() + (left.conj() * right.T).sum().imag
    loss = loss + (left.prod(0) * right.prod(1)).abs().sum()
    loss.backward()
    results = [loss, left.grad, right.grad, left.sum(0), left.real]
    return [(x if state is None else x.full_tensor()).detach().numpy() for x in results]


class Size(nn.Module):
    """The mean size of what a complex layer makes of rows."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 3, dtype=metaop.complex64)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return self.layer(x).abs().mean()


def weights(share: bool) -> np.ndarray:
    """A trained weight: of the whole batch in one model, or of shares of it."""
    metaop.manual_seed(0)
    own = Size()
    model = nn.parallel.DistributedDataParallel(own) if share else own
    optimizer = metaop.optim.SGD(model.parameters(), lr=0.1)
    rows = metaop.from_numpy(LEFT[:8].astype(np.complex64))
    for _ in range(5):
        loss = model(rows[rank::ranks] if share else rows)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return own.layer.weight.detach().numpy()


for dtype, tolerance in ((np.complex64, 1e-4), (np.complex128, 1e-10)):
    expected = computed(dtype, None)
    for state in (sbp.split(0), sbp.split(1), sbp.broadcast, sbp.partial_sum):
        for mine, one in zip(computed(dtype, state), expected, strict=True):
            np.testing.assert_allclose(mine, one, rtol=tolerance, atol=tolerance)
np.testing.assert_allclose(weights(True), weights(False), rtol=1e-5, atol=1e-6)
number = metaop.full((3,), rank + 1j, dtype=metaop.complex64)
gathered = [metaop.zeros(3, dtype=metaop.complex64) for _ in range(ranks)]
all_gather(gathered, number)
assert [x[0].item() for x in gathered] == [k + 1j for k in range(ranks)]
all_reduce(number)
assert number[0].item() == sum(range(ranks)) + ranks * 1j
