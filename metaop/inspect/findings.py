"""Findings: what is slow, the evidence for it, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple


class Check(NamedTuple):
    """A row of a table of checks.

    `test` yields evidence by name, once per finding; `text` describes the finding and `fix` says
    what to do, both formatted with the evidence.
    """

    name: str
    test: Callable[[Any], Iterable[Mapping[str, Any]]]
    text: str
    fix: str


class Finding(NamedTuple):
    """Something that costs time or memory: its name, the evidence as text, and a fix.

    >>> metaop.inspect.Finding("threads", "1 of 2 cores works", "set METAOP_NUM_THREADS=2").fix
    'set METAOP_NUM_THREADS=2'
    """

    name: str
    text: str
    fix: str


def findings_of(checks: Sequence[Check], facts: Any) -> list[Finding]:
    """The findings of all checks, in the order of the table."""
    return [
        Finding(check.name, check.text.format(**evidence), check.fix.format(**evidence))
        for check in checks
        for evidence in check.test(facts)
    ]


def as_text(title: str, findings: Sequence[Finding]) -> str:
    """The findings with their fixes; "nothing found" if there are none."""
    lines = [title]
    for finding in findings:
        lines += [f"  {finding.name}: {finding.text}", f"      {finding.fix}"]
    return "\n".join(lines if findings else [*lines, "  nothing found"]) + "\n"
