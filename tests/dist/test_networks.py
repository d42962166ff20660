"""Networks of modules on simulated ranks: the losses of one device, dropout included."""

from __future__ import annotations

import numpy as np
import pytest

from metaop.dist.placement import Placement
from metaop.dist.sbp import BROADCAST, Sbp, Split
from tests.dist.networks import train


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize(
    ("data", "weights"),
    [(Split(0), BROADCAST), (BROADCAST, Split(0)), (Split(0), Split(0)), (BROADCAST, Split(1))],
)
def test_losses_are_those_of_one_device(ranks: int, data: Sbp, weights: Sbp) -> None:
    placement = Placement("cpu", range(ranks), simulate=True)
    expected = train(None, data, weights)
    np.testing.assert_allclose(train(placement, data, weights), expected, rtol=1e-5)
