"""What the tape knows of a call beside its inputs: leaves, hooks, gradients in user code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from metaop.differentiation.unsummed import Unsummed
from metaop.unified_graph.recording import Call

# What flows backwards: a value, or the rows of which it is the sum.
Cotangent = Call | Unsummed
# The cotangents of sources, from those of results.
GradientFunction = Callable[[Sequence[Any]], Sequence[Any]]
# The cotangents of a call, by output index, and the gradients that it passes to its sources.
Cotangents = dict[int, Cotangent]
Passed = Sequence[Cotangent | None]


@dataclass(eq=False)
class TapeEntry:
    """What only some calls need: a leaf's owner, hooks, or a gradient written by the user.

    `accumulate` takes the finished gradient of a leaf; `hooks` are called with the gradient of this
    call and return what replaces it, `retains` get it after them, and `after` is called when a leaf
    has accumulated it;
    `function` (called `name`) computes the gradients of `sources` (of their output number `index`)
    by user code, from the cotangents of `outputs` outputs, and `freed` is told when it will not be
    called again. The gradients of the inputs `unsummed` may be left as rows.
    `before` change the cotangents (by output index) from which a call computes the gradients of its
    sources, and `passed` these gradients, knowing the cotangents.
    """

    accumulate: Callable[[Cotangent], None] | None = None
    hooks: Callable[[Cotangent], Cotangent] | None = None
    retains: list[Callable[[Cotangent], None]] = field(default_factory=list)
    after: list[Callable[[Cotangent], None]] = field(default_factory=list)
    function: GradientFunction | None = None
    sources: tuple[Call | None, ...] = ()
    outputs: int = 1
    index: int = 0
    name: str = ""
    freed: Callable[[], None] | None = None
    unsummed: tuple[int, ...] = ()
    before: list[Callable[[Cotangents], Cotangents]] = field(default_factory=list)
    passed: list[Callable[[Passed, Cotangents], Passed]] = field(default_factory=list)

    def has_accumulated(self, gradient: Cotangent) -> None:
        """Runs the hooks of a leaf whose gradient has just been added to."""
        for done in tuple(self.after):
            done(gradient)

    @property
    def has_user_code(self) -> bool:
        """Whether something of the user runs when the gradient is known."""
        return bool(self.function or self.hooks or self.retains or self.before or self.passed)


# What gradients arrive at: a call, or the tape that all values of a leaf share. A leaf that was
# written outside the tape has several, and one gradient.
Variable = Call | TapeEntry
