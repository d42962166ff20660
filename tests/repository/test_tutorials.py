"""The tutorials work when they are followed step by step, in an empty folder.

A block that begins with `# file: NAME` (or `/* file: NAME */`) is written to that file. Blocks of
Python without a name are one program, in their order; it runs last, or where a command needs what
it writes: before the next `sh` block. A `sh` block is run, and a `text` block behind it is what it
printed, with `…` for anything.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
NAMED = re.compile(r"(?:# file: (\S+)|/\* file: (\S+) \*/)\n")


def blocks(path: Path) -> Iterator[tuple[str, str]]:
    yield from re.findall(r"^```(\w+)\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_tutorial_can_be_followed(path: Path, tmp_path: Path) -> None:
    if path.stem == "export-to-c" and not shutil.which("cc"):
        pytest.skip("needs a C compiler")
    python: list[str] = []
    printed = ""
    for language, text in blocks(path):
        named = NAMED.match(text)
        if named:
            (tmp_path / str(named[1] or named[2])).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / str(named[1] or named[2])).write_text(text[named.end() :].lstrip("\n"))
        elif language == "python":
            python.append(text)
        elif language == "sh":
            follow(python, tmp_path)
            printed = run(["bash", "-ec", text], tmp_path)
        elif language == "text":
            wanted = ".*".join(map(re.escape, text.strip().split("…")))
            assert re.search(wanted, printed, re.DOTALL), f"expected {text}\nprinted {printed}"
    follow(python, tmp_path)


def follow(python: list[str], folder: Path) -> None:
    """Runs the program that the blocks of Python make up, from its start."""
    if python:
        (folder / "followed.py").write_text("\n".join(python))
        run([sys.executable, "followed.py"], folder)


def run(command: list[str], folder: Path) -> str:
    paths = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = os.environ | {"PATH": paths, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
