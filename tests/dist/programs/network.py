"""Twenty steps of a convolutional network on global tensors, against one process."""

import sys
from pathlib import Path

import numpy as np

from metaop.distributed import get_rank, placement, sbp

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.dist.networks import train

everywhere = placement.all("cpu")
states = [(sbp.split(0), sbp.broadcast), (sbp.split(0), sbp.split(0))]
for data, weights in states:
    expected = train(None, data, weights, steps=20)
    np.testing.assert_allclose(train(everywhere, data, weights, steps=20), expected, rtol=1e-5)
print(f"rank {get_rank()} agrees")
