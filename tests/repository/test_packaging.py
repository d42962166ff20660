"""The metadata agrees with the folders."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def read_configuration() -> configparser.ConfigParser:
    configuration = configparser.ConfigParser()
    configuration.read(ROOT / "setup.cfg")
    return configuration


def test_every_package_is_listed_for_the_wheel(request: pytest.FixtureRequest) -> None:
    found = {"metaop.models"}
    for module in (ROOT / "metaop").rglob("*.py"):
        found.add(".".join(module.parent.relative_to(ROOT).parts))
    if request.config.getoption("--update-golden"):
        lines = "".join(f"    {name}\n" for name in sorted(found))
        text = (ROOT / "setup.cfg").read_text()
        text = re.sub(r"(?<=\npackages =\n)(    .*\n)+", lines, text)
        (ROOT / "setup.cfg").write_text(text)
    listed = read_configuration()["options"]["packages"].split()
    assert listed == sorted(found), "write them anew with ./test tests/repository --update-golden"


def test_the_version_without_tags_is_the_one_that_comes_next() -> None:
    build = (ROOT / "pyproject.toml").read_text()
    fallback = re.search(r'^fallback_version = "((\d+\.\d+\.\d+)\.dev0)"$', build, re.MULTILINE)
    assert fallback is not None
    assert f'__version__ = "{fallback[1]}"' in (ROOT / "metaop/__init__.py").read_text()
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None and newest[1] == fallback[2]


def test_readme_points_at_files_that_exist() -> None:
    for document in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} points at {target}"


_FIRST = """
import gc, sys
import metaop
(metaop.ones(2) + 1).numpy()
print(*{name.partition(".")[0] for name in sys.modules} & set(sys.argv[1:]))
print(gc.isenabled(), gc.get_freeze_count())
"""


def test_the_first_result_imports_only_what_it_needs() -> None:
    requirements = read_configuration()["options"]["install_requires"].lower().replace("-", "_")
    others = {*re.findall(r"^\w+", requirements, re.MULTILINE), "pycparser"}
    command = [sys.executable, "-c", _FIRST, *others]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    imported, collector = done.stdout.splitlines()
    assert {"numpy", "llvmlite"} < others and set(imported.split()) == {"numpy", "llvmlite"}
    assert collector == "True 0"
