"""Ends the job on all ranks when one fails: the others would wait for it forever."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from multiprocessing import get_start_method, parent_process
from multiprocessing.util import Finalize
from types import TracebackType
from typing import Any

from metaop.dist.job import job, may_lose_ranks
from metaop.errors import DistributedError

# Names a file that ranks create when they finish (set by `metaop run --with-ft`).
FINISHED = "METAOP_FINISHED_FILE"


def install_hooks(end_together: Callable[[], None]) -> None:
    """Makes an uncaught exception or a non-zero exit of this rank end the whole job.

    The message names the rank and the line. Called when more than one rank uses MPI.
    `end_together` is called when a rank ends without an error; it raises DistributedError if other
    ranks still expect it to take part in something.
    """
    sys.excepthook = _on_exception
    threading.excepthook = _on_thread_exception
    _watch_exit(end_together)


def _on_exception(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    _abort(kind, error, trace)


def _on_thread_exception(arguments: threading.ExceptHookArgs) -> None:
    if arguments.exc_value is not None and arguments.exc_type is not SystemExit:
        _abort(arguments.exc_type, arguments.exc_value, arguments.exc_traceback)


def _abort(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    traceback.print_exception(kind, error, trace)
    frames = traceback.extract_tb(trace)
    where = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    _leave(f"failed{where}: {kind.__name__}: {error}", 1)


def _leave(what: str, status: int) -> None:
    """Ends the job; if the others continue without this rank, ends this rank alone."""
    sys.stdout.flush()
    ending = "the others continue" if job.goes_on else "the job ends"
    print(f"metaop: rank {job.everyone.rank} {what}; {ending}", file=sys.stderr, flush=True)
    if job.goes_on:
        os.kill(os.getpid(), signal.SIGKILL)
    job.everyone.Abort(status)


def _watch_exit(end_together: Callable[[], None]) -> None:
    """Notes `sys.exit(code)` with a non-zero code, which does not reach the excepthook."""
    original, process = sys.exit, os.getpid()
    code: list[Any] = []

    def leave(status: Any = None) -> Any:
        if threading.current_thread() is threading.main_thread():
            code[:] = [status]
        original(status)

    def at_exit() -> None:
        if os.getpid() != process:
            return
        kind, error, trace = sys.exc_info()
        if is_forked() and kind is not None and error is not None:
            _abort(kind, error, trace)
        if code and code[0] not in (None, 0):
            status = code[0] if isinstance(code[0], int) else 1
            _leave(f"exited with code {code[0]!r}", status)
        try:
            end_together()
        except DistributedError as error:
            _leave(f"finished before the others: {error}", 1)
        if may_lose_ranks() and not job.losses:
            from mpi4py import MPI

            MPI.Finalize()
        if marker := os.environ.get(FINISHED):
            open(marker, "w").close()

    sys.exit = leave
    # Exit functions run in reverse order, so this one comes before MPI's own.
    call_at_exit(at_exit)


def call_at_exit(function: Callable[[], None]) -> None:
    """Calls `function` when this process ends, in reverse order of registration."""
    if is_forked():
        Finalize(None, function, exitpriority=0)
    else:
        atexit.register(function)


def is_forked() -> bool:
    """Whether multiprocessing forked this process, so that atexit functions do not run."""
    return parent_process() is not None and get_start_method(allow_none=True) in (None, "fork")
