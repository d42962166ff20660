"""IPython's syntax in notebooks: shell commands, magics, help requests."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

_LINE = re.compile(r"(\s*)(?:%|!|\?|[\w.]+\?{1,2}\s*$)")
_ASSIGNED = re.compile(r"(\s*)([\w.]+(?:\s*,\s*[\w.]+)*)\s*=\s*(?:!|%(?=[a-zA-Z]))")
# Magics that run the rest of their line as Python.
_RUNS_CODE = re.compile(r"(\s*)(%(?:time|timeit|prun|memit|mprun)\s+(?:-[a-zA-Z]+\s*\d*\s+)*)(.+)")
_CELL = re.compile(r"\s*%%(?!time\b|timeit\b|capture\b|prun\b)")
_BRACKETS = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}
# Tokens to skip: a comment, a string on one line, and the start of a multi-line string.
_PIECES = re.compile(
    r"""(?P<comment>\#.*)|(?P<long>\"{3}|'{3})|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|(?P<other>.)"""
)


@dataclass(frozen=True)
class Masked:
    """A line of a cell, Python code in place of it, and the prefix that this code omits."""

    line: str
    code: str
    prefix: str | None = None

    @property
    def shift(self) -> int:
        """The number of columns before the Python code."""
        return 0 if self.prefix is None else len(self.line) - len(self.code)

    def shown(self, converted: str) -> str:
        """The line of the converted cell."""
        if self.prefix is not None:
            return self.prefix + converted.lstrip()
        return converted if self.line == self.code else self.line


def mask_lines(program: str) -> list[Masked]:
    """The lines of a cell; Python that binds the same names replaces IPython's syntax."""
    lines = program.split("\n")
    if _CELL.match(program.lstrip("\n")):
        return [Masked(line, "pass") for line in lines]
    masked: list[Masked] = []
    state = _State()
    indent = ""
    continues = False
    for line in lines:
        if continues:
            masked.append(Masked(line, f"{indent}pass"))
            continues = line.endswith("\\")
            continue
        found = _mask(line) if state.is_between_statements else None
        if found is None:
            masked.append(Masked(line, line))
            state.read(line)
        else:
            masked.append(found)
            indent = line[: len(line) - len(line.lstrip())]
            continues = line.endswith("\\")
    return masked


def _mask(line: str) -> Masked | None:
    """Masks a line of IPython's syntax; None for a line of Python."""
    runs = _RUNS_CODE.match(line)
    if runs is not None and _is_python(runs[3]):
        return Masked(line, runs[1] + runs[3], runs[1] + runs[2])
    assigned = _ASSIGNED.match(line)
    if assigned is not None:
        return Masked(line, f"{assigned[1]}{' = '.join(re.split(', *', assigned[2]))} = None")
    plain = _LINE.match(line)
    return None if plain is None else Masked(line, f"{plain[1]}pass")


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


class _State:
    """Whether the lines read so far end inside brackets, inside a multi-line string, or neither."""

    def __init__(self) -> None:
        self._depth = 0
        self._quotes = ""
        self._continues = False

    @property
    def is_between_statements(self) -> bool:
        """Whether the next line begins a statement."""
        return not (self._depth or self._quotes or self._continues)

    def read(self, line: str) -> None:
        """Reads a line of Python."""
        position = 0
        while position < len(line):
            if self._quotes:
                end = line.find(self._quotes, position)
                if end < 0:
                    return
                position, self._quotes = end + 3, ""
                continue
            piece = _PIECES.match(line, position)
            assert piece is not None
            position = piece.end()
            self._quotes = piece["long"] or ""
            self._depth = max(0, self._depth + _BRACKETS.get(piece["other"] or "", 0))
        self._continues = line.endswith("\\")
