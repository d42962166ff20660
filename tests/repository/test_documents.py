"""Generated documents are up to date, and the programs in documents run.

A program of a page stands alone. The tutorials are run as a whole: see test_tutorials.py.
"""

from __future__ import annotations

import argparse
import importlib
import re
import runpy
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from benchmarks import zoo
from metaop.inspect import documents
from models.__main__ import networks
from tests.repository import stubs

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    "name, generate",
    [
        ("docs/settings.md", documents.settings_document),
        ("docs/operators.md", documents.operators_document),
        ("docs/zoo.md", lambda: zoo.document(zoo.recorded())),
        ("metaop/tensor/bound_methods.pyi", stubs.methods),
        ("metaop/tensor/exports.pyi", stubs.functions),
    ],
)
def test_generated_documents_are_up_to_date(
    name: str, generate: Callable[[], str], request: pytest.FixtureRequest
) -> None:
    if request.config.getoption("--update-golden"):
        (DOCS.parent / name).write_text(generate())
    written = (DOCS.parent / name).read_text()
    assert generate() == written, "write it anew with ./test tests/repository --update-golden"


def programs() -> list[tuple[str, str]]:
    found = []
    # The first program of each error raises it: see test_errors_document.py.
    paths = [path for path in sorted(DOCS.glob("*.md")) if path.name != "errors.md"]
    for path in [DOCS.parent / "README.md", *paths]:
        blocks = re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)
        found += [(f"{path.name} {number}", block) for number, block in enumerate(blocks)]
    return found


def test_the_picture_of_kernels_is_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    (program,) = (one for _, one in programs() if "kernels.svg" in one)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text(program)
    runpy.run_path(str(tmp_path / "program.py"))
    made = (tmp_path / "kernels.svg").read_text(encoding="utf-8")
    kept = DOCS / "assets" / "kernels.svg"
    if request.config.getoption("--update-golden"):
        kept.write_text(made, encoding="utf-8")
    written = kept.read_text(encoding="utf-8")
    assert made == written, "draw it anew with ./test tests/repository --update-golden"


@pytest.mark.parametrize(
    "program", [p for _, p in programs()], ids=[name for name, _ in programs()]
)
def test_programs_in_documents_run(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # From a file, because kernels ask for their source.
    path = tmp_path / "program.py"
    path.write_text(program)
    runpy.run_path(str(path), run_name="__main__")


def _trainings() -> list[tuple[str, str]]:
    """The networks that pages and networks' own files say how to train, with the options."""
    command = re.compile(r"-m (?:metaop\.)?models[. ](\w+)(?: train)?((?: [^\s`]+)*)")
    root, known, found = DOCS.parent, networks(), []
    for path in (root / "README.md", *DOCS.rglob("*.md"), *root.glob("models/*.py")):
        for line in path.read_text(encoding="utf-8").splitlines():
            match = command.search(line)
            is_command = line.lstrip().startswith(("python", "metaop run"))
            if match and is_command and match[1] in known:
                found.append((match[1], match[2]))
    return sorted(set(found))


@pytest.mark.parametrize(("network", "options"), _trainings())
def test_networks_take_the_options_that_documents_tell(
    network: str, options: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Understood(Exception):
        pass

    parse = argparse.ArgumentParser.parse_args

    def stop(parser: argparse.ArgumentParser, *arguments: Any) -> NoReturn:
        try:
            parse(parser, *arguments)
        except SystemExit as end:  # --help ends the program as well
            assert end.code == 0
        raise Understood

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop)
    with pytest.raises(Understood):
        importlib.import_module(f"models.{network}").main(shlex.split(options))
