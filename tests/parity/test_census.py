"""The names that programs use exist, with PyTorch's parameters."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tests.parity.census import TIERS, Name, names  # noqa: E402
from tests.parity.missing import MISSING, SIGNATURES  # noqa: E402
from tests.parity.signatures import differences  # noqa: E402

NAMES = names()


@pytest.mark.parametrize("tier", TIERS)
def test_names_exist(tier: str) -> None:
    chosen = [name for name in NAMES if name.tier == tier]
    missing = {name.name for name in chosen if name.status == "missing"}
    there = sum(name.status == "there" for name in chosen)
    print(f"tier {tier}: {there} of {there + len(missing)}")
    assert missing <= set(MISSING), "names that metaop has lost"


def test_the_table_of_missing_names_has_no_others() -> None:
    there = {name.name for name in NAMES if name.status == "there"}
    assert not there & set(MISSING), "these exist now: take them out of the table"
    assert set(MISSING) <= {name.name for name in NAMES}


@pytest.mark.parametrize(
    "name", [n for n in NAMES if n.kind in ("api", "method")], ids=lambda n: n.name
)
def test_parameters(name: Name) -> None:
    if not (callable(name.ours) and callable(name.theirs)):
        return
    found = differences(name.ours, name.theirs)
    if name.name in SIGNATURES:
        assert found, "the parameters agree now: take the name out of the table"
    else:
        assert not found
