"""Diffusion: PyTorch's values, what noise and sampling do to known data, and learning."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from models import diffusion
from tests.models.comparison import compare, torch_twin


def build(module: Any) -> Any:
    model = module.UNet(1, width=4, groups=2)
    for block in (model.before, model.down, model.up, model.after):
        module.nn.init.normal_(block.conv2.weight, 0.0, 0.3)  # else nothing depends on the time
    return model


def test_values_and_gradients_are_those_of_torch() -> None:
    def loss(library: Any, model: Any, images: Any, noise: Any, times: Any) -> tuple[Any, Any]:
        module = diffusion if library is metaop else torch_twin("diffusion")
        return model(images, times), module.NoiseSchedule(20).loss(model, images, times, noise)

    images, noise = np.random.default_rng(0).standard_normal((2, 3, 1, 4, 6))
    compare("diffusion", build, loss, images, noise, np.array([0, 7, 19]))


def test_images_without_drawn_noise_are_those_of_torch() -> None:
    import torch

    def model(x: Any, times: Any) -> Any:
        return (1.5 * x + 0.1 * times[:, None, None, None]).tanh()

    start = np.random.default_rng(1).standard_normal((2, 1, 4, 4))
    theirs = torch_twin("diffusion").NoiseSchedule(30)
    mine: Any = model
    found = diffusion.NoiseSchedule(30).sample(mine, metaop.tensor(start), 5, eta=0.0).numpy()
    expected = theirs.sample(model, torch.tensor(start), 5, eta=0.0).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-9)
    assert (np.abs(found) <= 1).all() and found.std() > 0.05


def test_noise_grows_from_nothing_to_everything() -> None:
    noise = diffusion.NoiseSchedule(100)
    assert (
        noise.alpha_bar[0] > 0.999
        and noise.alpha_bar[-1] < 1e-3
        and (np.diff(noise.alpha_bar) < 0).all()
    )
    share = (
        np.cos((50 / 100 + 0.008) / 1.008 * np.pi / 2) ** 2 / np.cos(0.008 / 1.008 * np.pi / 2) ** 2
    )
    assert noise.alpha_bar[49] == pytest.approx(share)
    np.testing.assert_allclose(np.cumprod(1 - noise.beta), noise.alpha_bar)


def knowing(
    noise: diffusion.NoiseSchedule, mean: float, deviation: float
) -> Callable[[metaop.Tensor, metaop.Tensor], metaop.Tensor]:
    """What knows the noise best in images whose pixels are drawn from a normal distribution."""

    def model(x: metaop.Tensor, times: metaop.Tensor) -> metaop.Tensor:
        alpha_bar = metaop.from_numpy(noise.alpha_bar)[times][:, None, None, None]
        variance = alpha_bar * deviation**2 + 1 - alpha_bar
        return (1 - alpha_bar).sqrt() * (x - alpha_bar.sqrt() * mean) / variance

    return model


def test_samples_with_drawn_noise_have_the_variance_of_the_paper() -> None:
    metaop.manual_seed(2)
    noise, spread = diffusion.NoiseSchedule(40), 0.15
    model: Any = knowing(noise, 0.3, spread)
    found = noise.sample(model, metaop.randn(1, 1, 100, 100, dtype=metaop.float64)).numpy()
    # Equation 7: an image and what is noisier give what is less noisy. All is linear here.
    variance = 1.0
    for time in reversed(range(40)):
        alpha_bar, added = noise.alpha_bar[time], noise.beta[time]
        before = noise.alpha_bar[time - 1] if time else 1.0
        image = np.sqrt(alpha_bar) * spread**2 / (alpha_bar * spread**2 + 1 - alpha_bar)
        slope = np.sqrt(before) * added * image + np.sqrt(1 - added) * (1 - before)
        variance = (slope / (1 - alpha_bar)) ** 2 * variance + (1 - before) / (
            1 - alpha_bar
        ) * added
    assert found.mean() == pytest.approx(0.3, abs=0.006)
    assert found.std() == pytest.approx(np.sqrt(variance), rel=0.03)


@pytest.mark.parametrize("eta", [0.0, 0.3])
def test_samples_of_few_steps_are_distributed_like_the_data(eta: float) -> None:
    metaop.manual_seed(2)
    noise = diffusion.NoiseSchedule(1000)
    model: Any = knowing(noise, 0.3, 0.15)
    start = metaop.randn(1, 1, 100, 100, dtype=metaop.float64)
    found = noise.sample(model, start, 60, eta).numpy()
    # 10,000 pixels have a mean within 0.0045. Steps that are not infinitely small narrow the
    # distribution: by 6 % for 60 of them.
    assert found.mean() == pytest.approx(0.3, abs=0.006)
    assert found.std() == pytest.approx(0.15, rel=0.1)


def test_a_single_image_is_found_from_any_noise() -> None:
    metaop.manual_seed(3)
    noise = diffusion.NoiseSchedule(50)
    model: Any = knowing(noise, -0.4, 0.0)
    for eta in (0.0, 1.0):
        found = noise.sample(model, metaop.randn(2, 1, 2, 2, dtype=metaop.float64), 10, eta)
        np.testing.assert_allclose(found.numpy(), -0.4, atol=1e-9)


def test_training_lowers_the_loss_and_draws(tmp_path: Path) -> None:
    from PIL import Image

    words = [
        "--width",
        "4",
        "--lr",
        "5e-3",
        "--batch-size",
        "8",
        "--draw-steps",
        "2",
        "--draw",
        "3",
    ]
    losses = diffusion.main([*words, "--steps", "20", "--out", str(tmp_path / "sheet.png")])
    assert np.isfinite(losses).all() and np.mean(losses[-5:]) < 0.9 * losses[0]
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.size == (3 * 64, 64)
