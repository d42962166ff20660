"""Reports as text, as a table, and as JSON."""

from __future__ import annotations

import difflib
import importlib.util
import json
import sys
from collections.abc import Sequence
from typing import TextIO

from metaop.convert.findings import FileReport, Verdict

_NO_END = "\\ No newline at end of file\n"
_SILENT = (Verdict.SAME,)


def text_report(reports: Sequence[FileReport], *, everything: bool = False) -> str:
    """One line per finding, `file:line:column: verdict: name: hint`, then the counts.

    Names that stay the same are only counted, unless `everything` is True.
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


def diff_report(reports: Sequence[FileReport]) -> str:
    """The changes of a conversion as a patch."""
    pieces: list[str] = []
    for report in reports:
        if report.texts is not None:
            before, after = (text.splitlines(keepends=True) for text in report.texts)
            names = (f"a/{report.path}", f"b/{report.path}")
            pieces += difflib.unified_diff(before, after, *names)
    # A last line without an end would run into the next one.
    ended = (piece if piece.endswith("\n") else f"{piece}\n{_NO_END}" for piece in pieces)
    return "".join(ended)


def summary(reports: Sequence[FileReport]) -> str:
    """The numbers of files and of names, by verdict."""
    counts = [f"{total(reports, verdict)} {verdict.value}" for verdict in Verdict]
    errors = sum(bool(report.error) for report in reports)
    files = f"{len(reports)} files" + (f", {errors} left alone" if errors else "")
    return f"{files}: {', '.join(counts)}"


def total(reports: Sequence[FileReport], verdict: Verdict) -> int:
    """The number of findings of all files with a verdict."""
    return sum(report.count(verdict) for report in reports)


def json_report(reports: Sequence[FileReport]) -> str:
    """All findings and the counts as JSON."""
    counts = {verdict.value: total(reports, verdict) for verdict in Verdict}
    files = [report.as_dictionary() for report in reports]
    return json.dumps({"counts": counts, "files": files}, indent=2, ensure_ascii=False) + "\n"


def print_report(
    reports: Sequence[FileReport], *, everything: bool = False, file: TextIO | None = None
) -> None:
    """Prints a table if the output is a terminal and rich is installed, otherwise plain lines."""
    if file is not None:
        print(text_report(reports, everything=everything), end="", file=file)
    elif sys.stdout.isatty() and importlib.util.find_spec("rich") is not None:
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
