"""The plots of the site and of the README, from the numbers in docs/benchmarks.md and docs/zoo.md.

python docs/tools/plots.py    draws docs/assets/*.svg, each for light and for dark pages

Each file tells in its metadata which numbers it shows; a test compares them with the page.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1]
ASSETS = DOCS / "assets"
# Colours of text, lines and the three kinds of marks, readable on white and on dark grey.
THEMES = {
    "light": {"text": "#24292f", "line": "#c4cad1", "marks": ("#1f5fa8", "#c2571a", "#2a7d4f")},
    "dark": {"text": "#e2e6ea", "line": "#4a5058", "marks": ("#7cb8ff", "#ffa066", "#6fd39b")},
}

Rows = list[tuple[str, list[float | None]]]
Theme = dict[str, Any]


def table(header: str) -> Rows:
    """The rows of a table of docs/benchmarks.md, found by its header: a name and numbers."""
    text = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    (found,) = (part for part in text.split("\n\n") if part.startswith(header))
    return rows_of(found)


def rows_of(text: str) -> Rows:
    """The rows of a table: a name and numbers."""
    rows: Rows = []
    for line in text.splitlines()[2:]:
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        rows.append((name.replace("`", ""), [number(cell) for cell in cells]))
    return rows


def family(heading: str) -> Rows:
    """A step of each network of a family of docs/zoo.md: milliseconds of metaop and of PyTorch."""
    parts = (DOCS / "zoo.md").read_text(encoding="utf-8").split("\n\n")
    (found,) = (part for before, part in pairwise(parts) if before == f"## {heading}")
    _, *header = (cell.strip() for cell in found.splitlines()[0].strip("|").split("|"))
    first = header.index("ms, metaop")
    return [(name, cells[first : first + 2]) for name, cells in rows_of(found)]


def number(cell: str) -> float | None:
    """The number that a cell holds, or None where it holds none or several."""
    try:
        return float(cell)
    except ValueError:
        return None


def column(rows: Rows, position: int) -> list[float]:
    """One column of a table, without empty cells."""
    return [value for _, cells in rows if (value := cells[position]) is not None]


def ranges() -> list[tuple[str, list[float]]]:
    """Times of PyTorch over times of metaop, by processor and kind of work."""
    training = [
        min(v for v in cells[:2] if v is not None) for _, cells in table("| training step | eager")
    ]
    second = [
        min(v for v in cells if v is not None) for _, cells in table("| training step on a Zen 3")
    ]
    attention = [v for _, cells in table("| tokens |") for v in cells if v is not None]
    return [
        ("Zen 5, AVX-512\n17 training steps", training),
        ("Zen 5, AVX-512\nattention", attention),
        ("Xeon, AVX-512\n14 streams of sizes", column(table("| stream | new | PyTorch | seen"), 4)),
        (
            "Sapphire Rapids\n9 streams of sizes",
            column(table("| stream | new | PyTorch | ratio"), 5),
        ),
        ("Emerald Rapids\n10 whole programs", column(table("| program |"), 4)),
        ("Zen 3, AVX2\n17 training steps", second),
        ("Zen 3, AVX2\n16 streams of sizes", column(table("| stream on a Zen 3"), 5)),
    ]


def mean(values: Iterable[float]) -> float:
    """The geometric mean."""
    logarithms = [math.log(value) for value in values]
    return math.exp(sum(logarithms) / len(logarithms))


def draw_speed(axes: Any, theme: Theme) -> list[float]:
    """One row for each processor and kind of work, one dot for each network or program."""
    rows = ranges()
    for k, (_, values) in enumerate(rows):
        axes.plot([min(values), max(values)], [k, k], color=theme["line"], lw=6, zorder=1)
        axes.scatter(values, [k] * len(values), s=22, color=theme["marks"][0], alpha=0.75, zorder=2)
        axes.plot([mean(values)] * 2, [k - 0.28, k + 0.28], color=theme["marks"][1], lw=2.5)
        axes.text(
            8.4, k, f"{min(values):.2f} – {max(values):.2f}", color=theme["text"], va="center"
        )
    axes.set_xscale("log")
    axes.set_xlim(0.25, 8)
    ticks = [0.25, 0.5, 1, 2, 4, 8]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.axvline(1, color=theme["text"], lw=1, ls=":")
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.invert_yaxis()
    axes.set_xlabel("time of PyTorch / time of metaop (mark: geometric mean)")
    return [value for _, values in rows for value in values]


def bars(
    header: str, columns: dict[str, int], label: str, read: Callable[[str], Rows] = table
) -> Callable[[Any, Theme], list[float]]:
    """A drawing of some columns of a table: one group of bars for each row."""

    def draw(axes: Any, theme: Theme) -> list[float]:
        rows = read(header)
        height = 0.8 / len(columns)
        for k, (name, position) in enumerate(columns.items()):
            places = [row + (k - (len(columns) - 1) / 2) * height for row in range(len(rows))]
            values = [cells[position] or 0 for _, cells in rows]
            axes.barh(places, values, height * 0.9, color=theme["marks"][k], label=name)
        axes.set_yticks(range(len(rows)), [name for name, _ in rows])
        axes.invert_yaxis()
        axes.set_xlabel(label)
        axes.legend(frameon=False, labelcolor=theme["text"], loc="lower right")
        return [v for position in columns.values() for v in column(rows, position)]

    return draw


RATIO = "time of PyTorch / time of metaop"
# What is drawn, and the height of the picture in inches; all are 6.4 wide.
PLOTS: dict[str, tuple[Callable[[Any, Theme], list[float]], float]] = {
    "speed": (draw_speed, 3.6),
    "training": (
        bars("| training step | eager", {"eager": 0, "channels-last, fused": 1}, RATIO),
        6.5,
    ),
    "memory": (
        bars("| training step | metaop MB", {"metaop": 0, "PyTorch": 1}, "megabytes of a step"),
        6.5,
    ),
    "programs": (
        bars(
            "| program |",
            {"metaop, nothing on disk": 0, "metaop, from the disk cache": 1, "PyTorch, eager": 2},
            "processor seconds",
        ),
        4.8,
    ),
    "adversarial": (
        bars(
            "Adversarial",
            {"metaop": 0, "PyTorch": 1},
            "milliseconds of the processor for a step of both players, one thread",
            family,
        ),
        8.5,
    ),
}


def shown(numbers: list[float]) -> str:
    """The numbers of a picture as its metadata has them."""
    return " ".join(f"{value:g}" for value in numbers)


def draw(name: str, theme_name: str) -> tuple[Any, str]:
    """A figure, and its numbers as text."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    theme = THEMES[theme_name]
    content, height = PLOTS[name]
    settings = {
        "svg.fonttype": "path",
        "svg.hashsalt": name,
        "font.size": 10,
        "text.color": theme["text"],
        "axes.labelcolor": theme["text"],
        "xtick.color": theme["text"],
        "ytick.color": theme["text"],
    }
    with pyplot.rc_context(settings):
        figure, axes = pyplot.subplots(figsize=(6.4, height), layout="constrained")
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.spines["bottom"].set_color(theme["line"])
        axes.grid(axis="x", color=theme["line"], lw=0.5)
        axes.set_axisbelow(True)
        axes.tick_params(length=0)
        numbers = content(axes, theme)
    return figure, shown(numbers)


def main() -> None:
    """Draws all plots."""
    from matplotlib import pyplot

    for name in PLOTS:
        for theme in THEMES:
            figure, numbers = draw(name, theme)
            metadata = {"Description": numbers, "Date": None}
            figure.savefig(ASSETS / f"{name}-{theme}.svg", transparent=True, metadata=metadata)
            pyplot.close(figure)


def described(path: Path) -> str:
    """The numbers that a picture says it shows."""
    found = re.search(r"<dc:description>(.*?)</dc:description>", path.read_text(), re.DOTALL)
    assert found is not None, path
    return found[1]


if __name__ == "__main__":
    main()
