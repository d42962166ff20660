"""Trains every network of `models/` for a while, and writes docs/zoo.md of what was measured.

    python -m benchmarks.zoo               # all networks
    python -m benchmarks.zoo lenet ppo     # some of them; the others stay as they were

Each network is trained as `python -m models NAME train` does it, with one thread, and once more
with PyTorch in the place of metaop where its text allows that.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import importlib
import io
import json
import os
import re
import statistics
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import frameworks
from models.__main__ import networks

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs" / "zoo.md"
RECORD = Path(__file__).with_suffix(".json")
# What a network imports of `models/` tells its family; the first that fits counts.
FAMILIES = {
    "adversarial": "adversarial",
    "detection_training": "detection",
    "segmentation": "segmentation",
    "environments": "acting",
    "clicks": "recommendation",
    "point_cloud": "points and surfaces",
    "pointnet": "points and surfaces",
    "learn_digits": "image classification",
}
OTHERS = {
    "diffusion and scenes": ("diffusion", "nerf"),
    "faces": ("arcface",),
    "graphs": ("gat", "gcn", "gin", "graphsage", "knowledge", "rgcn", "sgc"),
    "image classification": ("lenet", "mlp", "resnet"),
    "language and sound": (
        *("bert", "gpt", "gpt2", "gru", "llama", "lstm", "minilm", "mixture", "t5", "transformer"),
        "whisper",
    ),
    "points and surfaces": ("mesh_cnn", "point_cloud"),
    "recommendation": ("gcmc",),
    "segmentation": ("unet",),
}
# A training is cut off after so many seconds of the processor, with metaop and with PyTorch.
SECONDS = {"metaop": 4.0, "torch": 1.5}
PREFACE = f"""Written by `python -m benchmarks.zoo`, not by hand. Each network was trained as
`python -m models NAME train` does it, on one thread of a machine that others used, too. Trainings
were cut off after at most {SECONDS["metaop"]:.0f} seconds of the processor, so those with few steps
have not learnt yet. Parameters are those of the small network that is trained. Times are medians of
a step, in milliseconds of the processor. PyTorch runs the same text; `–` says that it cannot, or
that it was not measured."""
# Steps that compile, or warm up, are not timed.
WARM_UP = 3


@functools.cache
def titles() -> dict[str, str]:
    """What each network is called: the first line of its file up to the colon."""
    return {name: line.split(":")[0].rstrip(".") for name, line in networks().items()}


@functools.cache
def program(name: str) -> ast.Module:
    """The parsed file of a network."""
    return ast.parse((ROOT / "models" / f"{name}.py").read_text(encoding="utf-8"))


def family(name: str) -> str:
    """The family of a network: "others" if no rule fits."""
    for kind, names in OTHERS.items():
        if name in names:
            return kind
    imported = set()
    for part in ast.walk(program(name)):
        if isinstance(part, ast.ImportFrom) and part.level == 1:
            imported |= {part.module, *(alias.name for alias in part.names)}
    for module, kind in FAMILIES.items():
        if module in imported:
            return kind
    return "others"


def learns(name: str) -> str:
    """What a network learns: the first sentence of `main`, without what it returns."""
    for part in program(name).body:
        if isinstance(part, ast.FunctionDef) and part.name == "main":
            sentence = (ast.get_docstring(part) or "").split("\n")[0]
            return re.split(r"; returns|;|\.$", sentence)[0]
    raise KeyError(f"{name} has no main")


class Watch:
    """Counts trained parameters, times steps, and ends trainings after so many seconds.

    It has to be there before the networks are imported, which take `train` by its name.
    """

    def __init__(self, library: Any, demonstration: Any, seconds: float) -> None:
        self.seconds = seconds
        self.prepare = library.optim.Optimizer.__init__
        self.begin()
        demonstration.train = self.train
        optimizers = importlib.import_module(f"{library.__name__}.optim.optimizer")
        self.hook = optimizers.register_optimizer_step_post_hook(self.stepped)
        library.optim.Optimizer.__init__ = lambda *words, **named: self.count(*words, **named)

    def begin(self) -> None:
        """Forgets what was measured."""
        self.parameters: dict[int, int] = {}
        self.times: list[float] = []
        self.ends: list[float] = []
        self.history: dict[str, list[float]] = {}

    def stepped(self, *_: Any) -> None:
        """Told after every step of an optimizer: some trainings have a loop of their own."""
        self.ends.append(time.process_time())

    def train(
        self, step: Callable[[int], Any], steps: int, title: str, kept: Any = None, log: str = ""
    ) -> dict[str, list[float]]:
        """In the place of `demonstration.train`: steps are timed, and may be fewer."""
        start = before = time.process_time()
        for number in range(steps):
            values = {name: value.item() for name, value in step(number).items()}
            for name, value in values.items():
                self.history.setdefault(name, []).append(value)
            now = time.process_time()
            self.times.append(now - before)
            before = now
            if number < WARM_UP:
                start = now
            elif now - start > self.seconds:
                break
        return self.history

    def count(self, optimizer: Any, *words: Any, **named: Any) -> None:
        """In the place of an optimizer's `__init__`: its parameters are counted once."""
        self.prepare(optimizer, *words, **named)
        for group in optimizer.param_groups:
            self.parameters |= {id(value): value.numel() for value in group["params"]}


