"""Event files that TensorBoard reads, and programs that do without its package."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import metaop
from metaop.errors import MissingPackageError
from metaop.utils.tensorboard import SummaryWriter


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path)) as writer:
        for step, loss in enumerate(metaop.tensor([1.5, 0.5])):
            writer.add_scalar("loss", loss, step)
        writer.add_histogram("weights", metaop.linspace(-1, 1, 100), 1)
        writer.add_image("picture", metaop.rand(3, 8, 6), 1)
        writer.add_text("remark", "hello", 1)
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [(one.step, one.value) for one in events.Scalars("loss")] == [(0, 1.5), (1, 0.5)]
    histogram = events.Histograms("weights")[0].histogram_value
    assert (histogram.min, histogram.max, histogram.num) == (-1, 1, 100)
    picture = events.Images("picture")[0]
    assert (picture.width, picture.height, picture.step) == (6, 8, 1)
    assert events.Tags()["tensors"] == ["remark/text_summary"]


def test_importing_a_name_tells_that_the_package_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ImportError, match="pip install tensorboard") as caught:
        from metaop.utils.tensorboard import FileWriter  # noqa: F401
    assert isinstance(caught.value, MissingPackageError)
