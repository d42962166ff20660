"""`metaop run --data-parallel`: programs for one device give the losses of one process on ranks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from metaop.dist.launch import launch_environment
from tests.convert.running import FOLDER, STEPS
from tests.dist.jobs import PROGRAMS, ROOT, needs_mpi, run

pytestmark = [pytest.mark.mpi, needs_mpi]

SWITCH = ["--data-parallel"]
UNAWARE = PROGRAMS / "for_one_device.py"
# Of the programs that test the converter: batch norm, recurrence, two networks, gradients of
# gradients, samples drawn from what is predicted, temporary files.
CONVERTED = ("gan_vanilla", "lm_rnn", "meta_maml", "mixed_precision", "rl_reinforce", "vae")


def alone(program: Path, *arguments: str) -> str:
    """What a program prints without any ranks."""
    done = subprocess.run(
        [sys.executable, str(program), *arguments],
        env={**launch_environment(1), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def values_in(folder: Path) -> dict[str, list[float]]:
    found: dict[str, list[float]] = json.loads((folder / "losses.json").read_text())
    return found


def test_programs_for_one_device_train_alike_on_ranks(tmp_path: Path) -> None:
    single, several = tmp_path / "single", tmp_path / "several"
    single.mkdir()
    several.mkdir()
    alone(UNAWARE, str(single))
    done = run(UNAWARE, 2, str(several), options=SWITCH)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("step 3  loss") == 1, "rank 0 alone prints"
    expected, found = values_in(single), values_in(several)
    for name in expected.keys() | found.keys():
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, err_msg=name)
    assert len((several / "made" / "here" / "log.txt").read_text().splitlines()) == 6


def test_converted_programs_train_alike_on_ranks(tmp_path: Path) -> None:
    pytest.importorskip("libcst")
    from metaop.convert import convert_source

    parts = ["import json, sys", "import numpy", "import metaop", "found = {}"]
    for name in CONVERTED:
        text = convert_source((FOLDER / f"{name}.py").read_text()).text
        (tmp_path / f"{name}.py").write_text(text)
        parts += [
            "metaop.manual_seed(0), numpy.random.seed(0)",
            f"import {name}",
            f"found['{name}'] = [float(x) for x in {name}.train({name}.build(), {STEPS})]",
        ]
    parts += ["with open(sys.argv[1], 'w') as file:", "    json.dump(found, file)"]
    program = tmp_path / "all.py"
    program.write_text("\n".join(parts))
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    alone(program, str(one))
    done = run(program, 2, str(two), options=SWITCH)
    assert done.returncode == 0, done.stderr
    expected, found = json.loads(one.read_text()), json.loads(two.read_text())
    for name in CONVERTED:
        # Weights whose gradient is rounding alone move by it: normalisation follows.
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, atol=1e-6, err_msg=name)


def test_examples_print_the_same_under_plain_mpirun() -> None:
    example = ROOT / "examples" / "text_generation.py"
    command = ["mpirun", "-np", "2", sys.executable, "-m", "metaop", "run", *SWITCH, str(example)]
    done = subprocess.run(
        command,
        env={**launch_environment(2), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == alone(example)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("x = numpy.random.default_rng().random((4, 3), 'float32')", "data float32[4, 3]"),
        ("metaop.distributed.init_process_group()", "init_process_group() in a program"),
        ("nn.parallel.DistributedDataParallel(model)", "DistributedDataParallel in a program"),
    ],
)
def test_what_would_train_wrong_is_refused(line: str, message: str, tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    lines = ["import metaop, numpy", "from metaop import nn", "model = nn.Linear(3, 2)"]
    lines += ["x = numpy.ones((4, 3), 'float32')", line, "model(metaop.tensor(x)).sum().item()"]
    program.write_text("\n".join(lines))
    done = run(program, 2, options=SWITCH)
    assert done.returncode != 0
    assert message in done.stderr
