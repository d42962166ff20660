"""Periodic runs are found wherever they are."""

from __future__ import annotations

import pytest

from metaop.rerolling.periods import Run, periodic_runs


@pytest.mark.parametrize(
    ("tokens", "runs"),
    [
        ("", []),
        ("abcabcabc", []),
        ("abcabcabcabc", [Run(0, 12, 3)]),
        ("xabcabcabcabcay", [Run(1, 14, 3)]),
        ("aaaa", [Run(0, 4, 1)]),
        ("aaaabcdbcdbcdbcdxaaaa", [Run(0, 4, 1), Run(4, 16, 3), Run(17, 21, 1)]),
        # The longest is found, and of periods that cover about as much the shortest.
        ("abababababab", [Run(0, 12, 2)]),
        ("aabaabaabaab", [Run(0, 12, 3)]),
    ],
)
def test_runs(tokens: str, runs: list[Run]) -> None:
    assert periodic_runs(list(map(ord, tokens))) == runs
