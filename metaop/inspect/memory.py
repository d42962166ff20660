"""Host memory by source line, and over time."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple
from xml.sax.saxutils import escape

from metaop.codegen.memory.buffers import host
from metaop.errors import ArgumentError, describe_location, user_location
from metaop.execution import executor
from metaop.unified_graph.cut import Subgraph
from metaop.unified_graph.recording import Call, watched

_BEFORE = "held before"
_OTHERS = "others"
# The number of lines with their own colour in the picture, and of points in time.
_COLOURS = (
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#ee8866", "#44bb99",
)  # fmt: skip
_MOMENTS = 400
_WIDTH, _HEIGHT, _MARGIN, _ROW = 800, 300, 40, 18


class _Event(NamedTuple):
    """A block that was allocated, or freed if `nbytes` is negative."""

    seconds: float
    address: int
    nbytes: int


class MemoryRecord(executor.Watcher):
    """The host memory in use during a `with metaop.inspect.memory():` block.

    `peak` is the maximum and `used` the current number of bytes; both count whole allocator blocks
    and include the bytes in use `before`. `at_peak()` and `now()` list holders by operator and by
    the line that recorded it; memory of running programs belongs to the line that ran them.
    `table()` formats them as text, `save(path)` draws them over time as SVG. Only one record can be
    active; GPU memory and arrays shared with NumPy are not included.

    >>> with metaop.inspect.memory() as record:
    ...     x = metaop.ones(1000).exp().tolist()
    >>> record.peak >= 4000
    True
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._path = path
        self._events: list[_Event] = []
        self._labels: dict[int, str] = {}
        self.before = 0

    def __enter__(self) -> MemoryRecord:
        if host.watch is not None:
            raise ArgumentError("memory is already recorded", fix="end the other record first")
        self._kept_locations, watched.locations = watched.locations, True
        self.before = host.used
        self._begin = time.perf_counter()
        host.watch = self._note
        executor.watchers.append(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        host.watch = None
        executor.watchers.remove(self)
        watched.locations = self._kept_locations
        if self._path is not None:
            self.save(self._path)

    # --- while recording --------------------------------------------------------------------------

    def _note(self, address: int, nbytes: int) -> None:
        number = len(self._events)
        self._events.append(_Event(time.perf_counter() - self._begin, address, nbytes))
        if nbytes > 0:
            self._labels[number] = f"programs run at {describe_location(user_location())}"

    def computed(self, subgraph: Subgraph, start: int, end: int) -> None:
        """Attributes newly allocated memory to its calls."""
        results = filter(_is_host, subgraph.outputs)
        names = {call.buffer.address: _described(call) for call in results}
        for number in range(len(self._events) - 1, -1, -1):
            if not names:
                return
            event = self._events[number]
            if event.nbytes > 0 and event.address in names:
                self._labels[number] = names.pop(event.address)

    # --- afterwards -------------------------------------------------------------------------------

    @property
    def peak(self) -> int:
        return max(self.before, *(total for total, _, _ in self._moments()), 0)

    @property
    def used(self) -> int:
        return self.before + sum(event.nbytes for event in self._events)

    def at_peak(self) -> dict[str, int]:
        """Bytes by holder at the peak, the largest first."""
        peak, first = self.peak, Counter({_BEFORE: self.before})
        at_peak = (held for total, _, held in self._moments() if total == peak > self.before)
        return _sorted(next(at_peak, first))

    def now(self) -> dict[str, int]:
        """Bytes by holder at the end of the record, the largest first."""
        held = Counter({_BEFORE: self.before})
        for _, _, held in self._moments():  # noqa: B007
            pass
        return _sorted(held)

    def table(self, limit: int = 20) -> str:
        """The largest holders at the peak, in MiB."""
        rows = list(self.at_peak().items())
        lines = [f"{self.peak / 2**20:10.2f} MiB at the peak, {self.used / 2**20:.2f} at the end"]
        lines += [f"{nbytes / 2**20:10.2f} {name}" for name, nbytes in rows[:limit]]
        if len(rows) > limit:
            rest = sum(nbytes for _, nbytes in rows[limit:])
            lines.append(f"{rest / 2**20:10.2f} {_OTHERS}")
        return "\n".join(lines) + "\n"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Draws memory over time. Raises ArgumentError unless the path ends in .svg."""
        if Path(path).suffix != ".svg":
            raise ArgumentError(f"memory is drawn as SVG, not {path}", fix="name it ….svg")
        Path(path).write_text(self._picture())

    def _repr_svg_(self) -> str:
        return self._picture()

    def _moments(self) -> Iterator[tuple[int, float, Counter[str]]]:
        """The total, the time and the holders after each event; the counter object is reused."""
        held: Counter[str] = Counter({_BEFORE: self.before})
        blocks: dict[int, tuple[str, int]] = {}
        total = self.before
        for number, event in enumerate(self._events):
            total += event.nbytes
            if event.nbytes > 0:
                blocks[event.address] = self._labels[number], event.nbytes
                held[self._labels[number]] += event.nbytes
            else:
                name, _ = blocks.pop(event.address, (_BEFORE, 0))
                held[name] += event.nbytes
            yield total, event.seconds, held

    def _picture(self) -> str:
        names = [_BEFORE, *(name for name in self.at_peak() if name != _BEFORE)]
        shown = [*names[: len(_COLOURS) - 1], _OTHERS]
        points = [(seconds, _grouped(held, shown)) for seconds, held in self._thinned()]
        end, peak = max((x for x, _ in points), default=1.0) or 1.0, max(self.peak, 1)
        x = [_MARGIN + seconds / end * (_WIDTH - 2 * _MARGIN) for seconds, _ in points]
        below = [0] * len(points)
        parts = []
        for name, colour in zip(shown, _COLOURS):
            above = [low + held[name] for low, (_, held) in zip(below, points)]
            edge = [*zip(x, above), *reversed(list(zip(x, below)))]
            corners = " ".join(
                f"{a:.1f},{_HEIGHT - b / peak * (_HEIGHT - 20):.1f}" for a, b in edge
            )
            parts.append(
                f'<polygon fill="{colour}" points="{corners}"><title>{escape(name)}</title>'
            )
            parts.append("</polygon>")
            below = above
        at_peak = _grouped(Counter(self.at_peak()), shown)
        for row, (name, colour) in enumerate(zip(shown, _COLOURS)):
            y = _HEIGHT + 30 + row * _ROW
            text = escape(f"{at_peak[name] / 2**20:.2f} MiB at the peak: {name}")
            parts.append(
                f'<rect x="{_MARGIN}" y="{y - 10}" width="12" height="12" fill="{colour}"/>'
            )
            parts.append(f'<text x="{_MARGIN + 18}" y="{y}">{text}</text>')
        parts.append(f'<text x="{_MARGIN}" y="14">{peak / 2**20:.2f} MiB, {end:.3f} s</text>')
        size = f'width="{_WIDTH}" height="{_HEIGHT + 40 + len(shown) * _ROW}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" '
        return head + 'font-size="12">\n' + "\n".join(parts) + "\n</svg>\n"

    def _thinned(self) -> list[tuple[float, Counter[str]]]:
        """As many points in time as a picture can show: the peak of each interval."""
        stretch = -(-len(self._events) // _MOMENTS) or 1
        found: list[tuple[int, float, Counter[str]]] = []
        for number, (total, seconds, held) in enumerate(self._moments()):
            if number % stretch == 0:
                found.append((total, seconds, Counter(held)))
            elif total > found[-1][0]:
                found[-1] = total, seconds, Counter(held)
        return [(seconds, held) for _, seconds, held in found]


def memory(path: str | os.PathLike[str] | None = None) -> MemoryRecord:
    """Records host memory by holder inside a `with` block; with `path`, draws it at the end.

    Sizes are in bytes; see `MemoryRecord`.

    >>> with metaop.inspect.memory() as record:
    ...     x = metaop.ones(1000).exp().tolist()
    >>> isinstance(record.table(), str)
    True
    """
    return MemoryRecord(path)


def _is_host(call: Call) -> bool:
    return call.buffer is not None and hasattr(call.buffer, "is_pooled")


def _described(call: Call) -> str:
    maker = call.maker
    name = "a value" if maker.signature is None else maker.signature.composite.name
    where = describe_location(maker.location)
    return f"{name} at {where}" if where else name


def _grouped(held: Counter[str], shown: Sequence[str]) -> Counter[str]:
    found = Counter({name: held[name] for name in shown[:-1]})
    found[_OTHERS] = sum(held.values()) - sum(found.values())
    return found


def _sorted(held: Counter[str]) -> dict[str, int]:
    return {name: nbytes for name, nbytes in held.most_common() if nbytes}
