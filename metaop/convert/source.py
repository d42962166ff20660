"""Program text with edits: the rest stays the same, byte for byte."""

from __future__ import annotations

import io
import re
import tokenize
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import pairwise

_LINE_END = re.compile(r"\r\n|\r|\n")
_KEPT = re.compile(r"[ \t]*#[^\r\n]*|\r\n|\r|\n")
_OLD_KEYWORD = re.compile(r"\basync(?=\s*=\s*(True|False|non_blocking)\b)")

MARK = "# metaop: "


@dataclass(frozen=True, order=True)
class Edit:
    """Replaces the characters from `start` to `end`; an edit never adds or removes lines."""

    start: int
    end: int
    text: str


@dataclass
class Source:
    """The text of a module, the edits to make, and the comments to put at line ends."""

    text: str
    edits: set[Edit] = field(default_factory=set)
    marks: dict[int, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ends = [match.end() for match in _LINE_END.finditer(self.text)]
        self.line_starts = [0, *ends]

    def offset(self, line: int, column: int) -> int:
        """The index of a character; lines count from 1, columns from 0."""
        return self.line_starts[line - 1] + column

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column, both counted from 1."""
        line = bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1] + 1

    def replace(self, start: int, end: int, text: str) -> None:
        """Notes an edit, unless it changes nothing."""
        if self.text[start:end] != text:
            self.edits.add(Edit(start, end, text))

    def plain_between(self, start: int, end: int) -> bool:
        """Whether a range may be deleted: it has no comment and no line end."""
        stretch = self.text[start:end]
        return "#" not in stretch and not _LINE_END.search(stretch)

    def skeleton(self, start: int, end: int) -> str:
        """What must stay of a range outside strings: its comments and line ends."""
        return "".join(_KEPT.findall(self.text[start:end]))

    def mark(self, line: int, comment: str) -> None:
        """Adds a comment at the end of the line."""
        comments = self.marks.setdefault(line, [])
        if comment not in comments:
            comments.append(comment)

    def result(self) -> str:
        """The text with all edits and marks; the number of lines is the same."""
        pieces: list[str] = []
        position = 0
        for edit in sorted(self.edits):
            if edit.start < position:
                raise ValueError(f"edits overlap at {self.place(edit.start)}")
            pieces += (self.text[position : edit.start], edit.text)
            position = edit.end
        return _with_marks("".join([*pieces, self.text[position:]]), self.marks)


def _with_marks(text: str, marks: dict[int, list[str]]) -> str:
    """The text with comments at the ends of lines, later where a line may not end in one."""
    if not marks:
        return text
    can_end = sorted(_lines_that_take_comments(text))
    lines = _split_lines(text)
    for line, comments in sorted(marks.items()):
        index = next((number for number in can_end if number >= line), None)
        if index is None:
            continue
        body, end = _split_end(lines[index - 1])
        for comment in comments:
            if comment not in body:
                body = f"{body.rstrip()}  {MARK}{comment}"
        lines[index - 1] = body + end
    return "".join(lines)


def _lines_that_take_comments(text: str) -> set[int]:
    """Numbers of the lines whose end is neither inside a string nor a continuation."""
    tokens = tokenize.generate_tokens(io.StringIO(text, newline="").readline)
    ends = (tokenize.NEWLINE, tokenize.NL)
    return {token.start[0] for token in tokens if token.type in ends}


def _split_lines(text: str) -> list[str]:
    starts = [0, *(match.end() for match in _LINE_END.finditer(text)), len(text)]
    return [text[start:end] for start, end in pairwise(starts)]


def _split_end(line: str) -> tuple[str, str]:
    match = _LINE_END.search(line)
    return (line, "") if match is None else (line[: match.start()], match.group())


def modern_syntax(text: str) -> str:
    """Renames the argument `async` of `.cuda(async=True)`, which newer Pythons cannot parse."""
    return _OLD_KEYWORD.sub("non_blocking", text)


def comments(text: str) -> list[str]:
    """All comments of a program in order."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [token.string for token in tokens if token.type == tokenize.COMMENT]
