"""The layout of a program: all that is needed to run it, as plain data that can be kept on disk."""

from __future__ import annotations

import json
from typing import NamedTuple

from metaop.codegen.llvm.kernels import kernel_cache
from metaop.codegen.schedule import Schedule, donations
from metaop.codegen.slots import Slots
from metaop.unified_graph import dtype as dtypes


class Launch(NamedTuple):
    """One launch: the key of the kernel's object, its buffers by slot, its integer arguments."""

    name: str
    kernel: str
    slots: tuple[int, ...]
    arguments: tuple[int, ...]
    tasks: int
    grain: int


class Layout(NamedTuple):
    """Slots hold the inputs, then the made outputs, then the temporaries.

    `input_types` are names of dtypes, `made` the bytes of the outputs to be allocated, `offsets`
    the places of the temporaries in an arena of `arena_bytes`. `results` tells of each result
    whether it is an input passed through, and its number among inputs or made outputs. `donors`
    pairs made outputs with the input whose memory they may take.
    """

    input_types: tuple[str, ...]
    made: tuple[int, ...]
    results: tuple[tuple[bool, int], ...]
    offsets: tuple[int, ...]
    arena_bytes: int
    donors: tuple[tuple[int, int], ...]
    launches: tuple[Launch, ...]


def layout_of(schedule: Schedule) -> Layout:
    """The layout of a schedule; its kernels start to be compiled on the way."""
    numbering = Slots(schedule)
    first_made = len(schedule.inputs)
    launches = []
    for launch in schedule.launches:
        key, arguments = kernel_cache().kernel_for(launch.nest)
        slots = tuple(numbering.of[node] for node in launch.buffers)
        nest = launch.nest
        launches.append(Launch(nest.name, key, slots, arguments, nest.tasks, nest.grain))
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
        tuple(launches),
    )


def to_bytes(layout: Layout) -> bytes:
    """The layout as JSON."""
    return json.dumps(layout, separators=(",", ":")).encode()


def from_bytes(content: bytes) -> Layout | None:
    """The layout that `to_bytes` wrote; None when it has another form."""
    try:
        types, made, results, offsets, arena_bytes, donors, launches = json.loads(content)
        layout = Layout(
            tuple(map(str, types)),
            _integers(made),
            tuple((bool(passed), int(number)) for passed, number in results),
            _integers(offsets),
            int(arena_bytes),
            tuple((int(output), int(source)) for output, source in donors),
            tuple(
                Launch(str(name), str(key), _integers(slots), _integers(arguments), tasks, grain)
                for name, key, slots, arguments, tasks, grain in launches
            ),
        )
        for name in layout.input_types:
            dtypes.dtype_named(name)
    except (ValueError, TypeError, KeyError):
        return None
    return layout if _slots_fit(layout) else None


def _integers(values: list[int]) -> tuple[int, ...]:
    return tuple(map(int, values))


def _slots_fit(layout: Layout) -> bool:
    count = len(layout.input_types) + len(layout.made) + len(layout.offsets)
    return all(0 <= slot < count for launch in layout.launches for slot in launch.slots)
