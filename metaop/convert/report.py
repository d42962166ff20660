"""Reports as text, as a table, and as JSON."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Sequence

from metaop.convert.findings import FileReport, Verdict

_SILENT = (Verdict.SAME,)


def text_report(reports: Sequence[FileReport], *, everything: bool = False) -> str:
    """One line a finding, `file:line:column: verdict: name: hint`, then the counts.

    Names that stay the same are counted only, unless `everything` is asked for.
    """
    lines: list[str] = []
    for report in reports:
        if report.error:
            lines.append(f"{report.path}:1:1: error: {report.error}")
        for finding in report.findings:
            if everything or finding.verdict not in _SILENT:
                place = f"{report.path}:{finding.line}:{finding.column}"
                hint = f": {finding.hint}" if finding.hint else ""
                lines.append(f"{place}: {finding.verdict.value}: {finding.name}{hint}")
    return "\n".join([*lines, summary(reports)]) + "\n"


def summary(reports: Sequence[FileReport]) -> str:
    """How many files and names, by verdict."""
    counts = [f"{total(reports, verdict)} {verdict.value}" for verdict in Verdict]
    errors = sum(bool(report.error) for report in reports)
    files = f"{len(reports)} files" + (f", {errors} left alone" if errors else "")
    return f"{files}: {', '.join(counts)}"


def total(reports: Sequence[FileReport], verdict: Verdict) -> int:
    """How many findings of all files have a verdict."""
    return sum(report.count(verdict) for report in reports)


def json_report(reports: Sequence[FileReport]) -> str:
    """All findings and the counts as JSON."""
    counts = {verdict.value: total(reports, verdict) for verdict in Verdict}
    files = [report.as_dictionary() for report in reports]
    return json.dumps({"counts": counts, "files": files}, indent=2, ensure_ascii=False) + "\n"


def print_report(reports: Sequence[FileReport], *, everything: bool = False) -> None:
    """Prints a table where the terminal and the package rich allow it, else plain lines."""
    if sys.stdout.isatty() and importlib.util.find_spec("rich") is not None:
        _print_table(reports, everything)
        print(summary(reports))
    else:
        print(text_report(reports, everything=everything), end="")


def _print_table(reports: Sequence[FileReport], everything: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    styles = {Verdict.UNSUPPORTED: "bold red", Verdict.SEMANTIC: "yellow"}
    table = Table("place", "verdict", "name", "hint")
    for report in reports:
        if report.error:
            table.add_row(f"{report.path}:1:1", Text("error", "bold red"), "", report.error)
        for finding in report.findings:
            if everything or finding.verdict not in _SILENT:
                verdict = Text(finding.verdict.value, styles.get(finding.verdict, ""))
                place = f"{report.path}:{finding.line}:{finding.column}"
                table.add_row(place, verdict, Text(finding.name), Text(finding.hint))
    Console().print(table)
