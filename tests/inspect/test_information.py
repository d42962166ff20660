"""`python -m metaop info`."""

from __future__ import annotations

import os
import subprocess
import sys

import metaop
from metaop import settings
from metaop.inspect import information


def test_info_shows_versions_and_every_setting() -> None:
    text = metaop.inspect.info()
    assert metaop.__version__ in text
    for setting in settings.SETTINGS:
        assert f"{setting.name} " in text and setting.meaning in text


def test_the_self_test_passes_and_can_fail(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    lines = information.self_test().splitlines()
    assert len(lines) == len(information._CHECKS) and all(line.startswith("ok ") for line in lines)
    monkeypatch.setattr(information.np, "exp", lambda values: values)
    assert "WRONG  elementwise" in information.self_test()


def test_gpus_are_described_and_tested() -> None:
    program = (
        "from tests.cuda.emulator import cupy_stand_in; cupy_stand_in.install(devices=2);"
        "from metaop.inspect import info, self_test; print(info(), self_test())"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    for wanted in (
        "driver  CUDA 13.0",
        "cuda:1  emulated 1, compute capability 9.0, 2 multiprocessors, 1 GiB",
        "ok  gradient on cuda:1",
    ):
        assert wanted in done.stdout
    assert "WRONG" not in done.stdout


def test_the_command_prints_settings_of_the_environment() -> None:
    environment = {**os.environ, "METAOP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "metaop", "info"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "METAOP_NUM_THREADS         1 (set)" in done.stdout
    assert "self-test" in done.stdout
