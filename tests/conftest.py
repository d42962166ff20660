"""Options and fixtures of all tests."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path

import pytest

# All that the tests compile is verified, and memory that nobody has written holds NaN. They are set
# before metaop is imported, and hold for the processes that tests start.
os.environ.setdefault("METAOP_VERIFY", "1")
os.environ.setdefault("METAOP_POISON", "1")
# Whatever was measured on this machine, code is the same.
os.environ.setdefault("METAOP_MACHINE", "typical")
# One line of a test asks for the values of many structures; what the tests look at is whole ones.
os.environ.setdefault("METAOP_PIECES", "never")
# Modules and compiled programs stay long: to look through them as often as Python does by itself
# took a tenth of the time of all tests.
gc.set_threshold(200_000)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the texts of golden files anew instead of comparing with them",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what takes a minute, unless it is asked for."""
    if "nightly" in config.option.markexpr:
        return
    left_out = [item for item in items if item.get_closest_marker("nightly")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keeps the modules and tests, which stay to the end, out of every collection of garbage."""
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keeps what is there out of the five collections with which pytest ends."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)` compares with the file `golden/name` beside the test."""
    folder = Path(request.path).parent / "golden"

    def compare(name: str, text: str) -> None:
        path = folder / name
        if request.config.getoption("--update-golden"):
            folder.mkdir(exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path} is missing; run pytest with --update-golden"
        assert text == path.read_text()

    return compare


def _targets() -> list[str]:
    """The instruction sets of this machine; one with vectors as wide as its own is its own."""
    from metaop.codegen.llvm.target import narrower

    return ["native", *narrower()]


@pytest.fixture(params=_targets())
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs a test for several instruction sets."""
    monkeypatch.setenv("METAOP_TARGET", request.param)
    return request.param
