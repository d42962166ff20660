"""Networks in files give the same outputs in a process that cannot import them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import metaop
from metaop.utils._pytree import tree_leaves
from tests.export import fresh_process
from tests.export.networks import FURTHER, NETWORKS, QUICK, Case, resized


def write(name: str, case: Case, folder: Path) -> Path:
    """The program of a network, and two calls of it with their outputs."""
    metaop.manual_seed(0)
    model, here = case.build().eval(), folder / name
    here.mkdir()
    examples = tuple(map(metaop.from_numpy, case.inputs))
    metaop.export(model, examples, here / "program.mo", dynamic=case.dynamic)
    calls = [case.inputs, resized(case)] if case.others else [case.inputs]
    for number, arrays in enumerate(calls):
        with metaop.no_grad():
            found = tree_leaves(model(*map(metaop.from_numpy, arrays)))
        for k, array in enumerate(arrays):
            np.save(here / f"{number}_input_{k}.npy", array)
        for k, tensor in enumerate(found):
            np.save(here / f"{number}_output_{k:02}.npy", tensor.numpy())
    return here


def check(cases: Mapping[str, Case], folder: Path) -> None:
    folders = [str(write(name, case, folder)) for name, case in cases.items()]
    done = subprocess.run(
        [sys.executable, "-P", fresh_process.__file__, *folders],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(metaop.__file__).parents[1])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == f"{len(folders)} programs\n"


def test_a_dozen_networks_run_without_their_source(tmp_path: Path) -> None:
    check(QUICK, tmp_path)


@pytest.mark.nightly
def test_further_networks_run_without_their_source(tmp_path: Path) -> None:
    check(FURTHER, tmp_path)
    assert len(NETWORKS) == len(QUICK) + len(FURTHER)
