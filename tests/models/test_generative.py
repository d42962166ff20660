"""Adversarial networks and image translation: PyTorch's values (of second order too)."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.execution.executor import clear_programs
from models import (
    adversarial,
    began,
    cyclegan,
    dcgan,
    ebgan,
    esrgan,
    pix2pix,
    sgan,
    softmax_gan,
    stargan,
    wgan,
    wgan_gp,
)
from tests.models.comparison import compare, parameter_count

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
        discriminator = module.Discriminator(4, 1, 8, **options)
        return getattr(module, kind)(module.Generator(6, 4, 1, 8), discriminator, 6)

    return build


def recognising(kind: str, further: int, classes: int | None = None) -> Players:
    """Players of `kind`; as many numbers are told as there are `further` ones in the codes."""

    def build(module: Any) -> Any:
        generator = module.Generator(6 + further, 4, 1, 8)
        return getattr(module, kind)(generator, module.Classifier(4, 1, 8, classes or further), 6)

    return build


def repeating(kind: str) -> Players:
    def build(module: Any) -> Any:
        discriminator = module.Autoencoder(4, 1, 8, 5)
        return getattr(module, kind)(module.Generator(6, 4, 1, 8), discriminator, 6)

    return build


def clustering(module: Any) -> Any:
    generator = module.Generator(16, 4, 1, 8)
    clusters = module.ClusterGenerator(generator, module.Classifier(4, 1, 8, 16), 10)
    return module.ClusterGAN(clusters, module.Discriminator(4, 1, 8), 6)


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
    ("wgan", convolutional("WGAN", batch_norm=False), (NOISE,)),
    ("sgan", recognising("SGAN", 0, 10), (NOISE,)),
    ("relativistic_gan", convolutional("RelativisticGAN"), (NOISE,)),
    ("bgan", dense("BGAN"), (NOISE,)),
    ("aae", lambda m: m.AAE(m.Autoencoder(6, 4, 8), m.Discriminator(6, 4), 6), (NOISE,)),
    (
        "cogan",
        lambda m: m.CoGAN(m.CoupledGenerator(6, 4, 8), m.CoupledDiscriminator(4, 8), 6),
        (NOISE,),
    ),
    ("clustergan", clustering, (NOISE, KINDS)),
]


def both_losses(library: Any, players: Any, real: Any, labels: Any, *codes: Any) -> Any:
    """What the generator draws, and the sum of the losses of both players."""
    turn = players.turn(real, labels, *codes)
    discriminator_loss = players.discriminator_loss(turn._replace(fake=turn.fake.detach()))
    return turn.fake, discriminator_loss + players.generator_loss(turn)


@pytest.mark.parametrize(("name", "players", "codes"), ADVERSARIES)
def test_both_losses_are_those_of_torch(
    name: str, players: Players, codes: tuple[np.ndarray, ...]
) -> None:
    real, labels = random.uniform(-1, 1, (4, 1, 8, 8)), random.integers(0, 10, 4)
    compare(name, players, both_losses, real, labels, *codes, steps=3)


# Adversaries that translate images: their real images, and what comes in the place of labels.
IMAGES, OTHERS = random.uniform(-1, 1, (2, 2, 1, 16, 16))
SMALL = random.uniform(-1, 1, (2, 1, 8, 8))


def cyclic(module: Any) -> Any:
    generators = [module.Generator(1, 2, 1) for _ in range(2)]
    discriminators = [
        module.PatchDiscriminator(1, 2, 1, module.nn.InstanceNorm2d) for _ in range(2)
    ]
    return module.CycleGAN(module.Pair(*generators), module.Pair(*discriminators), 0)


def united(module: Any) -> Any:
    discriminators = module.Pair(
        module.PatchDiscriminator(1, 2, 1), module.PatchDiscriminator(1, 2, 1)
    )
    return module.UNIT(module.SharedTranslator(1, 2), discriminators, 0)


TRANSLATORS: list[tuple[str, Players, tuple[np.ndarray, ...]]] = [
    (
        "pix2pix",
        lambda m: m.Pix2Pix(m.UnetGenerator(1, 1, 3, 2), m.PatchDiscriminator(2, 2, 2), 0),
        (IMAGES, OTHERS),
    ),
    ("cyclegan", cyclic, (IMAGES, OTHERS)),
    ("unit", united, (IMAGES, OTHERS, random.standard_normal((4, 8, 4, 4)))),
    (
        "context_encoder",
        lambda m: m.ContextEncoder(m.EncoderDecoder(2, 1, 16, 6), m.Discriminator(2, 1, 8), 0),
        (IMAGES, OTHERS),
    ),
    (
        "bicyclegan",
        lambda m: m.BicycleGAN(m.CodedTranslator(3, 2, 4), m.PatchDiscriminator(1, 2, 2), 3),
        (IMAGES, OTHERS, *random.standard_normal((2, 2, 3))),
    ),
    (
        "pixelda",
        lambda m: m.PixelDA(m.Adapter(3, 2, 8, 10), m.Discriminator(2, 1, 8), 3),
        (SMALL, SMALL[::-1].copy(), KINDS[:2], NOISE[:2, :3]),
    ),
    (
        "esrgan",
        lambda m: m.ESRGAN(m.RRDBNet(1, 4, 1, 2), m.PatchDiscriminator(1, 2, 1), 0),
        (IMAGES, SMALL[:, :, ::2, ::2].copy()),
    ),
]


@pytest.mark.parametrize(
    ("name", "players", "inputs"),
    [
        pytest.param(*one, marks=[pytest.mark.nightly] if one[0] == "unit" else [])
        for one in TRANSLATORS
    ],
)
def test_translators_have_the_losses_of_torch(
    name: str, players: Players, inputs: tuple[np.ndarray, ...]
) -> None:
    compare(name, players, both_losses, *inputs, steps=3)


def test_translators_have_the_sizes_of_the_authors_programs() -> None:
    """As printed by pix2pix and CycleGAN (54.414 M, 2.769 M, 2.765 M), and as of ESRGAN's file."""
    assert parameter_count(pix2pix.UnetGenerator()) == 54_413_955
    assert parameter_count(pix2pix.PatchDiscriminator(6)) == 2_768_705
    discriminator = pix2pix.PatchDiscriminator(3, norm=metaop.nn.InstanceNorm2d)
    assert parameter_count(discriminator) == 2_764_737
    with metaop.device("meta"):
        network = esrgan.RRDBNet()
    assert parameter_count(network) == 16_697_987
    assert list(network.state_dict())[2] == "RRDB_trunk.0.RDB1.conv1.weight"


