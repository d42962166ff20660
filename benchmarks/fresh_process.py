"""Programs in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping


def run_program(code: str, environment: Mapping[str, str]) -> str:
    """The last line that a program prints in a fresh process, with some more variables set."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return done.stdout.strip().splitlines()[-1]
