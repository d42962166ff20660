"""The encoder of sound: transformers' and PyTorch's values, bands, and learning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from models import whisper
from tests.models import published
from tests.models.comparison import classification, compare, parameter_count


def test_size_is_that_of_the_published_network() -> None:
    # Whisper tiny has 37,760,640 parameters with its decoder; these are its encoder's.
    assert parameter_count(whisper.WhisperEncoder()) == 8_208_384


def test_values_are_those_of_transformers(tmp_path: Path) -> None:
    expected = published.write_folder("whisper", tmp_path)
    loudness = metaop.tensor(published.sound())
    with metaop.no_grad():
        found = whisper.WhisperEncoder.from_pretrained(tmp_path)(loudness).numpy()
        np.testing.assert_allclose(found, expected, atol=1e-5)
        # Names in the files of the whole network begin with another word.
        weights = metaop.load(tmp_path / "model.safetensors")
        whole = {f"model.{name}": value for name, value in weights.items()}
        metaop.save(whole, tmp_path / "model.safetensors")
        again = whisper.WhisperEncoder.from_pretrained(tmp_path)(loudness).numpy()
    np.testing.assert_array_equal(again, found)


def test_values_and_gradients_are_those_of_torch() -> None:
    def build(module: Any) -> Any:
        return module.AudioClassifier(module.WhisperEncoder(6, 8, 12, 2, 3, 16), 4)

    random = np.random.default_rng(0)
    loudness, labels = random.standard_normal((2, 6, 16)), random.integers(0, 4, 2)
    compare("whisper", build, classification, loudness, labels)


def test_loudness_is_that_of_a_plain_transform() -> None:
    random = np.random.default_rng(1)
    samples = random.standard_normal((2, 1600)) * 10.0 ** np.linspace(-6, 0, 1600)
    padded = np.pad(samples, ((0, 0), (200, 200)), mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, 400, axis=1)[:, :-1:160][:, :10]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 400)
    power = np.abs(np.fft.rfft(frames * window)) ** 2
    found = np.log10(np.maximum(power @ whisper.mel_filters(80).T.astype(float), 1e-10))
    expected = (np.maximum(found, found.max((1, 2), keepdims=True) - 8) + 4) / 4
    values = whisper.log_mel(metaop.tensor(samples)).numpy()
    np.testing.assert_allclose(values, expected.transpose(0, 2, 1), atol=1e-9)
    assert (values == values.min()).sum() > 5  # some are so low that they are cut off


@pytest.mark.parametrize("bands", [40, 80, 128])
def test_bands_have_one_area_and_meet_their_neighbours(bands: int) -> None:
    filters = whisper.mel_filters(bands)
    assert filters.shape == (bands, 201) and filters.dtype == np.float32
    # Centres grow; several narrow bands may hear one frequency only.
    centres = (filters * np.linspace(0, 8000, 201)).sum(1) / filters.sum(1)
    assert (np.diff(centres) >= 0).all() and centres[-1] > 7000
    wide = filters[centres > 3000]  # where triangles have many points, sums are integrals
    np.testing.assert_allclose(wide.sum(1) * 40, 1, atol=0.05)


def test_training_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    words = ["--width", "16", "--bands", "16", "--seconds", "0.2", "--batch-size", "8"]
    kept = [*words, "--lr", "4e-3", "--checkpoint", str(tmp_path / "parts.pth"), "--steps"]
    first = whisper.main([*kept, "5"])
    losses = whisper.main([*kept, "60"])
    assert losses[:5] == first and len(losses) == 60
    assert np.isfinite(losses).all() and np.mean(losses[-10:]) < 0.9 * np.mean(losses[:5])
