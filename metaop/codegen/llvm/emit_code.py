"""The text of a function while it is written: instructions placed at the loop they depend on.

A value has a level: the depth of the innermost loop that it depends on. `Code.pure` writes an
instruction at its level, in front of the loops inside which it does not change, and only once:
an instruction whose text is already there at that level gives the same value again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class Scope:
    """The body of a loop (or the function itself) that is being written.

    `prelude` lies in front of the loop, inside the test whether it runs at all; it holds what
    the body needs of the enclosing level. `writes` are the buffers that the body stores to.
    """

    lines: list
    prelude: list = field(default_factory=list)
    certain: bool = True
    writes: frozenset[int] = frozenset()
    known: dict[str, str] = field(default_factory=dict)
    known_before: dict[str, str] = field(default_factory=dict)


class Code:
    """Instructions, blocks and scopes of one function."""

    def __init__(self) -> None:
        self.scopes = [Scope([])]
        self.block = "entry"
        self.level_of: dict[str, int] = {}
        self.declarations: dict[str, None] = {}
        self._count = 0

    @property
    def depth(self) -> int:
        """The level of the code that is being written."""
        return len(self.scopes) - 1

    def name(self, stem: str = "v") -> str:
        """A fresh name of a value."""
        self._count += 1
        return f"%{stem}{self._count}"

    def label(self, stem: str) -> str:
        """A fresh name of a block."""
        self._count += 1
        return f"{stem}{self._count}"

    def level(self, *operands: str) -> int:
        """The level of an instruction with these operands; constants have level 0."""
        level_of = self.level_of
        return max((level_of.get(operand, 0) for operand in operands), default=0)

    def line(self, text: str) -> None:
        """Writes an instruction without a result, here."""
        self.scopes[-1].lines.append(text)

    def here(self, text: str, stem: str = "v") -> str:
        """Writes an instruction here and names its result."""
        name = self.name(stem)
        self.scopes[-1].lines.append(f"{name} = {text}")
        self.level_of[name] = self.depth
        return name

    def pure(self, text: str, *operands: str) -> str:
        """The result of an instruction that depends on nothing but its operands."""
        return self.at(self.level(*operands), text)

    def at(self, level: int, text: str) -> str:
        """The result of an instruction that may stand at `level`, written there once."""
        scopes = self.scopes
        known = scopes[level].known
        name = known.get(text)
        if name is not None:
            return name
        lines = scopes[level].lines
        if level < len(scopes) - 1:
            inner = scopes[level + 1]
            known, lines = inner.known_before, inner.prelude
            name = known.get(text)
            if name is not None:
                return name
        self._count += 1
        name = known[text] = f"%v{self._count}"
        lines.append(f"{name} = {text}")
        self.level_of[name] = level
        return name

    def safe_level(self, level: int) -> int:
        """The lowest level, from `level` up, where an instruction that may trap runs only if
        the code here runs too."""
        for depth in range(self.depth, level + 1, -1):
            if not self.scopes[depth].certain:
                return depth - 1
        return level

    def load_level(self, level: int, buffer: int) -> int:
        """The lowest level, from `level` up, at which a load of a buffer sees what it sees here."""
        for depth in range(self.depth, level, -1):
            if buffer in self.scopes[depth].writes:
                return depth
        return self.safe_level(level)

    def forget(self, keys: Iterable[str]) -> None:
        """Makes the next use of these instructions write them again."""
        for key in keys:
            for scope in self.scopes:
                scope.known.pop(key, None)
                scope.known_before.pop(key, None)

    def open(self, writes: frozenset[int], certain: bool) -> Scope:
        """Starts the body of a loop."""
        scope = Scope([], certain=certain, writes=writes)
        self.scopes.append(scope)
        return scope

    def close(self) -> Scope:
        """Ends the body of a loop; the caller places its prelude and its lines."""
        return self.scopes.pop()

    def start(self, label: str) -> None:
        """Starts a block here; the one before must have ended with a branch."""
        self.line(f"{label}:")
        self.block = label

    def declare(self, signature: str) -> None:
        """Asks for a declaration of a function that the code calls."""
        self.declarations[signature] = None

    def text(self) -> str:
        """The lines of the function body."""
        result: list[str] = []
        _flatten(self.scopes[0].lines, result)
        return "\n".join(result)


def _flatten(lines: list, result: list[str]) -> None:
    for line in lines:
        if isinstance(line, list):
            _flatten(line, result)
        else:
            result.append(line if line[-1] == ":" else "  " + line)
