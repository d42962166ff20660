"""The network of a scene: its size, what rays bring back, PyTorch's values, and new pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from models import nerf
from tests.models.comparison import compare, parameter_count, torch_twin

random = np.random.default_rng(9)


def test_size_and_names_are_those_of_the_authors_program() -> None:
    model = nerf.NeRF()
    assert parameter_count(model) == 595_844
    assert model.pts_linears[5].in_features == 319
    names = {name.split(".")[0] for name in model.state_dict()}
    assert names == {
        *("pts_linears", "views_linears", "alpha_linear", "feature_linear", "rgb_linear")
    }


def test_light_is_lost_on_the_way() -> None:
    """A thick sample hides what is behind; fog of one density lets through what it must."""
    depths = np.sort(random.uniform(2, 6, (1, 5)))
    colours = random.uniform(size=(1, 5, 3))
    density = np.array([[0, 0, 1e9, 3, 0]])
    found = nerf.volume_rendering(*map(metaop.tensor, (density, colours, depths))).numpy()
    np.testing.assert_allclose(found[0], colours[0, 2], atol=1e-9)
    empty = nerf.volume_rendering(*map(metaop.tensor, (0 * density, colours, depths))).numpy()
    np.testing.assert_allclose(empty, 1)
    fog = np.full((1, 5), 0.3)
    fog[0, -1] = 0
    black = nerf.volume_rendering(*map(metaop.tensor, (fog, 0 * colours, depths))).numpy()
    np.testing.assert_allclose(black, np.exp(-0.3 * (depths[0, -1] - depths[0, 0])))


def test_the_camera_looks_at_the_middle() -> None:
    starts, directions = nerf.camera(0.7, 0.5, 9)
    np.testing.assert_allclose(starts[40] + 4 * directions[40], 0, atol=1e-9)
    np.testing.assert_allclose((directions**2).sum(1), 1)
    # The first row of the picture is its upper edge.
    assert directions[4, 2] > directions[-5, 2]


def test_photographs_meet_the_first_thing() -> None:
    above = np.array([[0.6, -0.1, 4.0], [0.0, -0.9, 4.0], [2.0, 2.0, 4.0]])
    down = np.array([[0.0, 0.0, -1.0]]).repeat(3, 0)
    found = nerf.photograph(above, down)
    np.testing.assert_allclose(found, [nerf.COLOURS[1], nerf.COLOURS[3], (1, 1, 1)])


def test_values_gradients_and_steps_are_those_of_torch() -> None:
    starts, directions, wanted = random.uniform(-1, 1, (3, 6, 3))
    places = random.uniform(size=(6, 5))

    def loss(library: Any, model: Any, *rays: Any) -> tuple[Any, Any]:
        module = nerf if library is metaop else torch_twin("nerf")
        found = module.render(model, *rays[:3])
        return found, ((found - rays[3]) ** 2).mean()

    arrays = starts, directions, places, wanted
    compare("nerf", lambda m: m.NeRF(8, 4, 2, 1), loss, *arrays, steps=20)


def test_new_pictures_are_near_to_the_true_ones(tmp_path: Path) -> None:
    """White alone has about 10 dB."""
    picture = tmp_path / "runs" / "scene.png"
    words = ["--size", "16", "--samples", "16", "--width", "32", "--out", str(picture)]
    assert nerf.main(["--steps", "200", *words]) > 17
    assert picture.stat().st_size > 2000


def test_training_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    words = ["--size", "8", "--samples", "4", "--width", "8", "--batch-size", "16", "--checkpoint"]
    nerf.main([*words, str(tmp_path / "whole.pth"), "--steps", "5"])
    nerf.main([*words, str(tmp_path / "parts.pth"), "--steps", "2"])
    nerf.main([*words, str(tmp_path / "parts.pth"), "--steps", "5"])
    whole, parts = (metaop.load(tmp_path / f"{name}.pth") for name in ("whole", "parts"))
    assert len(whole["history"]["loss"]) == 5
    assert whole["history"]["loss"] == pytest.approx(parts["history"]["loss"], rel=1e-6)