def test_stargan_has_the_losses_of_torch() -> None:
    def build(module: Any) -> Any:
        discriminator = module.Classifier(2, 1, 8, 3, batch_norm=False)
        return module.StarGAN(module.Translator(3, 1, 2, 1), discriminator, 0)

    def loss(library: Any, players: Any, mixing: Any, *inputs: Any) -> tuple[Any, Any]:
        turn = players.turn(*inputs)
        cut = turn._replace(fake=turn.fake.detach())
        return turn.fake, players.discriminator_loss(cut, mixing) + players.generator_loss(turn)

    kinds = random.integers(0, 3, (2, 2))
    mixing = random.uniform(size=(2, 1, 1, 1))
    compare("stargan", build, loss, mixing, SMALL, *kinds, tolerance=1e-6)


def test_the_wanted_kind_reaches_what_stargan_draws() -> None:
    translator = stargan.Translator(3, 1, 2, 1)
    images = metaop.tensor(SMALL[:1].repeat(3, 0)).float()
    with metaop.no_grad():
        found = translator(images, metaop.arange(3)).numpy()
    assert min(np.abs(found[k] - found[k - 1]).max() for k in range(3)) > 1e-3


def test_pairs_and_swapped_halves() -> None:
    x = metaop.arange(8.0).view(4, 2)
    assert adversarial.swap_halves(x).tolist() == [[4, 5], [6, 7], [0, 1], [2, 3]]
    pair = adversarial.Pair(metaop.nn.Identity(), metaop.nn.ReLU())
    assert pair(-x).tolist() == [[0, -1], [-2, -3], [0, 0], [0, 0]]


def test_the_critic_of_wgan_stays_within_its_limit() -> None:
    players = convolutional("WGAN", batch_norm=False)(wgan)
    for parameter in players.discriminator.parameters():
        parameter.data.mul_(100)
    players.after_discriminator_step()
    sizes = [float(parameter.abs().max()) for parameter in players.discriminator.parameters()]
    assert max(sizes) == pytest.approx(0.05) and float(players.generator.main[0].weight.max()) > 0


def test_the_discriminator_of_sgan_reads_few_labels() -> None:
    """The losses of a softmax over "drawn" and ten classes, unrolled."""
    players = recognising("SGAN", 0, 10)(sgan).eval()
    real, labels = random.uniform(-1, 1, (4, 1, 8, 8)), random.integers(0, 10, 4)
    turn = players.turn(metaop.tensor(real).float(), metaop.tensor(labels))
    with metaop.no_grad():
        parts = []
        for images in (turn.real, turn.fake):
            drawn, classes = (value.numpy() for value in players.discriminator(images))
            logits = np.concatenate([drawn[:, None], classes], 1).astype(np.float64)
            parts.append(np.exp(logits) / np.exp(logits).sum(1, keepdims=True))
        right, fake = parts
        expected = -np.log(right[0, 1 + labels[0]]) - np.log(1 - right[:, 0]).mean()
        expected -= np.log(fake[:, 0]).mean()
        assert players.discriminator_loss(turn).item() == pytest.approx(expected, rel=1e-5)
        expected = -np.log(1 - fake[:, 0]).mean()
        assert players.generator_loss(turn).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "kind"), [("wgan_gp", "WGANGP"), ("wgan_div", "WGANDIV"), ("dragan", "DRAGAN")]
)
def test_penalties_are_differentiated_twice(name: str, kind: str) -> None:
    def loss(library: Any, players: Any, points: Any, *inputs: Any) -> tuple[Any, Any]:
        turn = players.turn(*inputs)
        return turn.fake, players.discriminator_loss(turn, points)

    def build(module: Any) -> Any:
        # Large weights make gradients that are far from 0.
        players = convolutional(kind, batch_norm=name == "dragan")(module)
        for parameter in players.parameters():
            parameter.data.mul_(10)
        return players

    real, labels = random.uniform(-1, 1, (4, 1, 8, 8)), random.integers(0, 10, 4)
    points = random.uniform(size=real.shape if name == "dragan" else (4, 1, 1, 1))
    compare(name, build, loss, points, real, labels, NOISE, tolerance=1e-6)


