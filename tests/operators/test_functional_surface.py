"""nn.functional offers PyTorch's functions with PyTorch's argument names, order and defaults."""

from __future__ import annotations

import pytest

from metaop.nn import functional as F
from tests.parity.signatures import UNKNOWN, parameters

torch = pytest.importorskip("torch")
theirs = torch.nn.functional

# Helpers of PyTorch's own module, and kernels of single devices, are no part of the surface.
FOREIGN = {
    "assert_int_or_pair",
    "boolean_dispatch",
    "conv_tbc",
    "grouped_mm",
    "handle_torch_function",
    "has_torch_function",
    "has_torch_function_unary",
    "has_torch_function_variadic",
    "linear_cross_entropy",
    "native_channel_shuffle",
    "scaled_grouped_mm",
    "scaled_mm",
}
NAMES = sorted(
    name
    for name in dir(theirs)
    if name.islower()
    and not name.startswith("_")
    and callable(getattr(theirs, name))
    and name not in FOREIGN
)


# Some of PyTorch's functions tell their parameters neither to Python nor in their documentation.
TOLD = [name for name in NAMES if parameters(getattr(theirs, name)) is not None]


# Of these only the call tells that they take `out`.
UNTOLD_OUT = {"avg_pool2d", "avg_pool3d", "gelu", "hardshrink", "linear", "softplus", "softshrink"}


@pytest.mark.parametrize("name", NAMES)
def test_is_offered(name):
    assert callable(getattr(F, name))


@pytest.mark.parametrize("name", TOLD)
def test_arguments(name):
    expected, found = (
        {key: value for key, value in parameters(getattr(module, name)).items() if key[0] != "_"}
        for module in (theirs, F)
    )
    if name in UNTOLD_OUT:
        del found["out"]
    assert list(found) == list(expected)
    for argument, wanted in expected.items():
        if isinstance(wanted, float) and isinstance(found[argument], float):
            assert found[argument] == pytest.approx(wanted), argument
        elif wanted is not UNKNOWN:
            assert found[argument] == wanted, argument


def test_most_tell_their_arguments():
    assert len(TOLD) > 0.9 * len(NAMES)
