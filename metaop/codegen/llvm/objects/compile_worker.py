"""A process that compiles modules for another one: requests come in, objects go out.

It imports LLVM's part of the package alone, which takes a tenth of a second. It ends when it is
told to, when nobody holds the other end any more, and when nothing was asked for a while.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
from threading import Timer

from metaop.codegen.llvm.objects.object_code import compile_object

# Started as `python -I -S -c BOOT package paths`: the package without what its users import.
BOOT = """
import sys, types
package = types.ModuleType("metaop")
package.__path__ = [sys.argv[1]]
sys.modules["metaop"] = package
sys.path[:] = sys.argv[2:]
from metaop.codegen.llvm.objects.compile_worker import serve
serve()
"""
# Nobody asks an idle worker of a process that has ended, even if another one keeps its pipe open.
_LONGEST_WAIT = 60.0


def serve() -> None:
    """Answers each pair of a text and a target with an object, or None if that fails."""
    requests = sys.stdin.buffer
    with os.fdopen(os.dup(1), "wb") as answers, contextlib.suppress(EOFError, BrokenPipeError):
        os.dup2(2, 1)  # what LLVM prints must not get between the answers
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
            except Exception:  # the other side repeats it and tells the user why
                answer = None
            pickle.dump(answer, answers)
            answers.flush()
