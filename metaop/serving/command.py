"""The subcommand `serve`, which serves exported programs over HTTP."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from metaop.errors import MetaopError, MissingPackageError

_PACKAGES = ("starlette", "uvicorn", "prometheus_client")


def add_command(commands: Any) -> None:
    """Adds the subcommand to an argument parser."""
    parser = commands.add_parser("serve", help="serve exported programs (.mo) over HTTP")
    parser.add_argument(
        "models",
        nargs="+",
        metavar="MODEL",
        help="FILE, NAME=FILE, NAME:VERSION=FILE, or a folder with NAME/VERSION/any.mo",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=_natural, default=8000, help="0 chooses a free port")
    parser.add_argument("--max-batch", type=_positive, default=32, help="maximum rows per batch")
    parser.add_argument(
        "--max-delay-ms",
        type=_time,
        default=2.0,
        help="how long a request waits for others to batch with",
    )
    parser.add_argument(
        "--max-queue",
        type=_positive,
        default=256,
        help="maximum pending requests; further ones get 429",
    )
    parser.add_argument(
        "--max-body-mb", type=_positive, default=64, help="size of a request; larger ones get 413"
    )
    parser.add_argument(
        "--shutdown-seconds",
        type=_positive,
        default=30,
        help="how long pending requests may take after SIGTERM",
    )
    parser.add_argument(
        "--allow-control", action="store_true", help="let clients load and unload the models"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serves until a signal; returns the exit status."""
    try:
        server = _server()
        from metaop.serving.application import Limits
        from metaop.serving.refusal import Refusal

        limits = Limits(
            arguments.max_batch,
            arguments.max_delay_ms / 1000,
            arguments.max_queue,
            arguments.max_body_mb << 20,
        )
        try:
            application = server.application(arguments.models, limits, arguments.allow_control)
        except Refusal as refusal:
            raise OSError(refusal.message) from None
        server.serve(application, arguments.host, arguments.port, arguments.shutdown_seconds)
    except (MetaopError, OSError) as error:
        print(f"metaop serve: {error}", file=sys.stderr)
        return 1
    return 0


def _server() -> Any:
    """The server module; raises MissingPackageError if its packages are not installed."""
    try:
        from metaop.serving import server
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _PACKAGES:
            raise
        raise MissingPackageError(
            f"serving needs the package {package}, which is not installed",
            fix="pip install 'metaop[serve]'",
        ) from None
    return server


def _natural(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is less than 0")
    return value


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return value


def _time(text: str) -> float:
    value = float(text)
    if not 0 <= value < 60_000:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 60000")
    return value
