"""Special functions near their zeros and in their tails, where relative errors show."""

from __future__ import annotations

import numpy as np
import pytest

import metaop

torch = pytest.importorskip("torch")

_SMALL = np.concatenate([[0.0], np.logspace(-30, -3, 28), np.linspace(0.002, 12, 200)])
_BOTH = np.concatenate([-_SMALL[:0:-1], _SMALL])
_PROBABILITIES = np.concatenate(
    [[0.0, 0.074, 0.075, 0.5, 0.925, 1.0, -1.0, 2.0], np.logspace(-30, -1.2, 60)]
)
POINTS = {
    "i0": _BOTH, "i0e": _BOTH, "i1": _BOTH, "i1e": _BOTH, "erfcx": _BOTH, "log_ndtr": _BOTH,
    "modified_bessel_i1": _BOTH, "modified_bessel_k1": _SMALL[1:], "ndtri": _PROBABILITIES,
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", POINTS)
def test_relative_errors(name: str, dtype: str) -> None:
    given = torch.tensor(POINTS[name], dtype=getattr(torch, dtype))
    wanted = getattr(torch.special, name)(given.double()).to(given.dtype).numpy()
    actual = getattr(metaop.special, name)(metaop.from_numpy(given.numpy())).numpy()
    # Exponentials multiply the error of their argument, which is up to 72 here.
    np.testing.assert_allclose(actual, wanted, rtol=100 * np.finfo(dtype).eps, atol=0)


def test_gradients_of_the_inverse_normal_distribution() -> None:
    found = []
    for lib in (metaop, torch):
        x = lib.tensor(_PROBABILITIES, requires_grad=True)
        lib.special.ndtri(x).sum().backward()
        found.append(x.grad.numpy())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-11)
