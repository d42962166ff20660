"""`python -m metaop info`: what this installation is and has, and whether it computes right."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a subcommand; returns the exit code."""
    parser = argparse.ArgumentParser(prog="metaop", description="Tools of metaop.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="versions, processor, settings, cache and a self-test")
    parser.parse_args(arguments)
    return _info()


def _info() -> int:
    from metaop.inspect import info, self_test

    print(info(), end="")
    report = self_test()
    print("self-test\n  " + report.rstrip().replace("\n", "\n  "))
    return 1 if "WRONG" in report else 0


if __name__ == "__main__":
    sys.exit(main())
