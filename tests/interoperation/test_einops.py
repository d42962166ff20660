"""einops on metaop's tensors against einops on NumPy's arrays and PyTorch's tensors."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import metaop
from metaop import nn
from tests.helpers import check_derivatives

einops = pytest.importorskip("einops")
ours = pytest.importorskip("metaop.einops")

VALUES = np.random.default_rng(0).standard_normal((2, 6, 4, 3))

PATTERNS: list[tuple[str, dict[str, int]]] = [
    ("b h w c -> b c h w", {}),
    ("b h w c -> (b h) (c w)", {}),
    ("b (h k) w c -> b h (k c) w", {"k": 2}),
    ("(x y) ... c -> ... (c x) y", {"x": 2}),
    ("b (h h2) (w w2) c -> (h2 b) h w (c w2)", {"h2": 3, "w2": 2}),
]


@pytest.mark.parametrize(("pattern", "lengths"), PATTERNS)
def test_rearrange(pattern: str, lengths: dict[str, int]) -> None:
    wanted = einops.rearrange(VALUES, pattern, **lengths)
    found = einops.rearrange(metaop.tensor(VALUES), pattern, **lengths)
    np.testing.assert_array_equal(found.numpy(), wanted)
    layer = ours.Rearrange(pattern, **lengths)
    np.testing.assert_array_equal(layer(metaop.tensor(VALUES)).numpy(), wanted)
    check_derivatives(lambda x: einops.rearrange(x, pattern, **lengths), VALUES)


@pytest.mark.parametrize("reduction", ["min", "max", "sum", "mean", "prod"])
def test_reduce(reduction: Any) -> None:
    pattern = "b (h k) w c -> b h c"
    wanted = einops.reduce(VALUES, pattern, reduction, k=2)
    np.testing.assert_allclose(
        einops.reduce(metaop.tensor(VALUES), pattern, reduction, k=2).numpy(), wanted, rtol=1e-12
    )
    layer = nn.Sequential(ours.Reduce(pattern, reduction, k=2))
    np.testing.assert_allclose(layer(metaop.tensor(VALUES)).numpy(), wanted, rtol=1e-12)


def test_any_and_all() -> None:
    mask = VALUES > 0.5
    for reduction in ("any", "all"):
        found = einops.reduce(metaop.tensor(mask), "b h w c -> b w", reduction)
        np.testing.assert_array_equal(found.numpy(), getattr(mask, reduction)((1, 3)))


def test_repeat_einsum_pack_and_lists() -> None:
    tensor = metaop.tensor(VALUES)
    pattern = "b h w c -> b (h k) w c n"
    np.testing.assert_array_equal(
        ours.repeat(tensor, pattern, k=2, n=3).numpy(), einops.repeat(VALUES, pattern, k=2, n=3)
    )
    other = VALUES[0, 0]
    pattern = "b h w c, w d -> b d h c"
    np.testing.assert_allclose(
        einops.einsum(tensor, metaop.tensor(other), pattern).numpy(),
        einops.einsum(VALUES, other, pattern),
        rtol=1e-12,
    )
    packed, shapes = einops.pack([tensor, tensor[:, :, 0]], "b h *")
    np.testing.assert_array_equal(
        packed.numpy(), einops.pack([VALUES, VALUES[:, :, 0]], "b h *")[0]
    )
    first, second = einops.unpack(packed, shapes, "b h *")
    np.testing.assert_array_equal(first.numpy(), VALUES)
    np.testing.assert_array_equal(second.numpy(), VALUES[:, :, 0])
    listed = einops.rearrange([tensor, tensor + 1], "n b h w c -> b n h w c")
    np.testing.assert_array_equal(listed[:, 1].numpy(), VALUES + 1)
    assert einops.parse_shape(tensor, "b _ w c") == {"b": 2, "w": 4, "c": 3}
    np.testing.assert_array_equal(einops.asnumpy(tensor), VALUES)


def test_mixing_layers_are_those_for_pytorch() -> None:
    torch = pytest.importorskip("torch")
    layers = pytest.importorskip("einops.layers.torch")
    arguments = ("b (h k) w c -> b h d (k w)", "k c d", "d")
    lengths = {"k": 2, "c": 3, "d": 5}
    mine, theirs = ours.EinMix(*arguments, **lengths), layers.EinMix(*arguments, **lengths)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    state = {name: value.numpy() for name, value in theirs.state_dict().items()}
    mine.load_state_dict({name: metaop.from_numpy(value) for name, value in state.items()})
    values = VALUES.astype(np.float32)
    wanted = theirs(torch.from_numpy(values)).detach().numpy()
    np.testing.assert_allclose(mine(metaop.tensor(values)).detach().numpy(), wanted, atol=1e-5)


def test_wrong_patterns_are_named_by_einops() -> None:
    with pytest.raises(einops.EinopsError, match="b h w -> b"):
        einops.rearrange(metaop.tensor(VALUES), "b h w -> b (h w)")
    layer = ours.Rearrange("b h -> h b")
    assert repr(layer) == "Rearrange('b h -> h b')"
    assert pickle.loads(pickle.dumps(layer))(metaop.zeros(2, 3)).shape == (3, 2)
