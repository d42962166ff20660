"""`python -m metaop`: `info`, `doctor`, `tune`, `compile`, `serve`, `convert`, `run`, …."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from metaop.convert.command import add_commands
from metaop.dist.launch import add_command as add_run_command
from metaop.export.command import add_command as add_compile_command
from metaop.inspect.command import add_command as add_doctor_command
from metaop.inspect.processor import add_command as add_tune_command
from metaop.serving.command import add_command as add_serve_command


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a subcommand; returns the exit code."""
    parser = argparse.ArgumentParser(prog="metaop", description="Tools of metaop.")
    commands = parser.add_subparsers(dest="command", required=True)
    information = commands.add_parser("info", help="versions, processor, settings and a self-test")
    information.set_defaults(run=_info)
    add_doctor_command(commands)
    add_tune_command(commands)
    add_compile_command(commands)
    add_serve_command(commands)
    add_commands(commands)
    add_run_command(commands)
    parsed = parser.parse_args(arguments)
    return parsed.run(parsed)


def _info(arguments: argparse.Namespace) -> int:
    from metaop.inspect import info, self_test

    print(info(), end="")
    report = self_test()
    print("self-test\n  " + report.rstrip().replace("\n", "\n  "))
    return 1 if "WRONG" in report else 0


if __name__ == "__main__":
    sys.exit(main())
