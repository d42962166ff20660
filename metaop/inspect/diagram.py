"""Diagrams of boxes, which may be nested, and edges between them, drawn as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape

from metaop.inspect.layered import Edge, Layout, Point, depths, layered

# Pixels: a character (wide enough for common fonts), a line, and the margin around the text.
_CHARACTER, _LINE, _MARGIN = 6.9, 14.0, 7.0
# An edge that spans more layers ends at a small box that names its source.
_LONGEST = 6
_AGAIN = "again"
# Border and fill colours by kind of box, for light and dark pages.
_COLOURS = {
    "input": (("#57606a", "#f2f4f6"), ("#8c959f", "#262b31")),
    "reindex": (("#1f5fa8", "#e3effc"), ("#7cb8ff", "#142b45")),
    "reduce": (("#c2571a", "#fdebdd"), ("#ffa066", "#42230f")),
    "elementwise": (("#2a7d4f", "#e2f4e9"), ("#6fd39b", "#12331f")),
    "other": (("#7a4fb5", "#efe7fb"), ("#c5a3f5", "#2d1d45")),
    "kernel": (("#6e7781", "#ffffff"), ("#6e7681", "#161b22")),
    "buffer": (("#8a6d00", "#fff8d8"), ("#e3c54a", "#352c08")),
}  # fmt: skip


@dataclass
class Box:
    """A box: its name in the diagram, its `kind` (a key of the colours), lines and tooltip."""

    name: str
    kind: str
    lines: list[str]
    title: str
    inside: Diagram | None = None
    is_result: bool = False


@dataclass
class Diagram:
    """Boxes by name, and edges between names, without cycles."""

    boxes: dict[str, Box] = field(default_factory=dict)
    edges: dict[tuple[str, str], None] = field(default_factory=dict)

    def add(self, box: Box) -> None:
        self.boxes[box.name] = box

    def connect(self, source: str, target: str) -> None:
        self.edges[source, target] = None


def svg(diagram: Diagram) -> str:
    """The diagram as an SVG document: light or dark, as the reader prefers."""
    legend = [kind for kind in _COLOURS if kind in _kinds(diagram)]
    placed = _Placed(diagram)
    row, side = 2 * _LINE, 12.0
    widths = [_CHARACTER * (len(kind) + 4) for kind in legend]
    width = max(placed.width, sum(widths)) + 2 * side
    height = placed.height + row + 2 * side
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" class="metaop-graph" '
        f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">',
        f"<style>{_style(legend)}</style>",
        '<defs><marker id="metaop-arrow" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="6" '
        'markerHeight="6" orient="auto"><path class="head" d="M0 0L6 3L0 6z"/></marker></defs>',
        '<rect class="page" width="100%" height="100%"/>',
    ]
    x = side
    for kind, wide in zip(legend, widths):
        parts.append(f'<g class="{kind}"><rect x="{x:.0f}" y="{side:.0f}" width="10" height="10"/>')
        parts.append(f'<text x="{x + 15:.0f}" y="{side + 9:.0f}">{kind}</text></g>')
        x += wide
    parts += placed.drawn(side, side + row)
    return "\n".join(parts) + "\n</svg>\n"


class _Placed:
    """A diagram with positions for boxes and edges, relative to its upper left corner."""

    def __init__(self, diagram: Diagram) -> None:
        self.boxes, self.edges, layers = _without_long_edges(diagram)
        self.inner = [_Placed(box.inside) if box.inside else None for box in self.boxes]
        sizes = [_size(box, inner) for box, inner in zip(self.boxes, self.inner)]
        self.sizes = sizes
        self.layout: Layout = layered(sizes, self.edges, layers)
        self.width, self.height = self.layout.width, self.layout.height

    def drawn(self, x: float, y: float) -> Iterator[str]:
        """The lines of the document with the upper left corner at (x, y)."""
        for source, target in self.edges:
            names = self.boxes[source].name, self.boxes[target].name
            yield _drawn_edge(self.layout.routes[source, target], names, x, y)
        for box, inner, corner, size in zip(
            self.boxes, self.inner, self.layout.corners, self.sizes
        ):
            left, top = x + corner[0], y + corner[1]
            yield from _drawn_box(box, left, top, size)
            if inner is not None:
                below = top + _MARGIN + _LINE * len(box.lines) + _MARGIN
                yield from inner.drawn(left + (size[0] - inner.width) / 2, below)
            yield "</g>"


def _without_long_edges(diagram: Diagram) -> tuple[list[Box], list[Edge], list[int]]:
    """Boxes, edges and layers, with small boxes near the ends of edges that span many layers."""
    boxes = list(diagram.boxes.values())
    numbers = {name: number for number, name in enumerate(diagram.boxes)}
    edges = [(numbers[source], numbers[target]) for source, target in diagram.edges]
    layers = depths(len(boxes), edges)
    again: dict[Edge, int] = {}
    found: list[Edge] = []
    for source, target in edges:
        if layers[target] - layers[source] <= _LONGEST:
            found.append((source, target))
            continue
        key = source, layers[target]
        if key not in again:
            again[key] = len(boxes)
            layers.append(layers[target] - 1)
            box = boxes[source]
            boxes.append(Box(box.name, _AGAIN, [box.name], f"{box.title}\n(from above)"))
        found.append((again[key], target))
    return boxes, found, layers


def _size(box: Box, inner: _Placed | None) -> Point:
    width = max(map(len, box.lines), default=0) * _CHARACTER + 2 * _MARGIN
    height = len(box.lines) * _LINE + 2 * _MARGIN
    if inner is not None:
        width = max(width, inner.width + 2 * _MARGIN)
        height += inner.height + _MARGIN
    return width, height


def _drawn_box(box: Box, x: float, y: float, size: Point) -> Iterator[str]:
    """A box and its text; the element stays open for nested boxes."""
    result = " result" if box.is_result else ""
    yield f'<g class="{box.kind}{result}" data-name="{escape(box.name)}">'
    yield f"<title>{escape(_plain(box.title))}</title>"
    left, top, width, height = map(_short, (x, y, *size))
    yield f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="4"/>'
    for number, line in enumerate(box.lines):
        below = y + _MARGIN + _LINE * (number + 0.8)
        yield f'<text x="{_short(x + _MARGIN)}" y="{_short(below)}">{escape(_plain(line))}</text>'


def _drawn_edge(route: Sequence[Point], names: tuple[str, str], x: float, y: float) -> str:
    points = [(x + a, y + b) for a, b in route]
    parts = ["M" + _joined(*points[0])]
    for position in range(1, len(points) - 1, 2):
        (a, b), (c, d) = points[position], points[position + 1]
        middle = (b + d) / 2
        parts.append(f"V{_short(b)}C{_joined(a, middle, c, middle, c, d)}")
    source, target = map(escape, names)
    return (
        f'<path class="edge" d="{"".join(parts)}" data-from="{source}" data-to="{target}">'
        f"<title>{source} to {target}</title></path>"
    )


def _joined(*numbers: float) -> str:
    return " ".join(map(_short, numbers))


def _short(number: float) -> str:
    """A number of pixels to one decimal place, without a trailing zero."""
    return f"{number:.1f}".removesuffix(".0")


def _kinds(diagram: Diagram) -> set[str]:
    found = set()
    for box in diagram.boxes.values():
        found |= {box.kind} | (_kinds(box.inside) if box.inside else set())
    return found


def _plain(text: str) -> str:
    """Text without the control characters that XML forbids."""
    return "".join(
        c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text
    )


def _style(kinds: Sequence[str]) -> str:
    """CSS rules, all scoped to the class of the picture."""
    themes = []
    for theme, (page, text, edge) in enumerate(
        (("#ffffff", "#24292f", "#8c959f"), ("#0d1117", "#e6edf3", "#6e7681"))
    ):
        rules = [
            f".page{{fill:{page}}}", f"text{{fill:{text}}}", f".edge{{stroke:{edge}}}",
            f".head{{fill:{edge}}}", f".again>rect{{stroke:{edge};fill:{page}}}",
        ]  # fmt: skip
        for kind in kinds:
            border, fill = _COLOURS[kind][theme]
            rules.append(f".{kind}>rect{{stroke:{border};fill:{fill}}}")
        themes.append("".join(f".metaop-graph {rule}" for rule in rules))
    fixed = (
        ".metaop-graph text{font:11px monospace;white-space:pre}"
        ".metaop-graph .edge{fill:none;marker-end:url(#metaop-arrow)}"
        ".metaop-graph .again>rect{stroke-dasharray:3 2}"
        ".metaop-graph .result>rect{stroke-width:2.5}"
    )
    return f"{fixed}{themes[0]}@media(prefers-color-scheme:dark){{{themes[1]}}}"
