"""The subcommands `convert` and `convert-weights`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

_CONVERT = """converts programs written for PyTorch; without -o the files are replaced.
Exit status: 0, 1 when a name is unsupported (its line is marked), 2 when a file was left alone."""


def add_commands(commands: Any) -> None:
    """Adds the subcommands to an argument parser."""
    convert = commands.add_parser("convert", help="convert PyTorch programs", description=_CONVERT)
    convert.add_argument("path", type=Path, help="a .py file, a notebook, or a folder")
    convert.add_argument("-o", "--output", type=Path, help="where to write, a file or a folder")
    convert.add_argument("--report", choices=("text", "json"), default="text", help="its form")
    convert.add_argument("--all", action="store_true", help="also list names that stay the same")
    convert.add_argument("--check", action="store_true", help="report only, write nothing")
    convert.add_argument("--verify", action="store_true", help="run both versions and compare")
    convert.set_defaults(run=run_convert)
    weights = commands.add_parser("convert-weights", help="write a .pth file as .safetensors")
    weights.add_argument("source", type=Path, help="a checkpoint that PyTorch wrote")
    weights.add_argument("target", type=Path, help="the .safetensors file to write")
    weights.set_defaults(run=run_weights)


def run_convert(arguments: argparse.Namespace) -> int:
    """Converts and reports; returns the exit status."""
    try:
        from metaop.convert.files import convert_path
    except ModuleNotFoundError as error:
        print(f"{error}: pip install 'metaop[convert]'", file=sys.stderr)
        return 2
    from metaop.convert.findings import Verdict
    from metaop.convert.report import json_report, print_report, total

    write = not arguments.check
    try:
        originals = _originals(arguments)
        reports = convert_path(arguments.path, arguments.output, write=write)
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 2
    if arguments.report == "json":
        print(json_report(reports), end="")
    else:
        print_report(reports, everything=arguments.all)
    verified = _verify(originals) if arguments.verify else True
    if any(report.error for report in reports):
        return 2
    return 1 if total(reports, Verdict.UNSUPPORTED) or not verified else 0


def _originals(arguments: argparse.Namespace) -> dict[Path, bytes]:
    """The programs before they are converted, for --verify."""
    if not arguments.verify or not arguments.path.exists():
        return {}
    path = arguments.path
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    return {file: file.read_bytes() for file in files if file.suffix == ".py"}


def _verify(originals: dict[Path, bytes]) -> bool:
    from metaop.convert.verification import verify_program

    agrees = True
    for path, content in originals.items():
        for outcome in verify_program(path, content):
            print(f"{path}: {outcome}", file=sys.stderr)
            agrees = agrees and outcome.agrees
    return agrees


def run_weights(arguments: argparse.Namespace) -> int:
    """Converts a checkpoint; returns the exit status."""
    from metaop.convert.weights import convert_weights
    from metaop.errors import MetaopError

    try:
        count, nbytes = convert_weights(arguments.source, arguments.target)
    except (MetaopError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{arguments.target}: {count} tensors, {nbytes} bytes")
    return 0
