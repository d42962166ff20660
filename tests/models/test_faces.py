"""Faces told apart by angles: the margin, PyTorch's values, classes on several ranks, learning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from models import arcface
from tests.dist import jobs
from tests.models.comparison import compare

random = np.random.default_rng(6)


def test_the_margin_is_added_to_the_angle_of_the_right_class() -> None:
    head = arcface.ArcFace(5, 7, scale=10.0, margin=0.4).double()
    vectors, labels = random.standard_normal((40, 5)), random.integers(0, 7, 40)
    # One vector opposite to its class, where the angle is near to pi.
    vectors[0] = -head.weight.detach().numpy()[labels[0]] + 0.001 * vectors[0]
    found = head(metaop.tensor(vectors), metaop.tensor(labels)).detach().numpy() / 10
    weight = head.weight.detach().numpy()
    for row in range(40):
        for kind in range(7):
            lengths = np.linalg.norm(vectors[row]) * np.linalg.norm(weight[kind])
            angle = np.arccos(vectors[row] @ weight[kind] / lengths)
            expected = np.cos(angle)
            if kind == labels[row] and angle < np.pi - 0.4:
                expected = np.cos(angle + 0.4)
            elif kind == labels[row]:
                expected -= 0.4 * np.sin(0.4)
            assert found[row, kind] == pytest.approx(expected, abs=1e-6)


def test_values_gradients_and_steps_are_those_of_torch() -> None:
    def loss(library: Any, model: Any, faces: Any, labels: Any) -> tuple[Any, Any]:
        logits = model[1](model[0](faces), labels)
        return logits, library.nn.functional.cross_entropy(logits, labels)

    def build(module: Any) -> Any:
        return module.nn.ModuleList([module.FaceNetwork(2, 6), module.ArcFace(6, 5, 8.0)])

    faces = arcface.draw_faces(random.uniform(size=(6, 9)), random)
    compare("arcface", build, loss, faces, random.integers(0, 5, 6), steps=20)


def test_pictures_of_one_person_are_alike() -> None:
    people = random.uniform(size=(12, 9))
    first, second = (arcface.draw_faces(people, random).reshape(12, -1) for _ in range(2))
    distances = ((first[:, None] - second) ** 2).mean(2)
    own, others = np.diag(distances), distances[~np.eye(12, dtype=bool)]
    assert np.isfinite(first).all() and own.mean() < 0.6 * others.mean()


@pytest.mark.mpi
@jobs.needs_mpi
def test_classes_on_two_ranks_have_the_losses_of_one() -> None:
    done = jobs.run_all(2, "class_split")
    jobs.check_done("class_split", 2, done)


def test_new_people_are_verified() -> None:
    """The untrained network has an area of 0.80."""
    assert arcface.main(["--steps", "60"]) >= 0.97


def test_training_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    words = ["--people", "5", "--batch-size", "8", "--width", "2", "--checkpoint"]
    arcface.main([*words, str(tmp_path / "whole.pth"), "--steps", "4"])
    arcface.main([*words, str(tmp_path / "parts.pth"), "--steps", "2"])
    arcface.main([*words, str(tmp_path / "parts.pth"), "--steps", "4"])
    whole, parts = (metaop.load(tmp_path / f"{name}.pth") for name in ("whole", "parts"))
    np.testing.assert_allclose(whole["history"]["loss"], parts["history"]["loss"], rtol=1e-6)
    assert len(whole["history"]["loss"]) == 4
