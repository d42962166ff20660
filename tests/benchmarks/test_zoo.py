"""The page of the networks: all are there, and what is measured is what was trained."""

from __future__ import annotations

from benchmarks import zoo
from models.__main__ import networks


def test_every_network_stands_in_a_family_with_what_it_learns() -> None:
    page = zoo.document({})
    assert list(zoo.titles()) == list(networks())
    for name in networks():
        assert f"| `{name}` | {zoo.titles()[name]} | {zoo.learns(name)} |" in page
        assert 0 < len(zoo.titles()[name]) < 80 and 0 < len(zoo.learns(name)) < 110
    assert zoo.family("lsgan") == zoo.family("pix2pix") == "adversarial"
    assert zoo.family("resnet") == zoo.family("vgg") == "image classification"
    assert zoo.family("ssd") == "detection" and zoo.family("dlrm") == "recommendation"


def test_trainings_are_measured_apart() -> None:
    found = dict(zoo.measured_apart(["sgc", "bgan"], "metaop"))
    assert list(found) == ["sgc", "bgan"]
    assert found["sgc"]["parameters"] == 34 * 2 + 2 and found["sgc"]["steps"] > zoo.WARM_UP
    assert found["sgc"]["reached"].startswith("accuracy") and found["sgc"]["seconds"] > 0
    # Steps of both players, and no parameter of the first network.
    assert "judge" in found["bgan"]["reached"] and found["bgan"]["parameters"] == 76_289


def test_what_cannot_be_trained_has_no_result() -> None:
    assert dict(zoo.measured_apart(["sgc"], "torch")) == {"sgc": None}


def test_rows_tell_what_was_measured() -> None:
    result = {"parameters": 1234, "steps": 7, "seconds": 0.0251, "reached": "loss 0.500"}
    row = zoo.cells("lsgan", result, {})
    assert row[0] == "`lsgan`" and row[3:] == ["1,234", "7", "loss 0.500", "25.1", "–"]
    assert zoo.reached("epoch\naccuracy 0.914 of new ones\n\n", {}) == "accuracy 0.914 of new ones"
    assert zoo.reached(".:*#\n", {"loss": [9.0] * 5 + [1.0] * 10}) == "loss 1.000"
