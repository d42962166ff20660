"""A flame view as SVG: widths are the times of lines and of their kernels."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

from metaop.inspect.by_line import COMPILING, HOST, LineTime

_WIDTH, _ROW, _LETTER = 1200.0, 20, 6.6
# The whole, file, function, line, and its kernels.
_LEVELS = 5
# Characters that are invalid in XML.
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_STYLE = """
text { fill: #111; font: 11px monospace; pointer-events: none }
rect { stroke: #fff; stroke-width: 0.5 }
.whole { fill: #d0d0d0 } .file { fill: #a8c8f0 } .function { fill: #a8e0c0 }
.line { fill: #f4d58a } .kernel { fill: #f4a582 } .compiling { fill: #d8b0e8 }
.host { fill: #c8c8a0 }
@media (prefers-color-scheme: dark) {
svg { background: #181818 } text { fill: #f4f4f4 } rect { stroke: #181818 }
.whole { fill: #484848 } .file { fill: #2c5c94 } .function { fill: #2a7048 }
.line { fill: #80651c } .kernel { fill: #994424 } .compiling { fill: #6c3c84 }
.host { fill: #60603c }
}
"""


@dataclass
class _Bar:
    """A span of time: its name, its kind (a colour) and its parts."""

    name: str
    kind: str
    time: float = 0.0
    parts: dict[str, _Bar] = field(default_factory=dict)

    def part(self, name: str, kind: str) -> _Bar:
        return self.parts.setdefault(f"{kind} {name}", _Bar(name, kind))


def flame(lines: Sequence[LineTime], whole: float) -> str:
    """The text of an SVG: files, functions, lines, and kernels, each below its parent.

    `whole` is the time of the full width, in nanoseconds; empty space on the right is Python
    between programs. The tooltip of a bar has its name, time and share.
    """
    root = _Bar("whole time", "whole", whole)
    for line in lines:
        levels = (
            (line.place.file, "file"),
            (line.place.function, "function"),
            (f"line {line.place.line}", "line"),
        )
        ends = [(name, "kernel", time) for name, time in line.kernels.items()]
        ends += [(COMPILING, "compiling", line.compiling), (HOST, "host", line.host)]
        for name, kind, time in ends:
            bar = root
            for level in (*levels, (name, kind)):
                bar = bar.part(*level)
                bar.time += time
    parts = _drawn(root, 0.0, _WIDTH, 0, whole)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:.0f} {_LEVELS * _ROW}" '
    return head + 'width="100%">\n<style>' + _STYLE + "</style>\n" + "\n".join(parts) + "\n</svg>\n"


def _drawn(bar: _Bar, left: float, right: float, level: int, whole: float) -> Iterator[str]:
    """The bar between two positions, and its parts below it, the longest first."""
    a, b = round(left, 2), round(right, 2)
    if b <= a:
        return
    share = bar.time / whole if whole else 0.0
    tip = _clean(f"{bar.name}: {bar.time / 1e6:.3f} ms, {share:.1%}")
    y = level * _ROW
    yield (
        f'<g><title>{tip}</title><rect class="{bar.kind}" x="{a:.2f}" y="{y}" '
        f'width="{b - a:.2f}" height="{_ROW}"/>{_label(bar.name, a, b, y)}</g>'
    )
    for part in sorted(bar.parts.values(), key=lambda part: -part.time):
        end = min(right, left + part.time / whole * _WIDTH) if whole else left
        yield from _drawn(part, left, end, level + 1, whole)
        left = end


def _label(name: str, left: float, right: float, top: int) -> str:
    letters = int((right - left - 4) / _LETTER)
    if letters < 3:
        return ""
    shown = name if len(name) <= letters else "…" + name[len(name) - letters + 1 :]
    return f'<text x="{left + 2:.2f}" y="{top + 14}">{_clean(shown)}</text>'


def _clean(text: str) -> str:
    return escape(_ILLEGAL.sub("?", text))
