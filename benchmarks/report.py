"""Results as text, Markdown and JSON."""

from __future__ import annotations

import dataclasses
import os
import platform
import statistics
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from benchmarks import first_steps, memory, sizes, whole_programs
from benchmarks.comparison import Comparison
from benchmarks.narrowed import paths_of_torch
from benchmarks.roofline import Roofline

# What is measured in fresh processes, each module in a table of its own.
TABLES = (first_steps, sizes, whole_programs, memory)


class Metric(NamedTuple):
    """One number about one framework, with what it should be at most, if that was said."""

    name: str
    framework: str
    value: float
    unit: str
    target: float | None = None


@dataclasses.dataclass
class Report:
    """All that one run of the benchmarks measured."""

    roofline: Roofline
    threads: int
    comparisons: list[Comparison] = dataclasses.field(default_factory=list)
    metrics: list[Metric] = dataclasses.field(default_factory=list)
    # By the module that measured them.
    rows: dict[ModuleType, list[Any]] = dataclasses.field(
        default_factory=lambda: {module: [] for module in TABLES}
    )
    failures: dict[str, str] = dataclasses.field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """All results as plain data, in seconds and bytes."""
        return {
            "machine": machine(self.threads),
            "roofline": self.roofline._asdict(),
            "comparisons": [_row(each) for each in self.comparisons],
            "geometric_means": geometric_means(self.comparisons),
            "metrics": [each._asdict() for each in self.metrics],
            **{module.GROUP: [row.as_json() for row in self.rows[module]] for module in TABLES},
            "failures": self.failures,
        }

    def as_markdown(self) -> str:
        """The tables of docs and remarks."""
        what = machine(self.threads)
        parts = [
            f"{what['processor']}, vectors of {what['vector_bytes']} bytes, "
            f"{self.threads} threads, PyTorch {what['torch']} "
            f"({what['paths_of_torch']}); copies {self.roofline.bandwidth / 1e9:.1f} GB/s, "
            f"multiply-adds {self.roofline.flops / 1e9:.0f} Gflop/s; "
            f"load {what['load']:.1f} at the end.\n"
        ]
        if self.comparisons:
            parts.append("\n".join([*_HEAD, *map(markdown_row, self.comparisons)]) + "\n")
            means = geometric_means(self.comparisons)
            lines = [
                f"| {group} | {ratio:.2f} | {least:.2f} |"
                for group, (ratio, least) in means.items()
            ]
            head = ("| group | geometric mean of the ratios | of minima |", "| --- | ---: | ---: |")
            parts.append("\n".join([*head, *lines]) + "\n")
            parts.extend(_modes(self.comparisons))
        if self.metrics:
            head = ("| what | framework | value | target |", "| --- | --- | ---: | ---: |")
            parts.append("\n".join([*head, *map(metric_row, self.metrics)]) + "\n")
        for module in TABLES:
            if self.rows[module]:
                table = [*module.HEAD, *map(module.markdown_row, self.rows[module])]
                parts.append("\n".join(table) + "\n")
        parts.extend(f"- {name} failed: {why}" for name, why in self.failures.items())
        return "\n".join(parts)


_HEAD = (
    "| workload | metaop ms (min) | PyTorch ms (min) | mode | ratio (of minima) "
    "| roofline | same |",
    "| --- | ---: | ---: | --- | ---: | ---: | --- |",
)


def markdown_row(row: Comparison) -> str:
    """One line of the table of comparisons."""
    ours, theirs = row.timings["metaop"], row.timings[row.best]
    share = "" if row.share is None else f"{row.share:.0%}"
    same = "yes" if row.equal else f"no: {row.error:.1e}"
    return (
        f"| {row.name} | {ours.median * 1e3:.3f} ({ours.least * 1e3:.3f}) "
        f"| {theirs.median * 1e3:.3f} ({theirs.least * 1e3:.3f}) | {row.best} "
        f"| {row.ratio:.2f} ({row.ratio_of_minima:.2f}) | {share} | {same} |"
    )


def _modes(rows: Sequence[Comparison]) -> Iterator[str]:
    """Each of PyTorch's modes beside metaop, if there are several, and why some are missing."""
    modes = list(dict.fromkeys(name for row in rows for name in (*row.timings, *row.excluded)))
    modes.remove("metaop")
    if len(modes) < 2:
        return
    lines = [f"| median ratio to | {' | '.join(modes)} |", "| --- |" + " ---: |" * len(modes)]
    for row in rows:
        ours = row.timings["metaop"].median
        cells = [
            f"{row.timings[mode].median / ours:.2f}" if mode in row.timings else "excluded"
            for mode in modes
        ]
        lines.append(f"| {row.name} | {' | '.join(cells)} |")
    yield "\n".join(lines) + "\n"
    for row in rows:
        for mode, why in row.excluded.items():
            yield f"- {mode} excluded from {row.name}: {why}"


def geometric_means(rows: Sequence[Comparison]) -> dict[str, tuple[float, float]]:
    """The geometric means of the ratios of medians and of minima, for each group."""
    groups: dict[str, list[Comparison]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    return {
        group: (
            statistics.geometric_mean(row.ratio for row in members),
            statistics.geometric_mean(row.ratio_of_minima for row in members),
        )
        for group, members in groups.items()
    }


def machine(threads: int) -> dict[str, Any]:
    """The machine of the measurements."""
    import torch

    from metaop.codegen.llvm.target import host_target, target_named

    target = host_target()
    return {
        "processor": target_named("native").cpu,
        "target": target.cpu,
        "vector_bytes": target.vector_bytes,
        "paths_of_torch": paths_of_torch(),
        "cores": os.cpu_count(),
        "threads": threads,
        "load": os.getloadavg()[0],
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _row(row: Comparison) -> dict[str, Any]:
    timings = {name: timing._asdict() for name, timing in row.timings.items()}
    computed = {
        "best": row.best,
        "ratio": row.ratio,
        "ratio_of_minima": row.ratio_of_minima,
        "equal": row.equal,
    }
    return {**row._asdict(), "timings": timings, **computed}


def metric_row(metric: Metric) -> str:
    """One line of the table of single numbers."""
    target = "" if metric.target is None else f"≤ {metric.target:g} {metric.unit}"
    value = f"{metric.value:.4g} {metric.unit}"
    return f"| {metric.name} | {metric.framework} | {value} | {target} |"
