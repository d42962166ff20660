"""Measures metaop beside PyTorch.

python -m benchmarks.run                          # everything, several minutes
python -m benchmarks.run softmax resnet --quick   # what has one of these words in its name
python -m benchmarks.run --json out.json --markdown out.md
python -m benchmarks.run training: --threads 1    # CPU time, which other processes hardly change
python -m benchmarks.run first_steps:             # first steps in fresh processes
python -m benchmarks.run sizes:                   # streams of ever new sizes
python -m benchmarks.run programs:                # small complete trainings in fresh processes
python -m benchmarks.run memory:                  # peak memory of training steps
python -m benchmarks.run training: --target avx2  # both as on a processor without AVX-512
python -m benchmarks.run "cost model"             # how well estimates rank kernels
python -m benchmarks.run iterations: --threads 1  # many steps of small trainings as one program
python -m benchmarks.run --modes torch torch-fused torch-compile torch-dynamic
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from tqdm import tqdm

from benchmarks import (  # three register workloads
    attention,  # noqa: F401
    cost_model,
    host,
    iterations,
    memory_bound,  # noqa: F401
    processes,
    whole_steps,  # noqa: F401
)
from benchmarks import roofline as rooflines
from benchmarks.comparison import Effort, compare, reason
from benchmarks.frameworks import MODES
from benchmarks.narrowed import TARGETS, restart
from benchmarks.report import TABLES, Metric, Report, markdown_row, metric_row
from benchmarks.workload import WORKLOADS, Workload

_FULL = Effort(rounds=9, burst=0.05)
_QUICK = Effort(rounds=4, burst=0.02)
_METRICS: dict[str, Callable[[], list[Metric]]] = {
    "cost model: estimated beside measured seconds of kernels": cost_model.measure,
    "host: cost of recording and of a step": host.measure,
    "iterations: many steps as one program": iterations.measure,
    "processes: import, first results": processes.measure,
}


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="words of names or groups; all without any")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter turns")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    parser.add_argument(
        "--modes",
        nargs="+",
        default=["torch"],
        choices=MODES,
        help="the fastest of these counts",
    )
    parser.add_argument(
        "--threads", type=int, default=0, help="of both; one thread is measured by its CPU time"
    )
    parser.add_argument("--target", choices=TARGETS, help="instructions that both may use at most")
    return parser.parse_args(arguments)


def chosen(words: Sequence[str], names: Sequence[str]) -> list[str]:
    """The names that contain one of the words."""
    wanted = [word.lower() for word in words]
    return [name for name in names if not wanted or any(word in name.lower() for word in wanted)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures the chosen benchmarks, prints results as they come and writes the files."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options = parse_options(arguments)
    if options.target:
        restart("benchmarks.run", arguments, options.target)
    rows = {f"{row.group}: {row.name}": row for row in WORKLOADS.values()}
    members = {name: (module, key) for module in TABLES for name, key in module.names().items()}
    selected = chosen(options.names, [*_METRICS, *members, *rows])
    if options.list:
        print("\n".join(selected))
        return
    if options.threads:
        _set_threads(options.threads)
    # Steady steps run the code that programs have once they have run for long; fresh processes
    # compile as users' programs do.
    with mock.patch.dict(os.environ, METAOP_TIERS="0"):
        report = _measured(selected, rows, members, options)
    print(report.as_markdown())
    if options.json:
        options.json.write_text(json.dumps(report.as_json(), indent=1) + "\n")
    if options.markdown:
        options.markdown.write_text(report.as_markdown())


def _measured(
    selected: Sequence[str],
    rows: Mapping[str, Workload],
    members: Mapping[str, tuple[Any, str]],
    options: argparse.Namespace,
) -> Report:
    report = Report(rooflines.measure(), _threads())
    for name in (bar := tqdm(selected, "benchmarks", unit=" rows", disable=None)):
        try:
            if name in rows:
                line = _add_comparison(report, rows[name], options)
            elif name in members:
                module, key = members[name]
                report.rows[module].append(module.measure(key, options.modes, options.quick))
                line = module.markdown_row(report.rows[module][-1])
            else:
                found = _METRICS[name]()
                report.metrics.extend(found)
                line = "\n".join(map(metric_row, found))
        except Exception as error:  # what cannot run must not end the others
            report.failures[name] = reason(error)
            line = f"{name} failed: {report.failures[name]}"
        bar.write(line)
        gc.collect()
    return report


def _add_comparison(report: Report, workload: Workload, options: argparse.Namespace) -> str:
    effort = _QUICK if options.quick else _FULL
    if options.threads == 1:
        effort = effort._replace(clock=time.thread_time)
    row = compare(workload, options.modes, effort, report.roofline)
    report.comparisons.append(row)
    return markdown_row(row)


def _set_threads(count: int) -> None:
    """Sets the number of threads of both frameworks."""
    import torch

    import metaop

    torch.set_num_threads(count)
    metaop.set_num_threads(count)


def _threads() -> int:
    from metaop.codegen.llvm.runtime import runtime

    return runtime().get_num_threads()


if __name__ == "__main__":
    main()
