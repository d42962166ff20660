"""The layout of a program: everything needed to run it, in a form that can be stored on disk."""

from __future__ import annotations

import itertools
import json
from operator import attrgetter
from typing import NamedTuple

from metaop.codegen.llvm.kernels import stored_kernel
from metaop.codegen.llvm.objects.engine import Code
from metaop.codegen.llvm.rows import Launch, Rows
from metaop.codegen.memory.slots import Slots
from metaop.codegen.schedule import Schedule, donations
from metaop.unified_graph import dtype as dtypes


class Layout(NamedTuple):
    """Slots hold the inputs, then the made outputs, then the temporaries, then `spare` ones that
    loops set.

    `input_types` are names of dtypes, `made` the bytes of the outputs to allocate, `offsets` those
    of the temporaries in an arena of `arena_bytes`. `results` says of each result whether it is an
    input passed through, and its number among inputs or made outputs. `donors` pairs made outputs
    with the input whose memory they may take. The first `own` launches are those of the program;
    these repeat the others. Offsets behind the arena are in a file of `spilled_bytes`.
    """

    input_types: tuple[str, ...]
    made: tuple[int, ...]
    results: tuple[tuple[bool, int], ...]
    offsets: tuple[int, ...]
    arena_bytes: int
    donors: tuple[tuple[int, int], ...]
    launches: tuple[Launch, ...]
    own: int
    spare: int
    spilled_bytes: int


def layout_of(schedule: Schedule) -> Layout:
    """The layout of a schedule; starts compiling its kernels."""
    numbering = Slots(schedule)
    first_made = len(schedule.inputs)
    rows = Rows(schedule, numbering.of, numbering.count)
    return Layout(
        tuple(dtype.name for dtype in numbering.input_types),
        tuple(numbering.made),
        tuple(numbering.results),
        tuple(schedule.offsets),
        schedule.arena_bytes,
        tuple(
            (numbering.of[output] - first_made, numbering.of[source])
            for output, source in donations(schedule).items()
        ),
        rows.launches,
        len(schedule.launches),
        rows.count - numbering.count,
        schedule.spilled_bytes,
    )


def integers_of(layout: Layout) -> list[int]:
    """The integers of a layout that may depend on sizes, in one list."""
    found = [*layout.made, *layout.offsets, layout.arena_bytes]
    found += [launch.tasks for launch in layout.launches]
    return found + [n for launch in layout.launches for n in launch.arguments]


def with_integers(layout: Layout, integers: list[int]) -> Layout:
    """The layout with other integers, in the order of `integers_of`."""
    supply = iter(integers)

    def take(old: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(itertools.islice(supply, len(old)))

    made, offsets, arena_bytes = take(layout.made), take(layout.offsets), next(supply)
    tasks = take(tuple(launch.tasks for launch in layout.launches))
    launches = tuple(
        launch._replace(tasks=number, arguments=take(launch.arguments))
        for launch, number in zip(layout.launches, tasks)
    )
    return layout._replace(made=made, offsets=offsets, arena_bytes=arena_bytes, launches=launches)


def to_bytes(layout: Layout) -> bytes:
    """The layout as JSON, with the keys of its kernels."""
    return json.dumps(layout, separators=(",", ":"), default=attrgetter("key")).encode()


def from_bytes(content: bytes) -> Layout | None:
    """The layout that `to_bytes` wrote; None if its format differs or a kernel is gone."""
    try:
        types, made, results, offsets, arena_bytes, donors, launches, *rest = json.loads(content)
        own, spare, spilled_bytes = _integers(rest)
        layout = Layout(
            tuple(map(str, types)),
            _integers(made),
            tuple((bool(passed), int(number)) for passed, number in results),
            _integers(offsets),
            int(arena_bytes),
            tuple((int(output), int(source)) for output, source in donors),
            tuple(
                Launch(str(name), _kernel(key), _integers(slots), _integers(numbers), tasks, grain)
                for name, key, slots, numbers, tasks, grain in launches
            ),
            own,
            spare,
            spilled_bytes,
        )
        for name in layout.input_types:
            dtypes.dtype_named(name)
    except (ValueError, TypeError, KeyError):
        return None
    return layout if _slots_fit(layout) else None


def _kernel(key: object) -> Code | None:
    if key is None:
        return None
    kernel = stored_kernel(str(key))
    if kernel is None:
        raise KeyError(key)
    return kernel


def _integers(values: list[int]) -> tuple[int, ...]:
    return tuple(map(int, values))


def _slots_fit(layout: Layout) -> bool:
    count = len(layout.input_types) + len(layout.made) + len(layout.offsets) + layout.spare
    return all(0 <= slot < count for launch in layout.launches for slot in launch.slots)
