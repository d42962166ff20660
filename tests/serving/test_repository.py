"""Files, names and versions of models."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import metaop
from metaop.errors import ArgumentError
from metaop.serving.refusal import Refusal
from metaop.serving.repository import Repository
from tests.serving.conftest import floats, perceptron


def output(repository: Repository, x: np.ndarray, *name: str) -> np.ndarray:
    (found,) = repository.get(*name).run([[x]])
    assert isinstance(found, list)
    return found[0]


def wanted(seed: int, x: np.ndarray) -> np.ndarray:
    return perceptron(seed)(metaop.from_numpy(x)).detach().numpy()


def write(seed: int, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    metaop.export(perceptron(seed), metaop.rand(2, 4), path, dynamic={"input": {0: "batch"}})
    return path


def test_versions_of_a_file(tmp_path: Path) -> None:
    first, second = (write(seed, tmp_path / f"{seed}.mo") for seed in (1, 2))
    repository = Repository([f"net:2={first}", f"net:10={second}", f"other={first}"], 4)
    assert repository.names() == ["net", "other"]
    for name in repository.names():
        repository.load(name)
    x = floats(3, 4)
    assert repository.versions("net") == ["2", "10"]
    np.testing.assert_allclose(output(repository, x, "net"), wanted(2, x), 1e-5, 1e-6)
    np.testing.assert_allclose(output(repository, x, "net", "2"), wanted(1, x), 1e-5, 1e-6)
    np.testing.assert_allclose(output(repository, x, "other", "1"), wanted(1, x), 1e-5, 1e-6)
    with pytest.raises(Refusal, match="has no version '3'; loaded are"):
        repository.get("net", "3")


def test_a_folder_of_models_that_changes(tmp_path: Path) -> None:
    write(1, tmp_path / "net" / "1" / "a.mo")
    repository = Repository([str(tmp_path)], 4)
    assert [one[:3] for one in repository.index()] == [("net", "1", "UNAVAILABLE")]
    repository.load("net")
    write(2, tmp_path / "net" / "2" / "b.mo")
    write(3, tmp_path / "later" / "1" / "c.mo")
    (tmp_path / "net" / "draft").mkdir()
    assert [one[:3] for one in repository.index()] == [
        ("later", "1", "UNAVAILABLE"),
        ("net", "1", "READY"),
        ("net", "2", "UNAVAILABLE"),
    ]
    old, x = repository.get("net"), floats(2, 4)
    repository.load("net")
    np.testing.assert_allclose(output(repository, x, "net"), wanted(2, x), 1e-5, 1e-6)
    # Requests that had the old model already are still computed.
    assert not isinstance(old.run([[x]])[0], BaseException)
    repository.unload("net")
    with pytest.raises(Refusal, match="is not loaded"):
        repository.get("net")
    repository.load("later")
    shutil.rmtree(tmp_path / "later")
    np.testing.assert_allclose(output(repository, x, "later"), wanted(3, x), 1e-5, 1e-6)


def test_a_damaged_file_replaces_nothing(tmp_path: Path) -> None:
    path = write(1, tmp_path / "net.mo")
    repository = Repository([str(path)], 4)
    repository.load("net")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(Refusal, match="version 1 of 'net': cannot load"):
        repository.load("net")
    x = floats(2, 4)
    np.testing.assert_allclose(output(repository, x, "net"), wanted(1, x), 1e-5, 1e-6)
    (state,) = repository.index()
    assert state.state == "READY" and "cannot load" in state.reason


@pytest.mark.parametrize("name", ["..", "../net", "net/../net", "", ".hidden", "a" * 300])
def test_names_lead_nowhere_else(tmp_path: Path, name: str) -> None:
    write(1, tmp_path / "models" / "net" / "1" / "a.mo")
    write(1, tmp_path / "net" / "1" / "a.mo")
    repository = Repository([str(tmp_path / "models")], 4)
    with pytest.raises(Refusal) as caught:
        repository.load(name)
    assert caught.value.status == 404


def test_sources_that_are_refused(tmp_path: Path) -> None:
    path = write(1, tmp_path / "net.mo")
    bad = str(shutil.copy(path, tmp_path / "my net.mo"))
    for sources, text in (
        ([str(tmp_path / "none.mo")], "there is no file"),
        ([str(path), str(path)], "version 1 of 'net' is"),
        ([bad], "'my net' is not a valid name"),
        ([f"net={tmp_path}"], "is a folder"),
    ):
        with pytest.raises(ArgumentError, match=re.escape(text)):
            Repository(sources, 4)
