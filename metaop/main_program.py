"""Runs a script or a module as `__main__`, as Python's command line does."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence


def run_as_main(program: Sequence[str]) -> None:
    """Runs `script.py argument …` or `-m module argument …`, with its arguments and imports."""
    if program[0] == "-m":
        sys.argv = list(program[1:])
        sys.path[0] = os.getcwd()
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(program)
        sys.path[0] = os.path.dirname(os.path.abspath(program[0]))
        runpy.run_path(program[0], run_name="__main__")