def reached(printed: str, history: dict[str, list[float]]) -> str:
    """What a training says at its end, or else the means of its last ten steps."""
    lines = [line for line in printed.splitlines() if line.strip()]
    if lines and re.search(r"[a-z].*\d\.\d", lines[-1]) and len(lines[-1]) < 120:
        return lines[-1]
    return ", ".join(f"{name} {np.mean(values[-10:]):.3f}" for name, values in history.items())


def measure_all(names: Sequence[str], framework: str) -> None:
    """Prints what was measured of each network, and null where it cannot be trained, as JSON."""
    load = importlib.import_module if framework == "metaop" else frameworks.torch_twin
    library = importlib.import_module(framework)
    if framework == "torch":
        library.set_num_threads(1)
    watch = Watch(library, load("models.demonstration"), SECONDS[framework])
    for name in names:
        watch.begin()
        output = io.StringIO()
        found: dict[str, Any] | None = None
        try:
            with contextlib.redirect_stdout(output):
                load(f"models.{name}").main([])
        except Exception as error:
            print(f"{name} with {framework}: {error}", file=sys.stderr)
        else:
            if not watch.times:
                watch.times = np.diff(watch.ends).tolist()
            times = watch.times[WARM_UP:]
            found = {
                "parameters": sum(watch.parameters.values()),
                "steps": len(watch.times),
                "seconds": statistics.median(times) if times else None,
                "reached": reached(output.getvalue(), watch.history),
            }
        print(json.dumps([name, found]), flush=True)


def measured_apart(names: Sequence[str], framework: str) -> Iterator[tuple[str, Any]]:
    """What `measure_all` prints in a process that imports one framework only."""
    command = [sys.executable, "-m", "benchmarks.zoo", "--only", framework, *names]
    environment = {**os.environ, "METAOP_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("["):
                yield tuple(json.loads(line))


def cells(name: str, own: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """The columns of a network, of what was measured with metaop and with PyTorch."""

    def shown(value: Any, text: str) -> str:
        return text.format(value) if value else "–"

    times = (1000 * (found.get("seconds") or 0) for found in (own, other))
    return [
        *(f"`{name}`", titles()[name], learns(name), shown(own.get("parameters"), "{:,}")),
        *(shown(own.get("steps"), "{}"), shown(own.get("reached"), "{}")),
        *(shown(time, "{:.1f}") for time in times),
    ]


def document(record: dict[str, Any]) -> str:
    """The page of all networks, with what is recorded of them."""
    lines = ["# The networks", "", textwrap.fill(PREFACE, 100), ""]
    kinds: dict[str, list[str]] = {}
    for name in titles():
        kinds.setdefault(family(name), []).append(name)
    for kind, names in sorted(kinds.items()):
        lines += [
            f"## {kind.capitalize()}",
            "",
            "| name | network | what it does | parameters | steps | reached | metaop | PyTorch |",
            "| --- | --- | --- | ---: | ---: | --- | ---: | ---: |",
        ]
        for name in names:
            found = record.get(name, {})
            row = cells(name, found.get("metaop") or {}, found.get("torch") or {})
            lines.append("| " + " | ".join(row) + " |")
        lines.append("")
    return "\n".join(lines)


def recorded() -> dict[str, Any]:
    """What was measured, by the names of the networks that there are."""
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    return {name: record[name] for name in titles() if name in record}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--only", choices=sorted(SECONDS), help="measure here, and print JSON")
    options = parser.parse_args()
    names = options.names or list(titles())
    if options.only:
        measure_all(names, options.only)
        return
    for framework in SECONDS:
        for name, found in measured_apart(names, framework):
            print(name, framework, found, flush=True)
            record = recorded()
            record.setdefault(name, {})[framework] = found
            RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    DOCUMENT.write_text(document(recorded()))


if __name__ == "__main__":
    main()
