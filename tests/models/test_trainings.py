"""Whole trainings, seeded, and what they reach at least: `./test tests/models -m nightly`."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from models import (
    gpt,
    mesh_cnn,
    point_cloud,
    pointnet,
    pointnet2,
    resnet,
    ssd,
    transformer,
    unet,
    yolox,
)
from models.demonstration import digit_images, update

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]
MODELS = Path(gpt.__file__).parent


def test_resnet18_learns_64_images_by_heart() -> None:
    metaop.manual_seed(0)
    images, labels = (metaop.from_numpy(part[:64]) for part in digit_images(8))
    model = resnet.resnet18(10, "cifar")
    optimizer = metaop.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(40):
        update(optimizer, metaop.nn.functional.cross_entropy(model(images), labels)).item()
    with metaop.no_grad():
        logits = model.eval()(images)
    assert metaop.nn.functional.cross_entropy(logits, labels).item() < 0.05
    assert (logits.argmax(1) == labels).all().item()


def test_gpt_reads_python_in_less_than_three_bits_a_byte(tmp_path: Path) -> None:
    """Of the programs in `models/`, of which most windows are read once or never."""
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(MODELS.glob("*.py")))
    path = tmp_path / "programs.txt"
    path.write_text(text, encoding="utf-8")
    words = ["--text", str(path), "--steps", "800", "--context", "64", "--write", "1"]
    losses = gpt.main(words)
    bits = np.mean(losses[-50:]) / math.log(2) * len(text) / path.stat().st_size
    assert bits < 3.0


def test_a_transformer_sorts(capsys: pytest.CaptureFixture[str]) -> None:
    transformer.main(["--steps", "1500", "--batch-size", "64"])
    (sorted_,) = re.findall(r"(\d+) of 100 sequences", capsys.readouterr().out)
    assert int(sorted_) >= 99


def test_unet_finds_discs() -> None:
    assert unet.main(["--steps", "400"]) >= 0.9


@pytest.mark.parametrize("module", [point_cloud, pointnet, pointnet2, mesh_cnn])
def test_shapes_are_told_apart(module: Any) -> None:
    assert module.main([]) >= 0.9


@pytest.mark.parametrize("module", [ssd, yolox])
def test_shapes_are_found_in_scenes(module: Any) -> None:
    assert module.main([]).metrics["box_map_50"] >= 0.7
