"""Programs for all sizes that their guards admit: bound to numbers, they are programs like others.

Binding computes integers, nothing else: launches, their kernels and the order in the arena stay.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from metaop.codegen.llvm.layout import (
    Layout,
    from_bytes,
    integers_of,
    layout_of,
    to_bytes,
    with_integers,
)
from metaop.codegen.llvm.program import LLVMProgram
from metaop.codegen.schedule import Schedule
from metaop.codegen.verify import verify_sizes
from metaop.settings import get
from metaop.unified_graph.symbolic import SymInt, hint_of, is_symbolic
from metaop.unified_graph.symbolic_source import function_of, source_of


class GeneralProgram:
    """A layout of which some integers follow from symbols.

    `layout` has their hints, and `places` tells which of its integers they are. `source` is a
    Python function of the symbols that computes these, or None where a guard does not hold; behind
    them it gives `rest`, what further numbers of a subgraph have to be. `fixed` are numbers that
    are what they were. `symbols` are the positions of numbers, with signs.
    """

    def __init__(
        self,
        layout: Layout,
        places: Sequence[int],
        source: str,
        fixed: Sequence[tuple[int, float]],
        symbols: Sequence[tuple[int, int]],
        rest: Sequence[int],
    ) -> None:
        self.layout, self.source = layout, source
        self._places, self._symbols = list(places), [tuple(one) for one in symbols]
        self._fixed, self._rest = [tuple(one) for one in fixed], list(rest)
        self._fixed_at = [int(place) for place, _ in fixed]
        self._fixed_to = [number for _, number in fixed]
        # What is verified for each choice of sizes, where that is asked for.
        self._schedule: Schedule | None = None
        self._compute: Callable[..., tuple[int, ...] | None] = function_of(source)

    @staticmethod
    def of(schedule: Schedule, expected: Sequence[Any]) -> GeneralProgram:
        """The program of a schedule on symbolic sizes.

        `expected` has for every number of a subgraph what it has to be.
        """
        layout, env = layout_of(schedule), schedule.env
        assert env is not None
        integers = integers_of(layout)
        places = [k for k, one in enumerate(integers) if type(one) is SymInt]
        first = {one: k for k, one in reversed(list(enumerate(expected)))}
        symbols = [(first[s], 1) if s in first else (first[-s], -1) for s in env.symbols]
        named = {place for place, _ in symbols}
        fixed = [(k, one) for k, one in enumerate(expected) if not is_symbolic(one)]
        rest = [k for k, one in enumerate(expected) if is_symbolic(one) and k not in named]
        values = [*(integers[k] for k in places), *(expected[k] for k in rest)]
        plain = with_integers(layout, list(map(hint_of, integers)))
        found = GeneralProgram(plain, places, source_of(env, values), fixed, symbols, rest)
        if get("METAOP_VERIFY"):
            found._schedule = schedule
        return found

    def bind(self, numbers: Sequence[float]) -> LLVMProgram | None:
        """The program for the numbers of a subgraph; None when this is none for them."""
        values = self.values_for(numbers)
        if values is None:
            return None
        if self._schedule is not None:
            verify_sizes(self._schedule, self._symbols_of(numbers))
        integers = self._integers.copy()
        integers[self._places] = values
        return self._program.resized(integers)

    @property
    def conditions(self) -> list[str]:
        """The guards, and what they are made of, as text."""
        found: list[str] = []
        for line in reversed(self.source.splitlines()[1:-1]):
            text = line.strip()
            name, is_definition, _ = text.partition(" = ")
            if text.startswith("if not "):
                found.append(text.removeprefix("if not ").removesuffix(": return None"))
            elif is_definition and any(re.search(rf"\b{name}\b", other) for other in found):
                found.append(text)
        return found[::-1]

    def layout_for(self, numbers: Sequence[float]) -> Layout | None:
        """The layout of the program that `bind` gives."""
        values = self.values_for(numbers)
        if values is None:
            return None
        integers = self._integers.copy()
        integers[self._places] = values
        return with_integers(self.layout, integers.tolist())

    def values_for(self, numbers: Sequence[float]) -> Sequence[int] | None:
        """What the integers at `places` are for the numbers of a subgraph."""
        if [numbers[k] for k in self._fixed_at] != self._fixed_to:
            return None
        try:
            values = self._compute(*self._symbols_of(numbers))
        except ZeroDivisionError:
            return None
        count = len(self._places)
        if values is None or [numbers[k] for k in self._rest] != list(values[count:]):
            return None
        return values[:count]

    def _symbols_of(self, numbers: Sequence[float]) -> list[float]:
        return [sign * numbers[place] for place, sign in self._symbols]

    @cached_property
    def _program(self) -> LLVMProgram:
        return LLVMProgram(self.layout)

    @cached_property
    def _integers(self) -> np.ndarray:
        return np.array(integers_of(self.layout), np.int64)

    def to_bytes(self) -> bytes:
        """The program as text, for the cache on disk."""
        rest = (self._places, self.source, self._fixed, self._symbols, self._rest)
        return json.dumps([to_bytes(self.layout).decode(), *rest]).encode()

    @staticmethod
    def from_bytes(content: bytes) -> GeneralProgram | None:
        """The program that `to_bytes` wrote; None when it has another form."""
        try:
            layout, *rest = json.loads(content)
            found = from_bytes(layout.encode())
            return None if found is None else GeneralProgram(found, *rest)
        except (ValueError, TypeError, AttributeError, SyntaxError):
            return None
