"""Ends the processes of a job when its launcher ends, even if that is killed.

All of them have the job's folder in their environment. A small separate process, which runs this
file, waits for the launcher to end, because no signal handler sees SIGKILL. This file imports only
Python's standard library, so that the process starts quickly.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

# Names the folder of the job in the environment of its processes.
JOB_FOLDER = "METAOP_JOB_FOLDER"
# Signals that end a launcher: from terminals, users and schedulers.
# Windows has no SIGHUP.
_ENDING = [
    getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)
]
# Seconds to wait: for mpirun, which may also have received the signal, to end by itself; for it to
# end its ranks; for other processes to end after SIGTERM, and after SIGKILL.
_BY_ITSELF, _WITH_RANKS, _TERMINATED, _KILLED = 1.0, 5.0, 1.0, 2.0
_PAUSE = 0.02
_PROCESSES = Path("/proc")


class _Signalled(BaseException):
    """A signal that ends the launcher has arrived."""

    def __init__(self, number: int) -> None:
        self.number = number


def supervise(command: Sequence[str], environment: Mapping[str, str], folder: str) -> int:
    """Runs `mpirun`; returns its exit code, or 128 + n if signal n ends it or this process.

    Must be called by the main thread. A job that fails or is ended leaves no processes behind.
    """
    before = {number: signal.getsignal(number) for number in _ENDING}
    # A parent such as nohup may have asked this process to ignore a signal.
    heeded = [number for number in _ENDING if before[number] is not signal.SIG_IGN]
    mpirun = guard = None
    try:
        for number in heeded:
            signal.signal(number, _raise)
        mpirun = subprocess.Popen(command, env={**environment, JOB_FOLDER: folder})
        guard = _start_guard(folder, mpirun.pid)
        status = mpirun.wait()
        status = status if status >= 0 else 128 - status
    except _Signalled as signalled:
        status = 128 + signalled.number
    finally:
        for number in heeded:
            signal.signal(number, signal.SIG_IGN)
        if mpirun is None or mpirun.poll() != 0:
            _end(folder, mpirun.pid if mpirun else 0)
        if guard is not None:
            guard.communicate(b"ended")
        for number in heeded:
            signal.signal(number, before[number])
    return status


def _raise(number: int, frame: Any) -> None:
    raise _Signalled(number)


def _start_guard(folder: str, mpirun: int) -> subprocess.Popen[bytes]:
    """Starts a process that ends the job when its input closes without a message."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, folder, str(mpirun)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # Signals from a terminal go to all processes of a session.
        start_new_session=True,
    )


def _guard(folder: str, mpirun: int) -> None:
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)
    if not sys.stdin.buffer.read():
        _end(folder, mpirun)
        shutil.rmtree(folder, ignore_errors=True)


def _end(folder: str, mpirun: int) -> None:
    """Ends mpirun, which ends its ranks, and then what is left of the job."""
    _wait_while(lambda: mpirun in _members(folder, mpirun), _BY_ITSELF)
    if mpirun in _members(folder, mpirun):
        _send([mpirun], signal.SIGTERM)
        _wait_while(lambda: mpirun in _members(folder, mpirun), _WITH_RANKS)
    for number, seconds in ((signal.SIGTERM, _TERMINATED), (signal.SIGKILL, _KILLED)):
        _send(_members(folder, mpirun), number)
        _wait_while(lambda: bool(_members(folder, mpirun)), seconds)


def _wait_while(is_there: Callable[[], bool], seconds: float) -> None:
    last = time.monotonic() + seconds
    while is_there() and time.monotonic() < last:
        time.sleep(_PAUSE)


def _send(processes: Sequence[int], number: int) -> None:
    for process in processes:
        with suppress(OSError):
            os.kill(process, number)


def _members(folder: str, mpirun: int) -> list[int]:
    """The processes of the job; only mpirun if the system does not reveal environments."""
    if not _PROCESSES.is_dir():
        return [mpirun] if _is_running(mpirun) else []
    mark = f"{JOB_FOLDER}={folder}".encode()
    found = []
    for entry in _PROCESSES.iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def _is_running(process: int) -> bool:
    try:
        # A child that has ended remains until its parent waits for it.
        with suppress(ChildProcessError):
            os.waitpid(process, os.WNOHANG)
        os.kill(process, 0)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    _guard(sys.argv[1], int(sys.argv[2]))
