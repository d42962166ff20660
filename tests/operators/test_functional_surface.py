"""nn.functional offers PyTorch's functions with PyTorch's argument names, order and defaults."""

from __future__ import annotations

import inspect

import pytest

from metaop.nn import functional as F

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


def arguments(function) -> list[tuple[str, object]] | None:
    """Names and defaults in order, or None for what Python cannot look into."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return None
    if any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in parameters):
        return None
    return [(p.name, p.default) for p in parameters if not p.name.startswith("_")]


@pytest.mark.parametrize("name", NAMES)
def test_is_offered(name):
    assert callable(getattr(F, name))


@pytest.mark.parametrize("name", NAMES)
def test_arguments(name):
    expected, found = arguments(getattr(theirs, name)), arguments(getattr(F, name))
    if expected is None or found is None:
        pytest.skip("PyTorch's function does not tell its arguments")
    assert [argument for argument, _ in found] == [argument for argument, _ in expected]
    for (argument, default), (_, wanted) in zip(found, expected):
        if isinstance(wanted, float) and isinstance(default, float):
            assert default == pytest.approx(wanted), argument
        else:
            assert default == wanted, argument
