"""Time by source line: kernels, compilation, and host overhead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import CodeType
from typing import NamedTuple

from metaop.fusion.work import operations_of
from metaop.unified_graph.composite import Signature
from metaop.unified_graph.cut import Subgraph
from metaop.unified_graph.node import topological

# Stands for the source line of operators that recorded none.
_UNKNOWN = "unknown"
COMPILING = "compiling"
HOST = "starting programs"


class Place(NamedTuple):
    """A line of the user's program: its file, the enclosing function, and its number.

    >>> metaop.inspect.Place("train.py", "step", 7).line
    7
    """

    file: str
    function: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


class LineTime(NamedTuple):
    """The time spent for a line, in nanoseconds, and its share of the total.

    `kernels` maps kernel names to times, `operators` maps operators to how often each ran.

    >>> metaop.inspect.LineTime._fields
    ('place', 'share', 'kernels', 'compiling', 'host', 'operators')
    """

    place: Place
    share: float
    kernels: dict[str, float]
    compiling: float
    host: float
    operators: dict[str, int]

    @property
    def nanoseconds(self) -> float:
        return sum(self.kernels.values()) + self.compiling + self.host


def place_of(location: tuple[CodeType, int] | None) -> Place:
    """The `Place` of a recorded location."""
    if location is None:
        return Place(_UNKNOWN, _UNKNOWN, 0)
    code, line = location
    return Place(code.co_filename, code.co_name, line)


class Ledger:
    """Accumulates times by line; time shared by several lines is divided among them."""

    def __init__(self) -> None:
        self.spent: dict[Place, Counter[tuple[str, str]]] = {}
        self.operators: dict[Place, Counter[str]] = {}
        self._weights: dict[Signature, float] = {}

    def add(self, shares: dict[Place, float], kind: str, name: str, nanoseconds: float) -> None:
        """Charges a time to places by their shares, which add up to 1."""
        for place, share in shares.items():
            self.spent.setdefault(place, Counter())[kind, name] += share * nanoseconds  # type: ignore

    def shares(self, subgraph: Subgraph) -> dict[Place, float]:
        """The share of a subgraph's work that each line caused, by estimated operator cost."""
        found: Counter[Place] = Counter()
        for call, signature in subgraph.operators:
            found[place_of(call.location)] += self._weight(signature)  # type: ignore
        whole = sum(found.values())
        return {place: weight / whole for place, weight in found.items()}

    def note_operators(self, subgraph: Subgraph) -> None:
        """Counts the operators of a subgraph that has run."""
        for call, signature in subgraph.operators:
            names = self.operators.setdefault(place_of(call.location), Counter())
            names[signature.composite.name] += 1

    def lines(self, whole: float) -> list[LineTime]:
        """The lines, the longest first; shares are of `whole`."""
        found = []
        for place in dict.fromkeys([*self.spent, *self.operators]):
            spent = self.spent.get(place, Counter())
            kernels = {name: time for (kind, name), time in spent.items() if kind == "kernel"}
            found.append(
                LineTime(
                    place,
                    sum(spent.values()) / whole if whole else 0.0,
                    dict(sorted(kernels.items(), key=lambda item: -item[1])),
                    float(spent[COMPILING, COMPILING]),
                    float(spent[HOST, HOST]),
                    dict(self.operators.get(place, {})),
                )
            )
        return sorted(found, key=lambda line: -line.nanoseconds)

    def _weight(self, signature: Signature) -> float:
        """Operations plus elements read and written; never zero."""
        weight = self._weights.get(signature)
        if weight is None:
            outputs = signature.outputs[: signature.result_count]
            moved = sum(node.size for node in (*signature.inputs, *outputs))
            arithmetic = sum(map(operations_of, topological(outputs)))
            weight = self._weights[signature] = 1.0 + moved + arithmetic
        return weight


def as_text(lines: Sequence[LineTime], whole: float) -> str:
    """A table: milliseconds, share, the parts for kernels, compilation and host; the line.

    Operators and kernels follow below each line. The last row is Python between programs.
    """
    rows = [
        f"{'ms':>10}  {'share':>6}  {'kernels':>10}  {'compiling':>10}  {'host':>10}  line",
    ]
    rest = whole
    for line in lines:
        rest -= line.nanoseconds
        kernels = sum(line.kernels.values())
        times = (line.nanoseconds, kernels, line.compiling, line.host)
        total, *parts = (f"{time / 1e6:>10.3f}" for time in times)
        rows.append(f"{total}  {line.share:>6.1%}  {'  '.join(parts)}  {line.place}")
        if line.operators:
            rows.append(" " * 56 + "operators: " + _listed(line.operators))
        if line.kernels:
            rows.append(" " * 56 + "kernels: " + ", ".join(list(line.kernels)[:6]))
    share = rest / whole if whole else 0.0
    rows.append(f"{rest / 1e6:>10.3f}  {share:>6.1%}  {'':34}  Python between programs")
    return "\n".join(rows) + "\n"


def _listed(counts: dict[str, int]) -> str:
    first = [f"{name} x {count}" for name, count in list(counts.items())[:6]]
    return ", ".join(first if len(counts) <= 6 else [*first, "…"])
