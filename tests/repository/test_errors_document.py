"""docs/errors.md has a section for each error: a program that raises it, and one that is mended."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from metaop import errors

TEXT = (Path(__file__).parents[2] / "docs" / "errors.md").read_text()
SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE))
CLASSES = {
    name: value
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, errors.MetaopError)
}
# Raised by a GPU alone, or where packages are missing; programs marked `py` are run by no test.
ELSEWHERE = {"MissingPackageError", "OutOfMemoryError"}


def programs(name: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", SECTIONS[name], re.DOTALL)


def test_every_error_has_a_section_that_names_its_relatives() -> None:
    assert list(SECTIONS) != [] and set(SECTIONS) == set(CLASSES)
    for name, value in CLASSES.items():
        for base in value.__bases__:
            if base not in (errors.MetaopError, Exception):
                assert f"`{base.__name__}`" in SECTIONS[name], f"{name} is also a {base.__name__}"


@pytest.mark.parametrize("name", sorted(set(CLASSES) - ELSEWHERE))
def test_programs_raise_the_error_and_are_mended(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    raising, *mended = programs(name)
    path = tmp_path / "program.py"  # kernels ask for their source
    if name != "MetaopError":  # the base, which is never raised itself
        path.write_text(raising)
        with pytest.raises(CLASSES[name]) as caught:
            runpy.run_path(str(path))
        assert type(caught.value) is CLASSES[name]
        assert mended or name == "InternalError"
    else:
        mended = [raising]
    for number, program in enumerate(mended):
        path = tmp_path / f"mended{number}.py"
        path.write_text(program)
        runpy.run_path(str(path))
