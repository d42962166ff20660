"""The subcommand `compile`: builds a C library from a program in a file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from metaop.errors import MetaopError


def add_command(commands: Any) -> None:
    """Adds the subcommand to an argument parser."""
    compile = commands.add_parser("compile", help="build a shared library from a program (.mo)")
    compile.add_argument("program", type=Path, help="a file that metaop.export wrote")
    compile.add_argument(
        "-o", "--output", type=Path, required=True, help="libNAME.so or NAME.o; NAME.h goes beside"
    )
    compile.add_argument(
        "--target", default="native", help="native, x86-64, x86-64-v3, x86-64-v4 or aarch64"
    )
    compile.add_argument(
        "--size",
        action="append",
        default=[],
        type=_size,
        metavar="NAME=VALUE",
        help="fixes the size of a named axis; others are parameters of the function",
    )
    compile.add_argument(
        "--exact",
        action="append",
        default=[],
        type=_sizes,
        metavar="NAME=VALUE,...",
        help="code of its own, which may be faster, for calls with these sizes",
    )
    compile.add_argument(
        "--weights-beside", action="store_true", help="write the weights to a separate file"
    )
    compile.set_defaults(run=run)


def _size(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    return name, int(value)


def _sizes(text: str) -> dict[str, int]:
    return dict(map(_size, text.split(",")))


def run(arguments: argparse.Namespace) -> int:
    """Compiles a program; returns the exit status."""
    from metaop.export.library import compile_library
    from metaop.export.program import load_program

    try:
        program = load_program(arguments.program)
        compile_library(
            program,
            arguments.output,
            arguments.target,
            dict(arguments.size),
            embed=not arguments.weights_beside,
            exact=arguments.exact,
        )
    except (MetaopError, OSError) as error:
        print(f"metaop compile: {error}", file=sys.stderr)
        return 1
    return 0
