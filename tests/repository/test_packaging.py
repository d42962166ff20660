"""The metadata agrees with the folders."""

from __future__ import annotations

import configparser
import re
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


def test_the_version_is_written_once() -> None:
    version = read_configuration()["metadata"]["version"]
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()


def test_readme_points_at_files_that_exist() -> None:
    for document in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} points at {target}"