def test_the_discriminator_of_softmax_gan_wants_equal_shares_of_real_images() -> None:
    """The losses of the paper: sums of energies and the logarithm of the partition function."""
    players = dense("SoftmaxGAN")(softmax_gan).eval()
    real, fake = (metaop.tensor(random.standard_normal((n, 1, 8, 8))).float() for n in (3, 3))
    turn = adversarial.Turn(real, real, fake, ())
    with metaop.no_grad():
        energy = -players.discriminator(metaop.cat((real, fake))).numpy().astype(np.float64)
        found = players.discriminator_loss(turn).item(), players.generator_loss(turn).item()
    partition = np.log(np.exp(-energy).sum())
    expected = energy[:3].mean() + partition, energy.mean() + partition
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_images_that_are_alike_cost_the_generator_of_ebgan() -> None:
    rows = metaop.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])
    assert ebgan.pulling_away_term(rows).item() == pytest.approx(1 / 3)
    assert ebgan.pulling_away_term(metaop.ones(4, 5)).item() == pytest.approx(1.0)


def test_the_balance_of_began_follows_the_losses_within_its_bounds() -> None:
    players = repeating("BEGAN")(began)
    players.discriminator.decoder[-1].weight.data.zero_()
    players.discriminator.decoder[-1].bias.data.zero_()
    # All that is repeated is 0, so the losses are the means of the images.
    bright, dark = metaop.ones(2, 1, 8, 8), 0.1 * metaop.ones(2, 1, 8, 8)
    first = players.discriminator_loss(adversarial.Turn(bright, bright, dark, ())).item()
    assert first == pytest.approx(1.0)
    assert players.k.item() == pytest.approx(0.01 * (0.5 - 0.1))
    second = players.discriminator_loss(adversarial.Turn(dark, dark, bright, ())).item()
    assert second == pytest.approx(0.1 - 0.004)
    assert players.k.item() == 0.0


def test_the_generator_of_cyclegan() -> None:
    def loss(library: Any, model: Any, images: Any) -> tuple[Any, Any]:
        turned = model(images)
        return turned, (turned - images).abs().mean()

    images = random.uniform(-1, 1, (2, 3, 16, 16))
    # Biases before instance normalisation have gradients that are rounding alone.
    compare("cyclegan", lambda module: module.Generator(3, 4, 1), loss, images)


def test_training_is_finite_and_draws(tmp_path: Path) -> None:
    picture = tmp_path / "runs" / "drawn.png"
    common = ["--batch-size", "8", "--width", "8", "--out", str(picture)]
    losses = dcgan.main(["--steps", "6", *common])
    assert np.isfinite(losses).all() and losses[-1] < losses[0]
    assert picture.stat().st_size > 500
    assert np.isfinite(wgan_gp.main(["--steps", "3", *common])).all()


@pytest.mark.parametrize("name", ["gan", "cgan", "softmax_gan", "aae", "wgan", "pix2pix"])
def test_small_demonstrations_run(name: str, tmp_path: Path) -> None:
    module = importlib.import_module(f"models.{name}")
    picture = tmp_path / "runs" / "drawn.png"
    losses = module.main(["--steps", "5", "--width", "8", "--out", str(picture)])
    assert np.isfinite(losses).all() and picture.stat().st_size > 500


def test_cycles_close() -> None:
    losses = cyclegan.main(["--steps", "8", "--batch-size", "2", "--width", "4", "--blocks", "1"])
    assert np.isfinite(losses).all() and losses[-1] < losses[0]


def test_what_was_made_larger_is_nearer_than_large_pixels() -> None:
    # Adversarial training amplifies rounding: programs for any size, made by tests before, round
    # otherwise than those of a new process.
    clear_programs()
    assert esrgan.main(["--steps", "60", "--width", "8", "--lr", "3e-3"]) > 17.5


def test_drawing_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    """The states of both optimizers, the balance and the codes follow from a checkpoint."""
    words = ["--batch-size", "4", "--width", "4", "--checkpoint"]
    began.main([*words, str(tmp_path / "whole.pth"), "--steps", "5"])
    began.main([*words, str(tmp_path / "parts.pth"), "--steps", "2"])
    began.main([*words, str(tmp_path / "parts.pth"), "--steps", "5"])
    whole, parts = (metaop.load(tmp_path / f"{name}.pth") for name in ("whole", "parts"))
    for name in ("discriminator", "generator"):
        assert len(whole["history"][name]) == 5
        np.testing.assert_allclose(whole["history"][name], parts["history"][name], rtol=1e-5)
