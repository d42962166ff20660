"""The subcommands `convert` and `convert-weights`."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metaop.forking import core_count

if TYPE_CHECKING:
    from metaop.convert.findings import FileReport

_CONVERT = """converts programs written for PyTorch; without -o the files are replaced. A path is
a file, a notebook, a folder, the name of an installed package (which needs -o), or - for a program
on the standard input, which goes to the standard output.
Exit status: 0, 1 when a name is unsupported (its line is marked), 2 when a file was left alone."""


def add_commands(commands: Any) -> None:
    """Adds the subcommands to an argument parser."""
    convert = commands.add_parser("convert", help="convert PyTorch programs", description=_CONVERT)
    convert.add_argument("path", nargs="+", help="files, folders, packages, or -")
    convert.add_argument("-o", "--output", type=Path, help="where to write, a file or a folder")
    convert.add_argument(
        "--report", choices=("text", "json", "page"), default="text", help="its form"
    )
    convert.add_argument("--all", action="store_true", help="also list names that stay the same")
    convert.add_argument("--check", action="store_true", help="report only, write nothing")
    convert.add_argument("--diff", action="store_true", help="print a patch, write nothing")
    convert.add_argument(
        "--processes", type=int, default=core_count(), help="how many share a folder"
    )
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
    from metaop.convert.page import page_report
    from metaop.convert.report import diff_report, json_report, print_report

    stream = arguments.path == ["-"]
    try:
        paths = [] if stream else [_located(path, arguments) for path in arguments.path]
        originals = _originals(paths) if arguments.verify else {}
        write = not (arguments.check or arguments.diff)
        if stream:
            reports = [_convert_input(write)]
        else:
            reports = [
                report
                for path in paths
                for report in convert_path(
                    path,
                    _target(path, arguments),
                    write=write,
                    processes=arguments.processes,
                )
            ]
    except (FileNotFoundError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    aside = sys.stderr if arguments.diff or (stream and write) else None
    if arguments.diff:
        print(diff_report(reports), end="")
    if arguments.report == "json":
        print(json_report(reports), end="", file=aside)
    elif arguments.report == "page":
        print(page_report(reports, everything=arguments.all), end="", file=aside)
    else:
        print_report(reports, everything=arguments.all, file=aside)
    return _status(reports, _verify(originals))


def _status(reports: list[FileReport], verified: bool) -> int:
    from metaop.convert.findings import Verdict
    from metaop.convert.report import total

    if any(report.error for report in reports):
        return 2
    return 1 if total(reports, Verdict.UNSUPPORTED) or not verified else 0


def _located(path: str, arguments: argparse.Namespace) -> Path:
    """The file or folder at a path, or that of the installed package with this name."""
    if Path(path).exists():
        return Path(path)
    if path == "-":
        raise ValueError("- is the standard input: pass no other path with it")
    try:
        spec = importlib.util.find_spec(path) if path.isidentifier() else None
    except ValueError:
        spec = None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise FileNotFoundError(f"no such file, folder or installed package: {path}")
    if arguments.output is None and not (arguments.check or arguments.diff):
        raise ValueError(f"{path} is an installed package: name the output folder with -o")
    return Path(spec.origin).parent if spec.submodule_search_locations else Path(spec.origin)


def _target(path: Path, arguments: argparse.Namespace) -> Path | None:
    """The output of a path: of several, each keeps its name in the output folder."""
    if arguments.output is None or len(arguments.path) == 1:
        return arguments.output
    return arguments.output / path.resolve().name


def _convert_input(write: bool) -> FileReport:
    from metaop.convert.files import convert_stream

    result, report = convert_stream(sys.stdin.buffer.read())
    if write:
        sys.stdout.buffer.write(result)
        sys.stdout.flush()
    return report


def _originals(paths: list[Path]) -> dict[Path, bytes]:
    """The programs before they are converted, for --verify."""
    files = [
        file
        for path in paths
        for file in ([path] if path.is_file() else sorted(path.rglob("*.py")))
    ]
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
