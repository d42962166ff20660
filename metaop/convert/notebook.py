"""Notebooks: their code cells are converted as one program, everything else stays."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from metaop.convert.converter import Conversion
from metaop.convert.findings import Finding

_MAGIC = re.compile(r"^(\s*)(%|!|\?|[\w.]+\?{1,2}\s*$)")
_CELL_MAGIC = re.compile(r"^\s*%%(?!time\b|timeit\b|capture\b)")
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
    masked = [mask_magic(program) for program in programs]
    conversion = convert("\n".join(masked))
    converted = conversion.text.split("\n")
    findings, numbers = _by_cell(conversion.findings, masked, notebook["cells"], cells)
    position = 0
    changed = False
    for cell, program, mask in zip(cells, programs, masked):
        count = mask.count("\n") + 1
        new = _unmask(program, mask, converted[position : position + count])
        position += count
        if new != program:
            changed = True
            listed = isinstance(cell["source"], list)
            cell["source"] = new.splitlines(keepends=True) if listed else new
    return Conversion(_dump(notebook, text) if changed else text, findings), numbers


def _cell_text(cell: dict[str, Any]) -> str:
    source = cell["source"]
    return "".join(source) if isinstance(source, list) else source


def mask_magic(program: str) -> str:
    """The program with IPython's own lines replaced by `pass`, as many lines as before."""
    lines = program.split("\n")
    if _CELL_MAGIC.match(program.lstrip("\n")):
        return "\n".join("pass" for _ in lines)
    return "\n".join(_mask_line(line) for line in lines)


def _mask_line(line: str) -> str:
    match = _MAGIC.match(line)
    return line if match is None else f"{match.group(1)}pass"


def _unmask(program: str, mask: str, converted: list[str]) -> str:
    originals, masks = program.split("\n"), mask.split("\n")
    lines = [
        new if original == hidden else original
        for original, hidden, new in zip(originals, masks, converted)
    ]
    return "\n".join(lines)


def _by_cell(
    findings: list[Finding], masked: list[str], every: list[Any], cells: list[Any]
) -> tuple[list[Finding], list[int]]:
    starts: list[int] = []
    line = 1
    for program in masked:
        starts.append(line)
        line += program.count("\n") + 1
    placed: list[Finding] = []
    numbers: list[int] = []
    for finding in findings:
        index = max(number for number, start in enumerate(starts) if start <= finding.line)
        local = finding.line - starts[index] + 1
        placed.append(Finding(local, finding.column, finding.name, finding.verdict, finding.hint))
        numbers.append(next(n for n, cell in enumerate(every, 1) if cell is cells[index]))
    return placed, numbers


def _dump(notebook: Any, original: str) -> str:
    """JSON in the style of the original file, so that a difference shows only what changed."""
    before = json.loads(original)
    body = original.rstrip("\n")
    style = next((style for style in _STYLES if json.dumps(before, **style) == body), _STYLES[0])
    return json.dumps(notebook, **style) + original[len(body) :]
