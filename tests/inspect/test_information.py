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


def test_the_command_prints_settings_of_the_environment() -> None:
    environment = {**os.environ, "METAOP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "metaop", "info"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "METAOP_NUM_THREADS         1 (set)" in done.stdout
    assert "self-test" in done.stdout
