"""A job ends with its launcher, whatever signal ends the launcher or mpirun."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from metaop.dist.launch import launch_environment
from tests.dist.jobs import PROGRAMS, ROOT, needs_mpi

pytestmark = [
    pytest.mark.mpi,
    needs_mpi,
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="the system shows no processes"),
]
# Seconds in which everything is over.
_SOON = 10.0


def _start() -> tuple[subprocess.Popen[str], list[int], Path]:
    """A launcher, the processes of its ranks and the folder of its job."""
    command = [sys.executable, "-m", "metaop", "run", "-np", "2", str(PROGRAMS / "waiting.py")]
    environment = {**launch_environment(2), "PYTHONPATH": str(ROOT)}
    launcher = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=_hear_signals,
    )
    assert launcher.stdout is not None
    words = [launcher.stdout.readline().split() for _ in range(2)]
    return launcher, [int(line[1]) for line in words], Path(words[0][3])


def _hear_signals() -> None:
    """Who runs the tests may ignore signals, as a shell in the background: that is inherited."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _is_running(process: int) -> bool:
    """Whether the process is there and has not ended (its parent may not have asked for it)."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _happens(event: Callable[[], bool]) -> bool:
    last = time.monotonic() + _SOON
    while not event():
        if time.monotonic() > last:
            return False
        time.sleep(0.05)
    return True


def _parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize(
    ("whom", "number"),
    [
        ("launcher", signal.SIGTERM),
        ("launcher", signal.SIGINT),
        ("launcher", signal.SIGHUP),
        ("launcher", signal.SIGKILL),
        ("mpirun", signal.SIGKILL),
    ],
)
def test_a_signal_leaves_no_rank_and_no_shared_memory(whom: str, number: int) -> None:
    launcher, ranks, folder = _start()
    assert folder.is_dir() and all(map(_is_running, ranks))
    os.kill(launcher.pid if whom == "launcher" else _parent(ranks[0]), number)
    launcher.communicate(timeout=_SOON)
    code = launcher.returncode
    unseen = whom == "launcher" and number == signal.SIGKILL
    assert code == (-number if unseen else 128 + number)
    assert _happens(lambda: not any(map(_is_running, ranks)))
    assert _happens(lambda: not folder.exists())
