"""The text of a function under construction, with loop-invariant code motion and value numbering.

A value has a level: the depth of the innermost loop on which it depends. An instruction is written
at the level of its operands, outside the loops in which it is invariant, and only once: an
instruction whose text is already at that level gives the same value again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from metaop.codegen.llvm.builder import Builder, BuilderTarget
from metaop.codegen.llvm.instructions.value import Value


@dataclass
class Scope:
    """The body of a loop (or the function itself) that is being written.

    `prelude` precedes the loop, inside the test whether it runs at all, and has what the body needs
    of the enclosing level. `certain` says that the body runs whenever the code around it does;
    `writes` are the buffers to which the body stores.
    """

    block: str
    prelude_block: str = ""
    certain: bool = True
    writes: frozenset[int] = frozenset()
    lines: list = field(default_factory=list)
    prelude: list = field(default_factory=list)
    known: dict[str, str] = field(default_factory=dict)
    known_before: dict[str, str] = field(default_factory=dict)


class Code(Builder):
    """A builder of one function that hoists and shares instructions.

    `lines` and `block` belong to the scope that is being filled, `level` is the level at which
    instructions are placed.
    """

    def __init__(self, target: BuilderTarget) -> None:
        super().__init__(target)
        self.scopes = [Scope("entry")]
        self.lines = self.scopes[0].lines
        self.level_of: dict[str | int, int] = {}
        self.level = 0
        self._earlier: dict[str, str] = self.scopes[0].known
        self._known: dict[str, str] = self.scopes[0].known
        self._straight = True
        # Stack allocations, at the start of the function.
        self._frame: list[str] = []
        self.lines.append(self._frame)

    @property
    def depth(self) -> int:
        """The level of the current code."""
        return len(self.scopes) - 1

    def level_among(self, *operands: str | int) -> int:
        """The level of an instruction with these operands; constants have level 0."""
        level_of, highest = self.level_of, 0
        for operand in operands:
            level = level_of.get(operand, 0)
            if level > highest:
                highest = level
        return highest

    # --- placing ----------------------------------------------------------------------------

    def emit(self, instruction: str) -> str:
        """The result of an instruction at the current level, which is written once."""
        name = self._known.get(instruction) or self._earlier.get(instruction)
        if name is not None:
            return name
        self._counter += 1
        name = f"%v{self._counter}"
        self.lines.append(f"  {name} = {instruction}")
        self.level_of[name] = self.level
        if self._straight:
            self._known[instruction] = name
        return name

    def here(self, instruction: str) -> str:
        """The result of an instruction with effects, which is written each time."""
        name = self.fresh()
        self.lines.append(f"  {name} = {instruction}")
        return name

    def reserve(self, count: int, kind: str) -> str:
        """The address of stack memory for `count` values of a type."""
        name = Builder.fresh(self, "room")
        self._frame.append(f"  {name} = alloca [{count} x {kind}], align 64")
        return name

    def pure(self, instruction: str, *operands: str) -> str:
        """The result of an instruction that depends only on its operands."""
        return self.at(self.level_among(*operands), instruction)

    def at(self, level: int, instruction: str) -> str:
        """The result of an instruction that may be placed at `level`."""
        if level == self.level:
            return self.emit(instruction)
        scope = self.scopes[level]
        lines, known, _ = self._place(level)
        name = known.get(instruction) or scope.known.get(instruction)
        if name is None:
            self._counter += 1
            name = known[instruction] = f"%v{self._counter}"
            lines.append(f"  {name} = {instruction}")
            self.level_of[name] = level
        return name

    def _place(self, level: int) -> tuple[list, dict[str, str], str]:
        """Where instructions of a level are written now: lines, what they know, and the block."""
        if level == self.depth:
            scope = self.scopes[level]
            return scope.lines, scope.known, scope.block
        inner = self.scopes[level + 1]
        return inner.prelude, inner.known_before, inner.prelude_block

    @contextmanager
    def placed(self, level: int) -> Iterator[None]:
        """A scope whose instructions go to `level`: here, or in front of the loop below it."""
        if level == self.level:
            yield
            return
        before = self.lines, self.block, self.level, self._earlier, self._known, self._straight
        self.level, self._earlier, self._straight = level, self.scopes[level].known, True
        self.lines, self._known, self.block = self._place(level)
        try:
            yield
        finally:
            if level == self.depth:
                self.scopes[level].block = self.block
            else:
                self.scopes[level + 1].prelude_block = self.block
            self.lines, self.block, self.level, self._earlier, self._known, self._straight = before

    def fresh(self, prefix: str = "v") -> str:
        name = super().fresh(prefix)
        self.level_of[name] = self.level
        return name

    def start_block(self, label: str) -> None:
        # Code written from here on does not dominate what follows the branches.
        self._straight = False
        super().start_block(label)
        if self.level == self.depth:
            self.scopes[-1].block = label

    def line_label(self, label: str) -> None:
        """Starts a block that all control passes through, or one without values for others."""
        straight = self._straight
        self.start_block(label)
        self._straight = straight

    def conditional(self) -> None:
        """Values written from here to the end of `branching` are not available afterwards."""
        self._straight = False

    @contextmanager
    def branching(self) -> Iterator[None]:
        """A scope whose branches join at its end."""
        before = self._straight
        try:
            yield
        finally:
            self._straight = before

    def either(self, condition: str, one: Callable[[], None], other: Callable[[], None]) -> None:
        """Runs `one` if a condition holds, else `other`."""
        first, second, done = map(self.new_label, ("one", "other", "after"))
        self.line(f"br i1 {condition}, label %{first}, label %{second}")
        for label, run in ((first, one), (second, other)):
            self.line_label(label)
            with self.branching():
                self.conditional()
                run()
            self.line(f"br label %{done}")
        self.line_label(done)

    def if_else(
        self, condition: Value, body: Callable[[], Value], otherwise: Callable[[], Value]
    ) -> Value:
        results: list[tuple[Value, str]] = []
        runs = [lambda run=run: results.append((run(), self.block)) for run in (body, otherwise)]
        self.either(condition.text, *runs)
        joined = self.phi_like(results[0][0])
        for value, block in results:
            joined.add(value, block)
        return joined.value

    def once(self, key: str, make: Callable[[], Value]) -> str:
        """The name of what `make` writes at the current level, which is written once for a key."""
        name = self._known.get(key) or self._earlier.get(key)
        if name is None:
            name = make().text
            if self._straight:
                self._known[key] = name
        return name

    def safe_level(self, level: int) -> int:
        """The lowest level, from `level` up, at which an instruction that may trap runs only if the
        current code runs too."""
        for depth in range(self.depth, level + 1, -1):
            if not self.scopes[depth].certain:
                return depth - 1
        return level

    def load_level(self, level: int, buffer: int) -> int:
        """The lowest level, from `level` up, at which a load of a buffer gives the same value."""
        for depth in range(self.depth, level, -1):
            if buffer in self.scopes[depth].writes:
                return depth
        return self.safe_level(level)

    def forget(self, instructions: Iterable[str]) -> None:
        """Forgets instructions, so that their next use writes them again."""
        for scope in self.scopes:
            for instruction in instructions:
                scope.known.pop(instruction, None)
                scope.known_before.pop(instruction, None)

    # --- scopes -----------------------------------------------------------------------------

    def open(self, prelude_block: str, block: str, certain: bool, writes: frozenset[int]) -> Scope:
        """Starts the body of a loop, in a block of its own."""
        scope = Scope(block, prelude_block, certain, writes)
        self.scopes.append(scope)
        self._enter(scope)
        return scope

    def close(self) -> Scope:
        """Ends the body of a loop; the caller places its prelude and its lines."""
        closed = self.scopes.pop()
        self._enter(self.scopes[-1])
        return closed

    def _enter(self, scope: Scope) -> None:
        self.lines, self.block, self.level = scope.lines, scope.block, self.depth
        self._earlier = self._known = scope.known

    def flatten(self) -> None:
        """Joins the lines of all loops into `lines`, ready for `finish_function`."""
        result: list[str] = []
        _flatten(self.scopes[0].lines, result)
        self.lines = result


def _flatten(lines: list, result: list[str]) -> None:
    for line in lines:
        if isinstance(line, list):
            _flatten(line, result)
        else:
            result.append(line)
