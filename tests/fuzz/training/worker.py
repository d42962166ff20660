"""A process that runs programs with metaop, apart from the one that compares.

A crash or a hang of a kernel is so a result too.
"""

from __future__ import annotations

import os
import pickle
import select
import subprocess
import sys
import tempfile
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fuzz.training.schedules import Changes, Thresholds

_SECONDS = 600.0
# The variable that says where programs run: on the CPU, on a GPU that the CPU emulates ("cuda"), or
# on a real one ("gpu").
DEVICE = "METAOP_FUZZ_DEVICE"


@dataclass(frozen=True)
class Broken:
    """A program that ended with an error, a crash or a hang: `kind` says which, `report` all."""

    kind: str
    report: str


class Worker:
    """Runs texts with metaop under given settings, one after another.

    `changes` are thresholds of the compiler, for the texts that follow; None leaves them alone.
    """

    def __init__(self, settings: dict[str, str]) -> None:
        self.changes: Changes | None = None
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, text: str, seed: int = 0) -> dict[str, Any] | Broken:
        """What `run` of the text finds, or how it ended."""
        if self._process is None:
            self._start()
        process = self._process
        assert process is not None and process.stdin and process.stdout
        pickle.dump((text, seed, self.changes), process.stdin)
        process.stdin.flush()
        if not select.select([process.stdout], [], [], _SECONDS)[0]:
            self.close()
            return Broken("hang", f"no result after {_SECONDS:.0f} seconds")
        try:
            result: dict[str, Any] | Broken = pickle.load(process.stdout)
        except EOFError:
            code = process.wait()
            self._log.seek(0)
            last = self._log.read().decode(errors="replace")[-2000:]
            self.close()
            return Broken("crash", f"the process ended with {code}\n{last}")
        return result

    def close(self) -> None:
        """Ends the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()
            self._log.close()

    def _start(self) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.training.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, **self._settings},
            cwd=Path(__file__).parents[3],
        )


def main() -> None:
    """Answers requests from standard input until it ends."""
    import metaop
    from tests.fuzz.training.worker import Broken  # by the name that the other side knows

    # What a program prints must not come between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    sys.stdout = sys.stderr
    warnings.simplefilter("ignore")
    if os.environ.get(DEVICE) == "cuda":
        from tests.cuda.emulator import cupy_stand_in

        cupy_stand_in.install(devices=1)
    if os.environ.get(DEVICE, "cpu") != "cpu":
        metaop.set_default_device("cuda")
    thresholds = Thresholds()
    while True:
        try:
            text, seed, changes = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        scope: dict[str, Any] = {}
        result: dict[str, Any] | Broken
        try:
            if changes is not None:
                thresholds.change(changes)
            exec(text, scope)
            result = scope["run"](metaop, seed=seed)
        except Exception as error:
            result = Broken(type(error).__name__, traceback.format_exc())
        pickle.dump(result, answers)
        answers.flush()


if __name__ == "__main__":
    main()
