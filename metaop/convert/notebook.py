"""Converts the code cells of a notebook as one program, and keeps everything else."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from metaop.convert.converter import Conversion
from metaop.convert.findings import Finding
from metaop.convert.shell import Masked, mask_lines

_STYLES: tuple[dict[str, Any], ...] = tuple(
    {"indent": indent, "ensure_ascii": ascii_only}
    for indent in (1, 2, 4, None)
    for ascii_only in (False, True)
)


def convert_notebook(
    text: str, convert: Callable[[str], Conversion]
) -> tuple[Conversion, list[int]]:
    """Converts the text of an .ipynb file.

    Returns the conversion, whose findings have lines within their cell, and for each finding the
    number of its cell (counted from 1, over all cells). Raises `SyntaxError` for anything else.
    """
    try:
        notebook = json.loads(text)
        cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError) as error:
        raise SyntaxError(f"not a notebook: {error}") from error
    programs = [_cell_text(cell) for cell in cells]
    masked = [mask_lines(program) for program in programs]
    conversion = convert("\n".join(line.code for lines in masked for line in lines))
    converted = conversion.text.split("\n")
    findings, numbers = _by_cell(conversion.findings, masked, notebook["cells"], cells)
    position = 0
    changed = False
    for cell, program, lines in zip(cells, programs, masked):
        following = converted[position : position + len(lines)]
        new = "\n".join(line.shown(code) for line, code in zip(lines, following))
        position += len(lines)
        if new != program:
            changed = True
            listed = isinstance(cell["source"], list)
            cell["source"] = new.splitlines(keepends=True) if listed else new
    return Conversion(_dump(notebook, text) if changed else text, findings), numbers


def _cell_text(cell: dict[str, Any]) -> str:
    source = cell["source"]
    return "".join(source) if isinstance(source, list) else source


def _by_cell(
    findings: list[Finding], masked: list[list[Masked]], every: list[Any], cells: list[Any]
) -> tuple[list[Finding], list[int]]:
    starts: list[int] = []
    line = 1
    for lines in masked:
        starts.append(line)
        line += len(lines)
    placed: list[Finding] = []
    numbers: list[int] = []
    for finding in findings:
        index = max(number for number, start in enumerate(starts) if start <= finding.line)
        local = finding.line - starts[index] + 1
        column = finding.column + masked[index][local - 1].shift
        placed.append(Finding(local, column, finding.name, finding.verdict, finding.hint))
        numbers.append(next(n for n, cell in enumerate(every, 1) if cell is cells[index]))
    return placed, numbers


def _dump(notebook: Any, original: str) -> str:
    """JSON in the style of the original file, so that a diff shows only real changes."""
    before = json.loads(original)
    body = original.rstrip("\n")
    style = next((style for style in _STYLES if json.dumps(before, **style) == body), _STYLES[0])
    return json.dumps(notebook, **style) + original[len(body) :]
