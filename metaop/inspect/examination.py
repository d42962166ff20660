"""The doctor: watches a program run and finds what is slow in it, and on this machine."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Any
from weakref import WeakKeyDictionary

from metaop import settings
from metaop.codegen.backend import Program
from metaop.codegen.estimate import KernelWork, program_work
from metaop.codegen.llvm.machine import host_machine
from metaop.codegen.memory.buffers import host
from metaop.compiler import backend_of, schedule
from metaop.data import loader
from metaop.errors import user_location
from metaop.execution import executor
from metaop.inspect import machine_checks, program_checks
from metaop.inspect.by_line import Place, place_of
from metaop.inspect.findings import Finding, as_text, findings_of
from metaop.inspect.profiler import Profile
from metaop.inspect.program_checks import Compilation, KernelTime, ProgramFacts
from metaop.optim.optimizer import Optimizer
from metaop.tensor.core import Tensor
from metaop.unified_graph.cut import Key, Subgraph
from metaop.unified_graph.recording import Call

# Searching for gradients is slow, so it happens only after this many programs computed some.
_LOOKS = (1, 10, 100)
_FEW_ELEMENTS = 16


class Examination(Profile):
    """A profile of a `with metaop.inspect.doctor():` block that also finds what is slow.

    `findings()` lists findings about the machine and the block, each with evidence and a fix;
    `report()` formats them as text. Without a block it covers only the machine. `lines()`,
    `flame(path)` and `table()` are those of any profile.

    >>> with metaop.inspect.doctor() as examination:
    ...     total = metaop.ones(3).sum().item()
    >>> type(examination).__name__, total
    ('Examination', 3.0)
    """

    def __init__(self) -> None:
        super().__init__()
        self._compilations: list[Compilation] = []
        self._cuts: Counter[Place] = Counter()
        self._early_reads: Counter[Place] = Counter()
        # Values that gradients may read, by the line that computed them.
        self._forward: WeakKeyDictionary[Call, Place] = WeakKeyDictionary()
        self._element_reads: Counter[Place] = Counter()
        self._unrolled: Counter[Place] = Counter()
        self._doubles: Counter[Place] = Counter()
        self._waits: dict[Place, float] = {}
        self._workers: set[int] = set()
        self._works: dict[Key, tuple[KernelWork, ...]] = {}
        self._times: dict[KernelWork, list[int]] = {}
        self._gradients = self._unused = self._with_gradients = 0
        # The gradients that existed before, by the identity of their tensors.
        self._old: dict[int, Call] = {}
        self._peak = 0

    def __enter__(self) -> Examination:
        executor.realize()  # work recorded earlier does not belong to the block
        super().__enter__()
        self._old = {id(one): one.grad._call for one in _with_gradient(gc.get_objects())}
        loader.watchers.append(self._waited)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, traceback)
        loader.watchers.remove(self._waited)

    # --- while watching ---------------------------------------------------------------------------

    def ran(self, program: Program, names: Sequence[str], times: Sequence[int]) -> None:
        super().ran(program, names, times)
        subgraph = executor.running()
        if subgraph is None:
            return
        if subgraph.key not in self._works:
            begin = time.monotonic_ns()
            self._works[subgraph.key] = _work_of(subgraph)
            self._pause(begin)
        works = self._works[subgraph.key]
        if len(works) == len(names) and all(w.name == name for w, name in zip(works, names)):
            for work, start, end in zip(works, times[:-1], times[1:]):
                self._times.setdefault(work, []).append(end - start)

    def compiled(self, subgraph: Subgraph, start: int, end: int) -> None:
        super().compiled(subgraph, start, end)
        names = [signature.composite.name for _, signature in subgraph.operators]
        self._compilations.append(
            Compilation(
                place_of(user_location()),
                (end - start) / 1e9,
                tuple(names),
                tuple(leaf.type.shape for leaf in subgraph.leaves),
            )
        )

    def computed(self, subgraph: Subgraph, start: int, end: int) -> None:
        super().computed(subgraph, start, end)
        begin = time.monotonic_ns()
        place = place_of(user_location())
        self._peak = max(self._peak, host.used)
        self._cuts[place] += 1
        self._note_early_reads(subgraph, place)
        calls = [call for call, _ in subgraph.operators]
        if len(calls) <= 2 and all(call.type.size == 1 for call in subgraph.outputs):
            self._element_reads[place] += 1
        few = Counter(place_of(c.location) for c in calls if c.type.size <= _FEW_ELEMENTS)
        for where, count in few.items():
            self._unrolled[where] = max(self._unrolled[where], count)
        for call in calls:
            sources = {source.type.dtype.name for source in subgraph.inputs_of(call)}
            if call.type.dtype.name == "float64" and "float32" in sources:
                self._doubles[place_of(call.location)] += 1
        if _has_gradients(subgraph):
            self._look_at_gradients()
        self._pause(begin)

    def _waited(self, workers: int, seconds: float) -> None:
        place = place_of(user_location())
        self._waits[place] = self._waits.get(place, 0.0) + seconds
        self._workers.add(workers)

    def _note_early_reads(self, subgraph: Subgraph, place: Place) -> None:
        """Counts the lines whose read separated a forward pass from the current backward pass."""
        if _has_gradients(subgraph):
            # Each value counts once; a weight that is never trained does not count.
            read = {self._forward.pop(leaf) for leaf in subgraph.leaves if leaf in self._forward}
            self._early_reads.update(read)
        elif subgraph.read_later or any(call.requires_grad for call in subgraph.outputs):
            self._forward.update(dict.fromkeys(subgraph.outputs, place))

    def _look_at_gradients(self) -> None:
        self._with_gradients += 1
        if self._with_gradients not in _LOOKS:
            return
        # Determine the type of an object without running its code.
        objects = gc.get_objects()
        optimizers = [one for one in objects if issubclass(type(one), Optimizer)]
        used = {
            id(parameter)
            for one in optimizers
            for group in one.param_groups
            for parameter in group["params"]
        }
        if used:
            new = [
                one for one in _with_gradient(objects)
                if one.grad._call is not self._old.get(id(one))
            ]  # fmt: skip
            self._gradients = sum(_nbytes(one) for one in new)
            self._unused = sum(_nbytes(one) for one in new if id(one) not in used)

    def _pause(self, begin: int) -> None:
        """Excludes the doctor's own work since `begin` from the profile."""
        passed = time.monotonic_ns() - begin
        self._inside.append((begin, passed))
        self._begin += passed

    # --- afterwards -------------------------------------------------------------------------------

    def facts(self) -> ProgramFacts:
        """The facts observed in the block."""
        kernels = [
            KernelTime(work, len(times), min(times) / 1e9, self._place_of_kernel(work.name))
            for work, times in self._times.items()
        ]
        return ProgramFacts(
            seconds=self.nanoseconds / 1e9,
            kernel_seconds=sum(k.end - k.start for run in self.runs for k in run.kernels) / 1e9,
            compilations=self._compilations,
            cuts=self._cuts,
            early_reads=self._early_reads,
            element_reads=self._element_reads,
            unrolled=self._unrolled,
            doubles=self._doubles,
            waits=self._waits,
            workers=max(self._workers, default=0),
            kernels=kernels,
            peak=self._peak,
            gradients=self._gradients,
            unused=self._unused,
        )

    def findings(self) -> list[Finding]:
        """The findings about this machine, and about the block if there was one."""
        found = findings_of(machine_checks.CHECKS, machine_checks.facts())
        return found + (self.program_findings() if self._begin else [])

    def program_findings(self) -> list[Finding]:
        """The findings about the block."""
        return findings_of(program_checks.CHECKS, self.facts())

    def report(self) -> str:
        """The findings as text, after the tools that metaop found."""
        rows = [f"  {name}: {version}" for name, version in machine_checks.tools()]
        machine = findings_of(machine_checks.CHECKS, machine_checks.facts())
        text = "\n".join(["tools", *rows]) + "\n" + as_text("this machine", machine)
        if not self._begin:
            return text
        own = self.program_findings()
        return text + as_text(f"the program ({self.nanoseconds / 1e9:.2f} s)", own)

    def _place_of_kernel(self, name: str) -> Place:
        """The line that is charged most of a kernel's time."""
        return max(self.by_line(), key=lambda line: line.kernels.get(name, 0.0)).place


