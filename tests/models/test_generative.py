"""Adversarial networks and image translation: PyTorch's values (of second order too)."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from models import adversarial, began, cyclegan, dcgan, ebgan, softmax_gan, wgan_gp
from tests.models.comparison import compare, parameter_count, torch_twin

random = np.random.default_rng(8)


def test_sizes_are_those_of_the_papers() -> None:
    assert parameter_count(dcgan.Generator()) == 3_576_704
    assert parameter_count(dcgan.Discriminator()) == 2_765_568
    assert parameter_count(cyclegan.Generator()) == 11_378_179
    assert dcgan.Generator()(metaop.randn(2, 100)).shape == (2, 3, 64, 64)
    assert cyclegan.Generator(3, 4, 1)(metaop.randn(1, 3, 16, 24)).shape == (1, 3, 16, 24)
    assert list(cyclegan.Generator(3, 4, 1).state_dict())[:2] == ["model.1.weight", "model.1.bias"]


def test_the_generator_of_dcgan() -> None:
    def loss(library: Any, model: Any, noise: Any) -> tuple[Any, Any]:
        images = model(noise)
        return images, (images**2).mean()

    noise = random.standard_normal((3, 6))
    compare("dcgan", lambda module: module.Generator(6, 4, 2, 16), loss, noise)


Players = Callable[[Any], Any]


def dense(kind: str, further: int = 0, labels: int = 0) -> Players:
    """Players of `kind` that are fully connected."""

    def build(module: Any) -> Any:
        generator = module.Generator(6 + further, 4, 8)
        return getattr(module, kind)(generator, module.Discriminator(4, 8, labels), 6)

    return build


def convolutional(kind: str, **options: bool) -> Players:
    """Players of `kind` that are those of DCGAN."""

    def build(module: Any) -> Any:
        judge = module.Discriminator(4, 1, 8, **options)
        return getattr(module, kind)(module.Generator(6, 4, 1, 8), judge, 6)

    return build


def recognising(kind: str, further: int) -> Players:
    def build(module: Any) -> Any:
        generator = module.Generator(6 + further, 4, 1, 8)
        return getattr(module, kind)(generator, module.Classifier(4, 1, 8, further), 6)

    return build


def repeating(kind: str) -> Players:
    def build(module: Any) -> Any:
        judge = module.Autoencoder(4, 1, 8, 5)
        return getattr(module, kind)(module.Generator(6, 4, 1, 8), judge, 6)

    return build


NOISE = random.standard_normal((4, 6))
KINDS, NUMBERS = random.integers(0, 10, 4), random.uniform(-1, 1, (4, 2))
ADVERSARIES: list[tuple[str, Players, tuple[np.ndarray, ...]]] = [
    ("gan", dense("GAN"), (NOISE,)),
    ("softmax_gan", dense("SoftmaxGAN"), (NOISE,)),
    ("cgan", dense("CGAN", 10, 10), (NOISE, KINDS)),
    ("dcgan", convolutional("GAN"), (NOISE,)),
    ("lsgan", convolutional("LSGAN"), (NOISE,)),
    ("acgan", recognising("ACGAN", 10), (NOISE, KINDS)),
    ("infogan", recognising("InfoGAN", 12), (NOISE, KINDS, NUMBERS)),
    ("ebgan", repeating("EBGAN"), (NOISE,)),
    ("began", repeating("BEGAN"), (NOISE,)),
]


def both_losses(library: Any, players: Any, real: Any, labels: Any, *codes: Any) -> Any:
    """What the generator draws, and the sum of the losses of both players."""
    turn = turn_of(library, players, real, labels, *codes)
    judge_loss = players.judge_loss(turn._replace(false=turn.false.detach()))
    return turn.false, judge_loss + players.generator_loss(turn)


def turn_of(library: Any, players: Any, real: Any, labels: Any, *codes: Any) -> Any:
    module = adversarial if library is metaop else torch_twin("adversarial")
    return module.Turn(real, labels, players.generator(*codes), codes)


@pytest.mark.parametrize(("name", "players", "codes"), ADVERSARIES)
def test_both_losses_are_those_of_torch(
    name: str, players: Players, codes: tuple[np.ndarray, ...]
) -> None:
    real, labels = random.uniform(-1, 1, (4, 1, 8, 8)), random.integers(0, 10, 4)
    compare(name, players, both_losses, real, labels, *codes, steps=3)


@pytest.mark.parametrize(("name", "kind"), [("wgan_gp", "WGAN"), ("dragan", "DRAGAN")])
def test_penalties_are_differentiated_twice(name: str, kind: str) -> None:
    def loss(library: Any, players: Any, points: Any, *inputs: Any) -> tuple[Any, Any]:
        turn = turn_of(library, players, *inputs)
        return turn.false, players.judge_loss(turn, points)

    def build(module: Any) -> Any:
        # Large weights make slopes that are far from 0.
        players = convolutional(kind, batch_norm=name == "dragan")(module)
        for parameter in players.parameters():
            parameter.data.mul_(10)
        return players

    real, labels = random.uniform(-1, 1, (4, 1, 8, 8)), random.integers(0, 10, 4)
    points = random.uniform(size=(4, 1, 1, 1) if name == "wgan_gp" else real.shape)
    compare(name, build, loss, points, real, labels, NOISE, tolerance=1e-6)


def test_the_judge_of_softmax_gan_wants_equal_shares_of_real_images() -> None:
    """The losses of the paper: sums of energies and the logarithm of the partition function."""
    players = dense("SoftmaxGAN")(softmax_gan).eval()
    real, false = (metaop.tensor(random.standard_normal((n, 1, 8, 8))).float() for n in (3, 3))
    turn = adversarial.Turn(real, real, false, ())
    with metaop.no_grad():
        energy = -players.judge(metaop.cat((real, false))).numpy().astype(np.float64)
        found = players.judge_loss(turn).item(), players.generator_loss(turn).item()
    partition = np.log(np.exp(-energy).sum())
    expected = energy[:3].mean() + partition, energy.mean() + partition
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_images_that_are_alike_cost_the_generator_of_ebgan() -> None:
    rows = metaop.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])
    assert ebgan.likeness(rows).item() == pytest.approx(1 / 3)
    assert ebgan.likeness(metaop.ones(4, 5)).item() == pytest.approx(1.0)


def test_the_balance_of_began_follows_the_losses_within_its_bounds() -> None:
    players = repeating("BEGAN")(began)
    players.judge.decoder[-1].weight.data.zero_()
    players.judge.decoder[-1].bias.data.zero_()
    # All that is repeated is 0, so the losses are the means of the images.
    bright, dark = metaop.ones(2, 1, 8, 8), 0.1 * metaop.ones(2, 1, 8, 8)
    first = players.judge_loss(adversarial.Turn(bright, bright, dark, ())).item()
    assert first == pytest.approx(1.0)
    assert players.balance.item() == pytest.approx(0.01 * (0.5 - 0.1))
    second = players.judge_loss(adversarial.Turn(dark, dark, bright, ())).item()
    assert second == pytest.approx(0.1 - 0.004)
    assert players.balance.item() == 0.0


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
    assert np.isfinite(wgan_gp.main(["--steps", "3", *common])).all()


@pytest.mark.parametrize("name", ["gan", "cgan", "softmax_gan"])
def test_small_demonstrations_run(name: str, tmp_path: Path) -> None:
    module = importlib.import_module(f"models.{name}")
    picture = tmp_path / "drawn.png"
    losses = module.main(["--steps", "5", "--width", "8", "--out", str(picture)])
    assert np.isfinite(losses).all() and picture.stat().st_size > 500


def test_cycles_close() -> None:
    losses = cyclegan.main(["--steps", "8", "--batch-size", "2", "--width", "4", "--blocks", "1"])
    assert np.isfinite(losses).all() and losses[-1] < losses[0]
