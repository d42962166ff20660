"""`metaop.iterate`: many training steps as one program."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from metaop.capture import Captured
from metaop.capture.repeated import NotRepeatableError, Repeated
from metaop.capture.replay import Replay
from metaop.codegen.budget import current_budget
from metaop.errors import ArgumentError, ArgumentTypeError, CaptureError, ShapeError
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.functions.indexing import host_tensor
from metaop.tensor.functions.joining import cat, stack
from metaop.tensor.functions.scattering import index_select
from metaop.trees import TreeSpec, tree_flatten, tree_unflatten
from metaop.unified_graph.recording import leaf
from metaop.unified_graph.tensor_type import TensorType


class Iterated:
    """A function under `metaop.iterate`; `step` is the captured function of one step."""

    def __init__(
        self, function: Callable[..., Any], iterations: int | None, fallback: bool
    ) -> None:
        functools.update_wrapper(self, function)
        self.iterations = iterations
        self.step = Captured(function, fallback, keeps_graphs=True)
        self._last: tuple[Replay, Repeated | str] | None = None

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, structure = tree_flatten((args, kwargs))
        stacks = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        count = self._count(stacks)
        collected = _Collected()
        done = self._run_loop(leaves, structure, count, collected)
        for position in range(done, count):
            index = host_tensor(np.array([position]))
            own = [_element(x, index.to(x.device)) if isinstance(x, Tensor) else x for x in leaves]
            written = [x._writes for x in own if isinstance(x, Tensor)]
            step_args, step_kwargs = tree_unflatten(own, structure)
            collected.add(self.step(*step_args, **step_kwargs))
            if [x._writes for x in own if isinstance(x, Tensor)] != written:
                raise CaptureError(
                    "a step of metaop.iterate writes an argument in place, but it is one of many "
                    "stacked elements",
                    fix="clone the argument, write the clone, and return it",
                )
        return collected.stacked()

    def _count(self, stacks: Sequence[Tensor]) -> int:
        """The number of steps that the stacked arguments provide."""
        for x in stacks:
            if not x.ndim:
                raise ShapeError(
                    "metaop.iterate: a tensor argument has no dimension for the steps",
                    fix="stack the arguments of all steps, or use the tensor from a closure",
                )
        found = {x.shape[0] for x in stacks}
        if self.iterations is not None:
            found.add(self.iterations)
        if len(found) != 1 or 0 in found:
            problem = "neither a tensor argument nor `iterations` tells how many steps"
            if found:
                problem = f"arguments for {sorted(found)} steps"
            raise ShapeError(
                f"metaop.iterate: {problem}",
                fix="stack all arguments along dimension 0, one element for each step",
            )
        return int(found.pop())

    def _run_loop(
        self, leaves: list[Any], structure: TreeSpec, count: int, collected: _Collected
    ) -> int:
        """Runs steps as one program while the known replays apply; returns how many it ran."""
        own = [_like_element(x) if isinstance(x, Tensor) else x for x in leaves]
        args, kwargs = tree_unflatten(own, structure)
        found = self.step.replay_for(*args, **kwargs)
        if found is None:
            return 0
        replay, elements = found
        repeated = self._repeated(replay)
        if repeated is None:
            return 0
        whole = {id(element): x for element, x in zip(own, leaves)}
        drawn = [repeated.draw()]
        while len(drawn) < count and repeated.may_go_on(elements):
            drawn.append(repeated.draw())
        collected.add_all(repeated.run([whole[id(x)] for x in elements], drawn))
        return len(drawn)

    def _repeated(self, replay: Replay) -> Repeated | None:
        """The loop over the steps of a replay, or None if there is none."""
        if self._last is None or self._last[0] is not replay:
            try:
                if current_budget():
                    raise NotRepeatableError("a memory budget applies to single steps")
                self._last = replay, Repeated(replay)
            except NotRepeatableError as reason:
                name = getattr(self, "__name__", "the function")
                warnings.warn(f"metaop.iterate runs {name} step by step: {reason}", stacklevel=4)
                self._last = replay, str(reason)
        found = self._last[1]
        return found if isinstance(found, Repeated) else None


class _Collected:
    """The results of steps: those of single steps, and stacks of those of many."""

    def __init__(self) -> None:
        self._structure: TreeSpec | None = None
        self._rows: list[list[Tensor | None]] = []
        self._stacks: list[list[Tensor | None]] = []

    def add(self, result: Any) -> None:
        """Adds the result of one step."""
        leaves = self._leaves(result)
        self._rows.append([None if x is None else x.detach().clone() for x in leaves])

    def add_all(self, result: Any) -> None:
        """Adds the stacked results of the first steps."""
        self._stacks.append(self._leaves(result))

    def stacked(self) -> Any:
        """The results of all steps, stacked."""
        if self._rows:
            self._stacks.append([None if x[0] is None else stack(x) for x in zip(*self._rows)])
        assert self._structure is not None
        whole = [
            None if parts[0] is None else parts[0] if len(parts) == 1 else cat(parts)
            for parts in zip(*self._stacks)
        ]
        return tree_unflatten(whole, self._structure)

    def _leaves(self, result: Any) -> list[Tensor | None]:
        leaves, structure = tree_flatten(result)
        for leaf_ in leaves:
            if leaf_ is not None and not isinstance(leaf_, Tensor):
                raise ArgumentTypeError(
                    f"a step of metaop.iterate returns a {type(leaf_).__name__}",
                    fix="return tensors, in nested tuples, lists and dicts, or None",
                )
        if self._structure not in (None, structure):
            raise CaptureError(
                "the steps of metaop.iterate return different structures",
                fix="return the same structure of tensors from every step",
            )
        self._structure = structure
        return leaves


def iterate(
    function: Callable[..., Any] | None = None,
    iterations: int | None = None,
    *,
    fallback: bool = False,
) -> Any:
    """Compiles many steps into one program: `function` is one step, usually a training step.

    Tensor arguments are stacked along a new dimension 0, one element for each step; all other
    arguments are the same for all steps. The results of all steps are returned stacked, without a
    gradient. Afterwards, parameters, states and host numbers are what the same number of calls of
    `function` would have left. `iterations` is the number of steps if no argument is a tensor;
    otherwise it is checked.

    The function is captured as by `metaop.jit`, with its conditions and `fallback`. The first call
    runs step by step. Later calls run one loop, whose compilation does not grow with the number of
    steps. A function that cannot be repeated in a loop runs step by step, and a warning says why.

    Raises ShapeError if the arguments disagree about the number of steps, and CaptureError if the
    function reads a value or writes an argument.

    >>> layer = nn.Linear(2, 1)
    >>> optimizer = metaop.optim.SGD(layer.parameters(), lr=0.1)
    >>> @metaop.iterate
    ... def step(x):
    ...     optimizer.zero_grad()
    ...     loss = layer(x).square().mean()
    ...     loss.backward()
    ...     optimizer.step()
    ...     return loss
    >>> losses = step(metaop.ones(5, 4, 2))  # five steps
    >>> losses.shape, bool(losses[-1] < losses[0])
    (metaop.Size([5]), True)
    """
    if iterations is not None and (not isinstance(iterations, int) or iterations < 1):
        raise ArgumentError(f"metaop.iterate: iterations = {iterations!r}", fix="use 1 or more")
    if function is None:
        return functools.partial(iterate, iterations=iterations, fallback=fallback)
    return Iterated(function, iterations, fallback)


def _element(x: Tensor, index: Tensor) -> Tensor:
    """One element of a stack as a separate tensor."""
    return index_select(x, 0, index.to(x.device)).squeeze(0)  # type: ignore[attr-defined, no-any-return]


def _like_element(x: Tensor) -> Tensor:
    """A tensor with the type of an element, but without a value."""
    kind = x.call.type
    call = leaf(TensorType(kind.shape[1:], kind.dtype, kind.device), None)
    call.requires_grad = x.requires_grad
    return wrap(call)
