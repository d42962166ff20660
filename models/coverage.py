"""Which operators a training step of each network consists of, and which are none of the families.

python -m models coverage
python -m models coverage resnet ssd
"""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import metaop
from metaop.execution import executor
from metaop.tensor.core import Tensor
from metaop.unified_graph.code import Code
from metaop.unified_graph.composite import Signature
from metaop.unified_graph.cut import Subgraph
from metaop.unified_graph.node import topological

# Files whose functions only pass on what somebody else asks for.
_TENSOR = Path(metaop.__file__).parent / "tensor"
_PASSING_ON = str(_TENSOR / "reading.py"), str(_TENSOR / "operands.py"), __file__
_ROOT = Path(__file__).parents[1]


class Coverage(NamedTuple):
    """How often a step has each operator, by where it is computed.

    An operator is a call that is recorded: `pure` where it expands into Reindex, Reduce,
    Elementwise and Order alone, `code` where a kernel computes it. `host` counts reads of computed
    tensors with more than one element, by who reads them: what becomes of these the host computes.
    """

    pure: Counter[str]
    code: Counter[str]
    host: Counter[str]

    @property
    def total(self) -> int:
        """How many operators there are."""
        return self.pure.total() + self.code.total() + self.host.total()

    @property
    def share(self) -> float:
        """The part of all operators that is pure."""
        return self.pure.total() / max(self.total, 1)

    def row(self, name: str) -> str:
        """A line of the table."""
        named = [
            f"{kind} {one}" + (f" × {count}" if count > 1 else "")
            for kind, found in (("kernel", self.code), ("host", self.host))
            for one, count in sorted(found.items())
        ]
        return f"| {name} | {self.total} | {100 * self.share:.1f} % | {', '.join(named)} |"


class _Enough(Exception):
    """The step that was asked for is done."""


def _is_code(signature: Signature) -> bool:
    return any(isinstance(node.op, Code) for node in topological(signature.outputs))


def _reader() -> str:
    """The function that asks for values."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename in _PASSING_ON and frame.f_back is not None:
        frame = frame.f_back
    path = Path(frame.f_code.co_filename)
    shown = path.relative_to(_ROOT) if path.is_relative_to(_ROOT) else Path(path.name)
    return f"`{frame.f_code.co_name}` in {shown.as_posix()}"


class _Watch:
    """Counts from the end of the first step of the first optimizer to that of its second."""

    def __init__(self) -> None:
        self.found = Coverage(Counter(), Counter(), Counter())
        self.optimizer: Any = None
        self.is_reading = False

    def stepped(self, optimizer: Any, *_: Any) -> None:
        """Told after every step of every optimizer."""
        if self.optimizer is None:
            self.optimizer = optimizer
            executor.realize()
            self.found = Coverage(Counter(), Counter(), Counter())
        elif self.optimizer is optimizer:
            executor.realize()
            raise _Enough

    def running(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """`executor.run`, which notes the operators."""

        def watched(subgraph: Subgraph, *options: Any, **flags: Any) -> Any:
            for _, signature in subgraph.operators:
                kind = self.found.code if _is_code(signature) else self.found.pure
                kind[f"`{signature.composite.name}`"] += 1
            return run(subgraph, *options, **flags)

        return watched

    def reading(self, values: Callable[..., Any]) -> Callable[..., Any]:
        """A way to read values, which notes who reads."""

        def read(tensor: Tensor, **options: Any) -> Any:
            is_computed = tensor.call.signature is not None and tensor.numel() > 1
            if is_computed and not self.is_reading:
                self.found.host[_reader()] += 1
            outer, self.is_reading = self.is_reading, True
            try:
                return values(tensor, **options)
            finally:
                self.is_reading = outer

        return read


def coverage_of(program: Callable[[], Any]) -> Coverage:
    """The operators of the second training step of a program; the first one makes states."""
    watch = _Watch()
    handle = metaop.optim.optimizer.register_optimizer_step_post_hook(watch.stepped)
    with contextlib.ExitStack() as patches:
        patches.callback(handle.remove)
        patches.enter_context(mock.patch.object(executor, "run", watch.running(executor.run)))
        for way in ("numpy", "_array", "tolist"):
            read = watch.reading(getattr(Tensor, way))
            patches.enter_context(mock.patch.object(Tensor, way, read))
        patches.enter_context(contextlib.redirect_stderr(io.StringIO()))
        with contextlib.suppress(_Enough):
            program()
    return watch.found


def table(names: Sequence[str]) -> str:
    """The lines of the table of these networks, printed as they are found."""
    lines = ["| network | operators | of the families | others |", "|---|---|---|---|"]
    print("\n".join(lines))
    for name in names:
        main = importlib.import_module(f".{name}", __package__).main
        lines.append(coverage_of(partial(main, [])).row(name))
        print(lines[-1], flush=True)
    return "\n".join(lines)
