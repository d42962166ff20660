"""Adversarial networks and image translation: PyTorch's values (of second order too)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import metaop
from models import cyclegan, dcgan, wgan_gp
from tests.models.comparison import compare, parameter_count

random = np.random.default_rng(8)


def test_sizes_are_those_of_the_papers() -> None:
    assert parameter_count(dcgan.Generator()) == 3_576_704
    assert parameter_count(dcgan.Discriminator()) == 2_765_568
    assert parameter_count(cyclegan.Generator()) == 11_378_179
    assert dcgan.Generator()(metaop.randn(2, 100, 1, 1)).shape == (2, 3, 64, 64)
    assert cyclegan.Generator(3, 4, 1)(metaop.randn(1, 3, 16, 24)).shape == (1, 3, 16, 24)
    assert list(cyclegan.Generator(3, 4, 1).state_dict())[:2] == ["model.1.weight", "model.1.bias"]


def test_the_generator_of_dcgan() -> None:
    def loss(library: Any, model: Any, noise: Any) -> tuple[Any, Any]:
        images = model(noise)
        return images, (images**2).mean()

    noise = random.standard_normal((3, 6, 1, 1))
    compare("dcgan", lambda module: module.Generator(6, 4, 2, 16), loss, noise)


def test_the_judge_of_dcgan() -> None:
    def loss(library: Any, model: Any, images: Any) -> tuple[Any, Any]:
        logits = model(images)
        target = library.ones_like(logits)
        return logits, library.nn.functional.binary_cross_entropy_with_logits(logits, target)

    images = random.standard_normal((3, 2, 16, 16))
    compare("dcgan", lambda module: module.Discriminator(4, 2, 16), loss, images)


def test_the_penalty_is_differentiated_twice() -> None:
    from tests.models.comparison import torch_twin

    def loss(library: Any, critic: Any, *inputs: Any) -> tuple[Any, Any]:
        module = wgan_gp if library is metaop else torch_twin("wgan_gp")
        return critic(inputs[0]), module.critic_loss(critic, *inputs)

    real, false = random.standard_normal((2, 3, 2, 16, 16))
    mixing = random.uniform(size=(3, 1, 1, 1))

    def critic(module: Any) -> Any:
        # Large weights make slopes that are far from 0.
        model = module.Discriminator(4, 2, 16, batch_norm=False)
        for parameter in model.parameters():
            parameter.data.mul_(10)
        return model

    compare("dcgan", critic, loss, real, false, mixing, tolerance=1e-6)


def test_the_generator_of_cyclegan() -> None:
    def loss(library: Any, model: Any, images: Any) -> tuple[Any, Any]:
        turned = model(images)
        return turned, (turned - images).abs().mean()

    images = random.uniform(-1, 1, (2, 3, 16, 16))
    # Biases before instance normalisation have gradients that are rounding alone.
    compare("cyclegan", lambda module: module.Generator(3, 4, 1), loss, images)


def test_training_is_finite_and_draws(tmp_path: Path) -> None:
    picture = tmp_path / "drawn.png"
    common = ["--batch-size", "8", "--width", "8", "--out", str(picture)]
    losses = dcgan.main(["--steps", "6", *common])
    assert np.isfinite(losses).all() and losses[-1] < losses[0]
    assert picture.stat().st_size > 500
    assert np.isfinite(wgan_gp.main(["--steps", "4", *common])).all()


def test_cycles_close() -> None:
    losses = cyclegan.main(["--steps", "8", "--batch-size", "2", "--width", "4", "--blocks", "1"])
    assert np.isfinite(losses).all() and losses[-1] < losses[0]
