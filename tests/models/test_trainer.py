"""`models/trainer.py`: its loop, and networks cut up by options, against a single device."""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from metaop import nn
from metaop.errors import ArgumentError, DistributedError
from models.__main__ import main, networks
from models.gpt import GPT
from models.mlp import MLP
from models.parallel import Parallel
from models.trainer import Trainer, Training, Values
from tests.dist.jobs import needs_mpi, run

F = nn.functional
STEPS = 20
SMALL: dict[str, tuple[str, ...]] = {
    "gpt": ("--layers", "1", "--heads", "2", "--context", "10", "--write", "1", "--tied", "0"),
    "bert": ("--layers", "1", "--heads", "2", "--tied", "0"),
    "vit": (),
    "swin": (),
}


def words(model: str, log: Path, steps: int, *more: str) -> list[str]:
    sizes = ["--width", "16", "--batch-size", "4", "--steps", str(steps), "--log", str(log)]
    return [model, "train", *sizes, *SMALL[model], *more]


def losses(log: Path) -> list[float]:
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(len(lines)))
    return [line["loss"] for line in lines]


def on_ranks(ranks: int, model: str, log: Path, steps: int, *more: str) -> list[float]:
    done = run(
        Path(__file__).with_name("on_ranks.py"),
        ranks,
        *words(model, log, steps, *more),
        timeout=300,
        METAOP_VERIFY="0",
        METAOP_POISON="0",
    )
    assert done.returncode == 0, done.stderr
    return losses(log)


@needs_mpi
@pytest.mark.mpi
@pytest.mark.parametrize(
    ("model", "ranks", "options"),
    [
        ("gpt", 4, "--data-parallel 2 --tensor-parallel 2"),
        pytest.param("bert", 2, "--pipeline 2", marks=pytest.mark.nightly),
        pytest.param("bert", 2, "--auto-parallel", marks=pytest.mark.nightly),
        pytest.param("vit", 2, "--tensor-parallel 2", marks=pytest.mark.nightly),
        pytest.param("swin", 2, "--pipeline 2", marks=pytest.mark.nightly),
    ],
)
def test_networks_cut_up_by_options_train_as_on_one_device(
    model: str, ranks: int, options: str, tmp_path: Path
) -> None:
    found = on_ranks(ranks, model, tmp_path / "several", STEPS, *options.split())
    main(words(model, tmp_path / "one", STEPS))
    np.testing.assert_allclose(found, losses(tmp_path / "one"), rtol=1e-5)
    assert len(found) == STEPS


@needs_mpi
@pytest.mark.mpi
@pytest.mark.nightly
def test_a_training_goes_on_on_another_mesh(tmp_path: Path) -> None:
    log, kept = tmp_path / "log", ("--checkpoint", str(tmp_path / "kept"))
    on_ranks(2, "gpt", log, 8, "--pipeline", "2", *kept)
    on_ranks(2, "gpt", log, 14, "--tensor-parallel", "2", *kept)
    main(words("gpt", log, STEPS, *kept))
    main(words("gpt", tmp_path / "one", STEPS))
    np.testing.assert_allclose(losses(log), losses(tmp_path / "one"), rtol=1e-5)


def trainer(training: Training) -> Trainer:
    metaop.manual_seed(0)
    model = MLP(3, 8, 2)

    def batch(number: int) -> list[metaop.Tensor]:
        x = np.random.default_rng(number).standard_normal((5, 3)).astype(np.float32)
        return [metaop.from_numpy(x), metaop.from_numpy((x[:, 0] > 0).astype(np.int64))]

    def values(network: Any, x: metaop.Tensor, y: metaop.Tensor) -> Values:
        logits = network(x)
        right = (logits.argmax(1) == y).float().mean()
        return {"loss": F.cross_entropy(logits, y), "accuracy": right}

    return Trainer(model, metaop.optim.Adam(model.parameters()), batch, values, training)


def test_a_log_has_the_steps_once_when_a_training_was_broken_off(tmp_path: Path) -> None:
    whole = trainer(Training(9, clip=0.1)).fit("MLP")
    path = str(tmp_path / "kept.pth")
    log = str(tmp_path / "made" / "log")
    first = trainer(Training(4, path, log=log, clip=0.1)).fit("MLP")
    with open(log, "a") as file:
        file.write(json.dumps({"step": 4, "loss": 99.0}) + "\n")
    assert first["loss"] == whole["loss"][:4]
    assert trainer(Training(9, path, log=log, clip=0.1)).fit("MLP") == whole
    assert losses(Path(log)) == whole["loss"]


def test_evaluation_weights_batches_by_their_length() -> None:
    one = trainer(Training(0))
    x, y = one.batch(1)
    together = one.evaluate([(x, y)])
    apart = one.evaluate([(x[:4], y[:4]), (x[4:], y[4:])])
    assert apart == pytest.approx(together) and one.model.training


@pytest.mark.parametrize(
    ("parallel", "message"),
    [
        (Parallel(2, 2, 2), "needs 8 ranks, and the job has 1"),
        (Parallel(pipeline=0), "below 1"),
        (Parallel(data=2, auto=True), "auto excludes other degrees"),
    ],
)
def test_ranks_that_are_not_there_are_refused(parallel: Parallel, message: str) -> None:
    with pytest.raises((ArgumentError, DistributedError), match=message):
        parallel.start()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda: GPT(7, 4, 8, 2, 2), "stages 0 and 1 share"),
        (lambda: MLP(3, 2), "has no in_order"),
    ],
)
def test_networks_that_cannot_be_a_pipeline_are_refused(model: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Parallel(pipeline=2).stages(model())


def test_weights_that_nobody_says_how_to_cut_are_refused() -> None:
    with pytest.raises(ArgumentError, match="does not name the weights to split"):
        Parallel(tensor=2).cut(MLP(3, 2), None, MLP(3, 2))


def test_options_are_read() -> None:
    options = argparse.Namespace(steps=3, checkpoint="y", log="x", data_parallel=2, pipeline=3)
    training = Training.of(options, micro_batches=4)
    assert training == Training(3, "y", log="x", micro_batches=4, parallel=Parallel(2, 1, 3))


def test_every_training_has_a_checkpoint(capsys: pytest.CaptureFixture[str]) -> None:
    for name in networks():
        with pytest.raises(SystemExit):
            importlib.import_module(f"models.{name}").main(["--help"])
        assert ("--resume" if name == "lenet" else "--checkpoint") in capsys.readouterr().out, name


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("mlp", "--batch-size 4"),
        ("unet", "--batch-size 2 --width 4 --size 16"),
        pytest.param(
            *("point_cloud", "--batch-size 2 --width 8 --points 16"), marks=pytest.mark.nightly
        ),
        pytest.param("squeezenet", "--batch-size 2", marks=pytest.mark.nightly),
    ],
)
def test_trainings_go_on_where_they_were_interrupted(name: str, sizes: str, tmp_path: Path) -> None:
    words = [name, "train", *sizes.split(), "--checkpoint"]
    for file, steps in (("whole", 5), ("parts", 2), ("parts", 5)):
        main([*words, str(tmp_path / f"{file}.pth"), "--steps", str(steps)])
    whole, parts = (metaop.load(tmp_path / f"{file}.pth") for file in ("whole", "parts"))
    for value, found in zip(whole["history"].values(), parts["history"].values()):
        assert len(value) == 5
        # The first step after reading is a program of its own, which may round in another order.
        np.testing.assert_allclose(found, value, rtol=1e-5)
