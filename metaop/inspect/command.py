"""`metaop doctor [program.py arguments]`: what is slow here and in a program, and what to set."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from metaop.main_program import run_as_main


def add_command(commands: Any) -> None:
    """Adds `doctor` to the subcommands of `metaop`."""
    parser = commands.add_parser("doctor", help="what is slow here and why, and what to set")
    parser.add_argument("--lines", action="store_true", help="the time by user line as well")
    parser.add_argument("--flame", metavar="FILE.svg", help="draw the time of lines and kernels")
    parser.add_argument("-m", "--module", help="a module to run instead of a script")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="script.py and its arguments")
    parser.set_defaults(run=lambda arguments: _run(parser, arguments))


def _run(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    from metaop.inspect import doctor

    examination = doctor()
    program = arguments.program
    if arguments.module:
        program = ["-m", arguments.module, *program]
    if not program:
        if arguments.lines or arguments.flame:
            parser.error("there is no program whose lines could be told: name a script")
        print(examination.report(), end="")
        return 0
    if not arguments.module and not os.path.exists(program[0]):
        parser.error(f"there is no file {program[0]!r}; a module is run with -m")
    if arguments.flame and not arguments.flame.endswith(".svg"):
        parser.error(f"a flame view is SVG, not {arguments.flame}: name it ….svg")
    with examination:
        code = _code_of(program)
    # The program may have closed its standard output, or filled it with what others read.
    print(examination.report(), end="", file=sys.stderr)
    if arguments.lines:
        print(examination.lines(), end="", file=sys.stderr)
    if arguments.flame:
        examination.flame(arguments.flame)
    return code


def _code_of(program: Sequence[str]) -> int:
    """Runs a program in this process; its exit code."""
    try:
        run_as_main(program)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0
