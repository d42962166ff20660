"""Settings that hold what they cannot mean are refused at once."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from metaop import settings
from metaop.errors import ArgumentError
from metaop.settings import Size

# What no setting of a type can be.
NONSENSE = {
    bool: ("maybe", "2", "nan"),
    int: ("many", "1.5", "-7", "nan", "", "1e3"),
    float: ("soon", "-1", "nan", ""),
    Size: ("much", "-1MB", "nan", "", "5 PB", "inf"),
    str: ("nonsense", ""),
}
CASES = [
    (setting.name, text)
    for setting in settings.SETTINGS
    for text in NONSENSE[setting.type]
    if setting.type is not str or setting.choices
]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *CASES,
        ("METAOP_CACHE_DIR", ""),
        ("METAOP_CACHE_DIR", __file__),
        ("METAOP_DUMP", __file__),
        ("METAOP_NUM_THREADS", "1000000000"),
        ("METAOP_COMPILE_PROCESSES", "1000000000"),
        ("METAOP_PENDING_LIMIT", "0"),
    ],
)
def test_nonsense_is_refused(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(ArgumentError, match=rf"{name} is [\s\S]*fix: unset it or set it like"):
        settings.check()


def test_what_is_legal_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in settings.SETTINGS:
        for text in (setting.default, *setting.choices):
            monkeypatch.setenv(setting.name, text)
            settings.check()
    monkeypatch.setenv("METAOP_TIMEOUT_SECONDS", "inf")
    settings.check()


def test_a_program_with_nonsense_ends_before_it_computes() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import metaop; print('went on')"],
        env={**os.environ, "METAOP_WATCHDOG_SECONDS": "soon"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode != 0 and "went on" not in done.stdout
    assert "METAOP_WATCHDOG_SECONDS is 'soon', which is no float" in done.stderr