def doctor() -> Examination:
    """Finds what is slow on this machine; as a context manager, also what is slow in its block.

    Print `report()` of the result.

    >>> with metaop.inspect.doctor() as examination:
    ...     total = metaop.ones(3).sum().item()
    >>> isinstance(examination.report(), str)
    True
    """
    return Examination()


def _work_of(subgraph: Subgraph) -> tuple[KernelWork, ...]:
    """The estimated work of a program's kernels on this processor; empty for other programs."""
    device = subgraph.outputs[0].type.device
    is_shown = settings.get("METAOP_DUMP") or settings.get("METAOP_EXPLAIN")
    if device.placement is not None or backend_of(device) != "llvm" or is_shown:
        return ()
    return program_work(schedule(*executor.with_loops(subgraph).expand(), host_machine())).kernels


def _has_gradients(subgraph: Subgraph) -> bool:
    names = (signature.composite.name for _, signature in subgraph.operators)
    return any(name.endswith(".gradient") for name in names)


def _with_gradient(objects: list[Any]) -> list[Any]:
    """The leaf tensors among objects that have a gradient."""
    tensors = [one for one in objects if issubclass(type(one), Tensor)]
    return [one for one in tensors if one.requires_grad and one.is_leaf and one.grad is not None]


def _nbytes(tensor: Any) -> int:
    return tensor.numel() * tensor.element_size()
