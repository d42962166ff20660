"""A process that compiles modules for another one: it reads requests and writes objects.

It imports only the part of the package for LLVM, which takes a tenth of a second. It ends on
request, when the other end of the pipe is closed, or when it has been idle for a while.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
from threading import Timer

from metaop.codegen.llvm.objects.object_code import compile_object

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
    """Answers the arguments of each module with an object, or None if that fails."""
    requests = sys.stdin.buffer
    with os.fdopen(os.dup(1), "wb") as answers, contextlib.suppress(EOFError, BrokenPipeError):
        os.dup2(2, 1)  # LLVM's output must not be mixed into the answers
        while True:
            end = Timer(_LONGEST_WAIT, os._exit, (0,))
            end.daemon = True
            end.start()
            request = pickle.load(requests)
            end.cancel()
            if request is None:
                return
            try:
                answer = compile_object(*request)
            except Exception:  # the other side compiles it again and reports the error
                answer = None
            pickle.dump(answer, answers)
            answers.flush()
