"""Programs for all sizes that their guards admit; bound to numbers, they are ordinary programs.

Binding only computes integers; launches, their kernels and the order in the arena stay the same.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
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
from metaop.unified_graph.binding import Binding
from metaop.unified_graph.symbolic import SymInt, hint_of


class GeneralProgram:
    """A layout some of whose integers depend on symbols.

    `layout` has their hints, `places` says which of its integers they are, and `binding` computes
    them.
    """

    def __init__(self, layout: Layout, places: Sequence[int], binding: Binding) -> None:
        self.layout, self.binding = layout, binding
        self._places = list(places)
        # What is verified for each choice of sizes, where that is asked for.
        self._schedule: Schedule | None = None

    @staticmethod
    def of(schedule: Schedule, expected: Sequence[Any]) -> GeneralProgram:
        """The program of a schedule on symbolic sizes.

        `expected` has the required value of every number of a subgraph.
        """
        layout = layout_of(schedule)
        assert schedule.env is not None
        integers = integers_of(layout)
        places = [k for k, one in enumerate(integers) if type(one) is SymInt]
        binding = Binding.of(schedule.env, expected, [integers[k] for k in places])
        plain = with_integers(layout, list(map(hint_of, integers)))
        found = GeneralProgram(plain, places, binding)
        if get("METAOP_VERIFY"):
            found._schedule = schedule
        return found

    def bind(self, numbers: Sequence[float]) -> LLVMProgram | None:
        """The program for the numbers of a subgraph; None if the guards do not admit them."""
        integers = self._integers_for(numbers)
        if integers is None:
            return None
        if self._schedule is not None:
            verify_sizes(self._schedule, self.binding.symbols_of(numbers))
        return self._program.resized(integers)

    @property
    def conditions(self) -> list[str]:
        """The guards, and the definitions that they use, as text."""
        return self.binding.conditions

    def admits(self, numbers: Sequence[float]) -> bool:
        """Whether there is a program for the numbers of a subgraph."""
        return self.binding.values_for(numbers) is not None

    def layout_for(self, numbers: Sequence[float]) -> Layout | None:
        """The layout of the program that `bind` returns."""
        integers = self._integers_for(numbers)
        return None if integers is None else with_integers(self.layout, integers.tolist())

    def _integers_for(self, numbers: Sequence[float]) -> np.ndarray | None:
        values = self.binding.values_for(numbers)
        if values is None:
            return None
        integers = self._integers.copy()
        integers[self._places] = values
        return integers

    @cached_property
    def _program(self) -> LLVMProgram:
        return LLVMProgram(self.layout)

    @cached_property
    def _integers(self) -> np.ndarray:
        return np.array(integers_of(self.layout), np.int64)

    def to_bytes(self) -> bytes:
        """The program as text, for the cache on disk."""
        return json.dumps(
            [to_bytes(self.layout).decode(), self._places, *self.binding.state]
        ).encode()

    @staticmethod
    def from_bytes(content: bytes) -> GeneralProgram | None:
        """The program that `to_bytes` wrote; None if it has another format."""
        try:
            layout, places, *state = json.loads(content)
            found, binding = from_bytes(layout.encode()), Binding(*state)
        except (ValueError, TypeError, AttributeError, SyntaxError):
            return None
        return None if found is None else GeneralProgram(found, places, binding)
