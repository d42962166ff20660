"""`METAOP_DUMP=folder`: every program that is compiled, as text after every pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path

from metaop.codegen.lowering.repetition import flattened
from metaop.codegen.nest.generalise import without_symbols
from metaop.codegen.nest.ir import LoopNest
from metaop.codegen.schedule import Stage
from metaop.codegen.show_schedule import show_schedule


def dumped(
    stages: Iterable[Stage], folder: Path, source: Callable[[LoopNest], str] | None
) -> Iterator[Stage]:
    """The stages, each written as soon as it is made, so the input of a pass that fails is on disk.

    The program gets a folder, the first one `program-001`, in which `11-recompute.txt` is the
    result of the eleventh pass. The last file has the nests in the language of `source`, where
    symbols are arguments.
    """
    own = _new_folder(folder)
    number = 0
    for number, stage in enumerate(stages):
        text = f"{stage.name}: {stage.why}\n\n{show_schedule(stage.schedule)}"
        (own / f"{number:02}-{stage.name}.txt").write_text(text)
        yield stage
    if source is not None:
        texts = [
            source(without_symbols(launch.nest)) for launch in flattened(stage.schedule.launches)
        ]
        (own / f"{number + 1:02}-source.txt").write_text("\n".join(texts))


def _new_folder(folder: Path) -> Path:
    """The folder with the first free number; several processes may compete for it."""
    for number in count(1):
        found = folder / f"program-{number:03}"
        try:
            found.mkdir(parents=True)
            return found
        except FileExistsError:
            continue
    raise AssertionError
