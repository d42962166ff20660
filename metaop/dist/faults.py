"""A rank that fails ends the job on all ranks: an MPI job whose rank has gone waits for ever."""

from __future__ import annotations

import atexit
import sys
import threading
import traceback
from types import TracebackType
from typing import Any

_installed: list[Any] = []


def install_hooks(communicator: Any) -> None:
    """Makes an uncaught exception or a non-zero exit of this rank end the whole job.

    The message names the rank and the line. Called when MPI is used by more than one rank.
    """
    if _installed:
        return
    _installed.append(communicator)
    sys.excepthook = _on_exception
    threading.excepthook = _on_thread_exception
    _watch_exit()


def _on_exception(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    _abort(kind, error, trace)


def _on_thread_exception(arguments: threading.ExceptHookArgs) -> None:
    if arguments.exc_value is not None and arguments.exc_type is not SystemExit:
        _abort(arguments.exc_type, arguments.exc_value, arguments.exc_traceback)


def _abort(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    communicator = _installed[0]
    traceback.print_exception(kind, error, trace)
    frames = traceback.extract_tb(trace)
    where = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    _say(f"rank {communicator.rank} failed{where}: {kind.__name__}: {error}")
    communicator.Abort(1)


def _say(text: str) -> None:
    sys.stdout.flush()
    print(f"metaop: {text}; the job ends", file=sys.stderr, flush=True)


def _watch_exit() -> None:
    """`sys.exit(code)` with a code other than 0 does not reach the excepthook: note it here."""
    original = sys.exit
    code: list[Any] = []

    def leave(status: Any = None) -> Any:
        code[:] = [status]
        original(status)

    def at_exit() -> None:
        if code and code[0] not in (None, 0) and threading.current_thread() is _main():
            communicator = _installed[0]
            status = code[0] if isinstance(code[0], int) else 1
            _say(f"rank {communicator.rank} left with exit code {code[0]!r}")
            communicator.Abort(status)

    sys.exit = leave
    # Exit functions run in reverse order, so this one comes before MPI's own.
    atexit.register(at_exit)


def _main() -> threading.Thread:
    return threading.main_thread()
