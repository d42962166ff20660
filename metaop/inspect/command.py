"""`metaop doctor [program.py arguments]`: finds what is slow and suggests settings."""

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
    parser = commands.add_parser("doctor", help="find what is slow, and suggest settings")
    parser.add_argument("--lines", action="store_true", help="also print the time by source line")
    parser.add_argument("--flame", metavar="FILE.svg", help="draw a flame view of the time")
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
            parser.error("--lines and --flame need a program: name a script")
        print(examination.report(), end="")
        return 0
    if not arguments.module and not os.path.exists(program[0]):
        parser.error(f"there is no file {program[0]!r}; use -m to run a module")
    if arguments.flame and not arguments.flame.endswith(".svg"):
        parser.error(f"a flame view is an SVG file, not {arguments.flame}: name it ….svg")
    with examination:
        code = _code_of(program)
    # The program may have closed its standard output, or written data there that others read.
    print(examination.report(), end="", file=sys.stderr)
    if arguments.lines:
        print(examination.lines(), end="", file=sys.stderr)
    if arguments.flame:
        examination.flame(arguments.flame)
    return code


def _code_of(program: Sequence[str]) -> int:
    """Runs a program in this process; returns its exit code."""
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
