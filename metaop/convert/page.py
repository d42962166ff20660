"""The report as one HTML file: counts, the most frequent missing names, and all findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape

from metaop.convert.findings import FileReport, Verdict

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em; }
table { border-collapse: collapse; margin: 1em 0; }
td, th { border-bottom: 1px solid #ccc; padding: .2em .8em .2em 0; text-align: left;
         vertical-align: top; }
code { white-space: pre-wrap; overflow-wrap: anywhere; }
.unsupported, .error { color: #b00020; }
.semantic-change { color: #8a5a00; }
"""


def page_report(reports: Sequence[FileReport], *, everything: bool = False) -> str:
    """A self-contained page.

    It counts verdicts by file, lists unsupported names by frequency, and then every finding with
    its position. Names that stay the same are listed only with `everything`.
    """
    body = [
        "<h1>Conversion to metaop</h1>",
        _table(("file", *(verdict.value for verdict in Verdict)), _counts(reports)),
        _missing(reports),
        "<h2>Findings</h2>",
        *(_file(number, report, everything) for number, report in enumerate(reports)),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>Conversion to metaop</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in body if part)
        + "\n</body>\n</html>\n"
    )


def _counts(reports: Sequence[FileReport]) -> Iterable[Sequence[str]]:
    for number, report in enumerate(reports):
        name = f'<a href="#file{number}">{escape(report.path)}</a>'
        if report.error:
            yield name, *("left alone" for _ in Verdict)
        else:
            yield name, *(str(report.count(verdict)) for verdict in Verdict)
    if len(reports) > 1:
        totals = [sum(report.count(verdict) for report in reports) for verdict in Verdict]
        yield f"{len(reports)} files", *map(str, totals)


def _missing(reports: Sequence[FileReport]) -> str:
    found = [
        (finding.name, finding.hint)
        for report in reports
        for finding in report.findings
        if finding.verdict is Verdict.UNSUPPORTED
    ]
    if not found:
        return ""
    rows = [
        (f"<code>{escape(name)}</code>", str(count), escape(hint))
        for (name, hint), count in sorted(Counter(found).items(), key=lambda item: -item[1])
    ]
    return "<h2>What metaop lacks</h2>\n" + _table(("name", "times", "hint"), rows)


def _file(number: int, report: FileReport, everything: bool) -> str:
    rows = [
        (
            f"{finding.line}:{finding.column}",
            _verdict(finding.verdict.value),
            f"<code>{escape(finding.name)}</code>",
            escape(finding.hint),
        )
        for finding in report.findings
        if everything or finding.verdict is not Verdict.SAME
    ]
    title = f'<h3 id="file{number}">{escape(report.path)}</h3>'
    if report.error:
        return f'{title}\n<p class="error">{escape(report.error)}</p>'
    listed = _table(("place", "verdict", "name", "hint"), rows)
    return f"{title}\n{listed if rows else '<p>Nothing to report.</p>'}"


def _verdict(name: str) -> str:
    return f'<span class="{name.replace(" ", "-")}">{name}</span>'


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    lines = [f"<tr>{cells}</tr>"]
    lines += [f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows]
    return "\n".join(["<table>", *lines, "</table>"])
