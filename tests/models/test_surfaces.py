"""Networks of surfaces: what a collapse keeps, PyTorch's values, symmetry, and learning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.errors import ArgumentError
from models import mesh_cnn
from tests.models.comparison import classification, compare

pytest.importorskip("scipy")


def check(surface: mesh_cnn.Surface) -> None:
    """Each way along an edge has a triangle on its left, and the surface is one ball."""
    assert {mesh_cnn.edge_of(*way) for way in surface.left} == set(surface.edges)
    assert len(surface.left) == 2 * len(surface.edges)
    for (start, end), third in surface.left.items():
        assert surface.left[end, third] == start and surface.left[third, start] == end
        assert (end, start) in surface.left
        assert end in surface.beside[start]
    corners, faces = len(surface.beside), len(surface.left) // 3
    assert corners - len(surface.edges) + faces == 2


def test_collapses_leave_closed_surfaces() -> None:
    surface = mesh_cnn.solid(3, 20, np.random.default_rng(0))
    check(surface)
    refused, changed = 0, True
    while changed:
        changed = False
        for edge in list(surface.edges):
            if edge in surface.edges:
                before = dict(surface.left), len(surface.edges)
                if surface.collapse(*edge):
                    changed = True
                    assert len(surface.edges) == before[1] - 3
                else:
                    refused += 1
                    assert (surface.left, len(surface.edges)) == before
                check(surface)
    # A tetrahedron is left.
    assert refused >= 6 and len(surface.edges) == 6


def test_a_collapse_averages_an_edge_and_its_two_neighbours() -> None:
    surface = mesh_cnn.solid(0, 12, np.random.default_rng(1))
    first = list(surface.edges)[4]
    weight = np.ones(30)
    weight[4] = 0
    around = surface.around()[4]
    smaller, means = surface.pooled(27, weight)
    assert means.shape == (27, 30) and first not in smaller.edges
    np.testing.assert_allclose(means.sum(1), 1)
    merged = [set(np.flatnonzero(row)) for row in means if (row > 0).sum() > 1]
    assert sorted(merged, key=min) == sorted(
        [{4, *around[:2].tolist()}, {4, *around[2:].tolist()}], key=min
    )
    assert len(surface.edges) == 30
    with pytest.raises(ArgumentError, match="each collapse takes three edges"):
        surface.pooled(20, weight)


def test_edges_look_the_same_from_everywhere() -> None:
    random = np.random.default_rng(2)
    surface = mesh_cnn.solid(1, 16, random)
    moved = surface.copy()
    turn, _ = np.linalg.qr(random.normal(size=(3, 3)))
    moved.places = 3.5 * surface.places @ turn + random.normal(size=3)
    np.testing.assert_allclose(moved.features(), surface.features(), atol=1e-9)
    # A regular tetrahedron: angles between faces of arccos(1/3), within faces of 60 degrees.
    corners = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]])
    faces = np.array([[0, 1, 2], [0, 2, 3], [0, 3, 1], [1, 3, 2]])
    expected = [np.arccos(1 / 3), np.pi / 3, np.pi / 3, np.sqrt(3) / 2, np.sqrt(3) / 2]
    found = mesh_cnn.Surface(faces, corners).features()
    np.testing.assert_allclose(found, np.tile(expected, (6, 1)).T)


def test_values_gradients_and_steps_are_those_of_torch() -> None:
    random = np.random.default_rng(3)
    features, surfaces, _ = mesh_cnn.solids(3, 12, random)

    def loss(library: Any, model: Any, numbers: Any, kinds: Any) -> tuple[Any, Any]:
        return classification(library, lambda x: model(x, surfaces), numbers, kinds)

    def build(module: Any) -> Any:
        return module.MeshConvNet(4, (6, 8), (24, 18), 5, skips=1)

    compare("mesh_cnn", build, loss, features, random.integers(0, 4, 3), steps=20)


def test_names_are_those_of_the_authors_program() -> None:
    names = list(mesh_cnn.MeshConvNet(2, skips=1).state_dict())
    assert names[0] == "conv0.conv0.conv.weight" and names[-1] == "fc2.bias"
    assert {"conv3.bn1.running_mean", "conv3.conv1.conv.weight", "norm3.weight"} <= set(names)


def test_new_surfaces_are_told_apart(tmp_path: Path) -> None:
    picture = tmp_path / "collapsed.png"
    assert mesh_cnn.main(["--steps", "60", "--width", "8", "--out", str(picture)]) >= 0.9
    assert picture.stat().st_size > 5000


def test_training_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    words = ["--corners", "20", "--width", "4", "--batch-size", "4", "--checkpoint"]
    mesh_cnn.main([*words, str(tmp_path / "whole.pth"), "--steps", "4"])
    mesh_cnn.main([*words, str(tmp_path / "parts.pth"), "--steps", "2"])
    mesh_cnn.main([*words, str(tmp_path / "parts.pth"), "--steps", "4"])
    whole, parts = (metaop.load(tmp_path / f"{name}.pth") for name in ("whole", "parts"))
    assert len(whole["history"]["loss"]) == 4 and whole["history"] == parts["history"]
