"""A process that compiles modules for another one: it reads jobs and writes objects.

It imports only the part of the package for LLVM, which takes a tenth of a second. It ends on
request, when the other end of the pipe is closed, or when it has been idle for a while.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import sys
import threading

from metaop.codegen.llvm.objects.job import Job

# Started as `python -I -S -c BOOT package niceness paths`: the package without its public imports.
BOOT = """
import os, sys, types
package = types.ModuleType("metaop")
package.__path__ = [sys.argv[1]]
sys.modules["metaop"] = package
if hasattr(os, "nice"):
    os.nice(int(sys.argv[2]))
sys.path[:] = sys.argv[3:]
from metaop.codegen.llvm.objects.compile_worker import serve
serve()
"""
# An idle worker ends even if its process has died and another one keeps the pipe open.
_LONGEST_WAIT = 60.0


def serve() -> None:
    """Does the jobs that it reads, and answers each with what is known of it then."""
    waiting: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(waiting,), daemon=True).start()
    with os.fdopen(os.dup(1), "wb") as answers, contextlib.suppress(queue.Empty, BrokenPipeError):
        os.dup2(2, 1)  # LLVM's output must not be mixed into the answers
        while job := waiting.get(timeout=_LONGEST_WAIT):
            # If it fails, the other side compiles it again and reports the error.
            with contextlib.suppress(Exception):
                job.do()
            pickle.dump((job.content, job.was_stored), answers)
            answers.flush()


def _read(waiting: queue.SimpleQueue[Job | None]) -> None:
    """Queues all jobs as they come, so that the other side never waits until it has sent one."""
    with contextlib.suppress(EOFError):
        while job := pickle.load(sys.stdin.buffer):
            waiting.put(job)
    waiting.put(None)
