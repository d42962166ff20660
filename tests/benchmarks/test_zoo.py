"""The page of the networks: all are there, and what is measured is what was trained."""

from __future__ import annotations

import base64
import inspect
import io
from types import SimpleNamespace

import pytest
from PIL import Image

import metaop
from benchmarks import zoo
from models import demonstration
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


def test_what_times_steps_is_called_like_what_it_stands_for() -> None:
    own, other = (
        inspect.signature(train).parameters for train in (zoo.Watch.train, demonstration.train)
    )
    assert list(own)[1:] == list(other)


def test_trainings_are_measured_apart() -> None:
    found = dict(zoo.measured_apart(["sgc", "bgan"], "metaop"))
    assert list(found) == ["sgc", "bgan"]
    assert found["sgc"]["parameters"] == 34 * 2 + 2 and found["sgc"]["steps"] > zoo.WARM_UP
    assert found["sgc"]["reached"].startswith("accuracy") and found["sgc"]["seconds"] > 0
    # Steps of both players, and no parameter of the first network.
    assert "discriminator" in found["bgan"]["reached"] and found["bgan"]["parameters"] == 76_289
    assert found["sgc"]["picture"] is None and 0 < found["sgc"]["bytes"] < 500e6
    image = Image.open(io.BytesIO(base64.b64decode(found["bgan"]["picture"])))
    assert max(image.size) <= zoo.MOST_PIXELS


def test_steps_of_other_loops_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metaop.optim.Optimizer, "__init__", metaop.optim.Optimizer.__init__)
    watch = zoo.Watch(metaop, SimpleNamespace(), 1.0)
    parameter = metaop.nn.Parameter(metaop.ones(3))
    optimizer = metaop.optim.SGD([parameter], lr=0.1)
    for _ in range(4):
        demonstration.update(optimizer, parameter.sum()).item()
    watch.hook.remove()
    assert len(watch.ends) == 4 and watch.ends == sorted(watch.ends)
    assert sum(watch.parameters.values()) == 3


def test_what_cannot_be_trained_has_no_result() -> None:
    found = dict(zoo.measured_apart(["sgc", "mlp"], "torch"))
    assert found["sgc"] is None
    assert found["mlp"]["parameters"] == 17_226 and found["mlp"]["seconds"] > 0


def test_rows_tell_what_was_measured() -> None:
    result = {"parameters": 1234, "steps": 7, "seconds": 0.0251, "reached": "loss 0.500"}
    row = zoo.cells("lsgan", {**result, "bytes": 81_700_000}, {})
    assert row[0] == "`lsgan`" and row[3:7] == ["1,234", "7", "loss 0.500", "25.1"]
    assert row[7:] == ["–", "82", "–", "![lsgan](assets/zoo/lsgan.png)"]
    assert zoo.reached("epoch\naccuracy 0.914 of new ones\n\n", {}) == "accuracy 0.914 of new ones"
    assert zoo.reached(".:*#\n", {"loss": [9.0] * 5 + [1.0] * 10}) == "loss 1.000"
