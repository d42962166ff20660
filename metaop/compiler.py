"""The compiler on one page: PASSES rewrite a subgraph, and a backend turns it into a program.

Each pass hands the next a `Schedule` (metaop/codegen/schedule.py): first the expanded
meta-operators, then kernels, then launches of loop nests, and finally their memory as well.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from metaop.batching.lifting import lift
from metaop.codegen.backend import Backend, GeneralProgram, LocalProgram, Program
from metaop.codegen.budget import current_budget, within_budget
from metaop.codegen.dump import dumped
from metaop.codegen.lowering import Machine
from metaop.codegen.lowering.choice import show_choices
from metaop.codegen.lowering.repetition import graph_of
from metaop.codegen.schedule import PLAIN_MACHINE, Schedule, Stage
from metaop.codegen.stages import (
    delay_updates,
    group,
    hoist_invariants,
    keep_all,
    lower,
    on_nodes,
    plan_memory,
    recompute,
    split_reductions,
    stream_results,
    tile_and_fuse,
)
from metaop.codegen.verify import Checked, verify_launches, verify_memory
from metaop.errors import UnsupportedError
from metaop.fusion.explain import show_decisions
from metaop.fusion.joining import join_reductions
from metaop.fusion.simplify import simplify
from metaop.fusion.slices import read_slices
from metaop.fusion.split_complex import split_complex
from metaop.fusion.sums import distribute_reduction, sum_to_select
from metaop.fusion.unroll import unroll
from metaop.fusion.unshifted import sum_before_shift
from metaop.settings import get
from metaop.unified_graph.cut import Subgraph
from metaop.unified_graph.loop import Loop
from metaop.unified_graph.node import Node, topological
from metaop.unified_graph.shape_env import ShapeEnv
from metaop.unified_graph.symbolic_cut import SymbolicCut
from metaop.unified_graph.tensor_type import Device


class Pass(NamedTuple):
    """A pure function of a schedule, and why it is there; METAOP_VERIFY=1 runs `check` after it."""

    name: str
    function: Callable[[Schedule], Schedule]
    why: str
    check: Callable[[Schedule, Checked], None] | None = None


def write_out(schedule: Schedule) -> Schedule:
    """Unrolls loops for backends that cannot repeat launches."""
    return schedule if schedule.machine.backend == "llvm" else on_nodes(unroll)(schedule)


def without_complex(schedule: Schedule) -> Schedule:
    """Replaces every complex value by its real and imaginary part."""
    inputs, outputs = split_complex(schedule.inputs, schedule.outputs)
    return schedule._replace(inputs=tuple(inputs), outputs=tuple(outputs))


def before_shifts(schedule: Schedule) -> Schedule:
    """Sums channels before shifts on processors, where multiplying costs as much as storing."""
    machine = schedule.machine
    if machine.backend != "llvm":
        return schedule
    outputs = sum_before_shift(schedule.outputs, "winograd" not in machine.without)
    return schedule._replace(outputs=tuple(outputs))


def schedule_steps(schedule: Schedule) -> Schedule:
    """Runs all passes on one step of every loop."""
    steps = {}
    for kernel in schedule.kernels:
        if isinstance(kernel.roots[0].op, Loop):
            step = graph_of(kernel)
            first = Schedule(step.inputs, step.outputs, schedule.machine, env=schedule.env)
            stages = _passed(first._replace(invariants=step.invariants))
            steps[kernel.roots[0]] = deque(stages, maxlen=1).pop().schedule
    return schedule._replace(steps=steps)


def keep_budget(schedule: Schedule) -> Schedule:
    """Keeps the memory between launches within the budget by running some launches again.

    Where that is cheaper, it replaces what the graph would recompute.
    """

    def kept() -> Schedule:
        found, names = keep_all(schedule), [one.name for one in PASSES]
        for one in PASSES[names.index("group") : names.index("keep_budget")]:
            found = one.function(found)
        return found

    return within_budget(schedule, kept)


def verify_reruns(schedule: Schedule, checked: Checked) -> None:
    """Checks the launches again if a budget may have changed them."""
    if schedule.budget:
        verify_launches(schedule, checked)


PASSES = (
    Pass("split_complex", without_complex, "complex values become pairs of real ones"),
    Pass("write_out", write_out, "where no launch can be repeated, loops are unrolled"),
    Pass("lift", on_nodes(lift), "of a loop, compute for all steps at once what waits for none"),
    Pass("simplify", on_nodes(simplify), "fold constants, join reindexes, invert affine scatters"),
    Pass("sum_to_select", on_nodes(sum_to_select), "sums of disjoint terms become selects"),
    Pass(
        "distribute_reduction",
        on_nodes(distribute_reduction),
        "sums over sums of products become contractions",
    ),
    Pass("sum_before_shift", before_shifts, "where shifts leave an image, sum channels first"),
    Pass("join_reductions", on_nodes(join_reductions), "sums of like reductions become one"),
    Pass("split_reductions", split_reductions, "parts of few or long rows feed all processors"),
    Pass("read_slices", on_nodes(read_slices), "loops read rows of stacks where they are"),
    Pass("recompute", recompute, "after the peak of memory, compute cheap values again"),
    Pass("group", group, "choose buffers and kernels: what shares a kernel skips memory"),
    Pass("schedule_steps", schedule_steps, "the step of a loop becomes a schedule of its own"),
    Pass("lower", lower, "kernels become loop nests", verify_launches),
    Pass("hoist_invariants", hoist_invariants, "of a step, what is the same in all runs once"),
    Pass("delay_updates", delay_updates, "all readers of a parameter run before its update"),
    Pass("tile_and_fuse", tile_and_fuse, "exchange large values slice by slice", verify_launches),
    Pass("keep_budget", keep_budget, "under a budget of memory, launches run again", verify_reruns),
    Pass("plan_memory", plan_memory, "temporaries that live apart share one arena"),
    Pass("stream_results", stream_results, "write around caches what leaves them", verify_memory),
)

# Where the backends are defined; a module is loaded with the first program that needs it.
BACKENDS = {
    "llvm": "metaop.codegen.llvm.backend:LLVM",
    "cuda": "metaop.codegen.cuda.backend:CUDA",
    "reference": "metaop.codegen.reference:REFERENCE",
    "distributed": "metaop.compiler:DISTRIBUTED",
}


class Compilation(NamedTuple):
    """A graph after every pass that runs for a backend; the first stage is the graph itself."""

    backend: Backend
    stages: tuple[Stage, ...]

    @property
    def schedule(self) -> Schedule:
        """The schedule that the backend turns into a program."""
        return self.stages[-1].schedule


def compile_subgraph(subgraph: Subgraph) -> Program:
    """The program that computes the outputs of a subgraph from its leaves."""
    device = subgraph.outputs[0].type.device
    backend, index = backend_named(backend_of(device)), device.index or 0
    machine, budget = machine_of(backend, index), budget_of(device)
    return backend.program(subgraph, lambda: schedule(*subgraph.expand(), machine, None, budget))


def compile_graph(
    inputs: Sequence[Node],
    outputs: Sequence[Node],
    backend: Backend,
    index: int = 0,
    is_part: bool = False,
) -> Compilation:
    """All stages of what a backend runs on device number `index`, for inspection.

    With `is_part`, it is the part of a program that a rank runs between collectives.
    """
    machine = machine_of(backend, index, is_part)
    budget = current_budget() if machine and machine.backend == "llvm" and not is_part else 0
    return Compilation(backend, tuple(run_passes(inputs, outputs, machine, budget=budget)))


def compile_generally(subgraph: Subgraph, *others: Sequence[float]) -> GeneralProgram:
    """Compiles one program for all values of the numbers in which a subgraph and `others` differ.

    What relates the numbers in all of them is taken to hold always.

    Raises NotGeneralError if there is no such program.
    """
    device = subgraph.outputs[0].type.device
    backend, index = backend_named(backend_of(device)), device.index or 0
    cut = SymbolicCut(subgraph, *others)
    machine, general = machine_of(backend, index), backend.general
    assert general is not None
    return general(cut, lambda: schedule(cut.inputs, cut.outputs, machine, cut.env))


def schedule(
    inputs: Sequence[Node],
    outputs: Sequence[Node],
    machine: Machine | None = PLAIN_MACHINE,
    env: ShapeEnv | None = None,
    budget: int = 0,
) -> Schedule:
    """Runs all passes on a graph for a machine; earlier stages are dropped at once.

    With a `budget`, the program takes at most that many bytes besides its inputs.
    METAOP_DUMP names a folder to which the stages are written; METAOP_EXPLAIN=1 prints why the
    kernels are as they are, and the strategies by which they are lowered.
    """
    made = run_passes(inputs, outputs, machine, env, budget)
    if folder := get("METAOP_DUMP"):
        source = None if machine is None else backend_named(machine.backend).source
        made = dumped(made, Path(folder).expanduser(), source)
    found = deque(made, maxlen=1).pop().schedule
    if get("METAOP_EXPLAIN"):
        text = show_decisions(found.decisions) + show_choices(found.choices)
        print(text, end="", file=sys.stderr)
    return found


def run_passes(
    inputs: Sequence[Node],
    outputs: Sequence[Node],
    machine: Machine | None,
    env: ShapeEnv | None = None,
    budget: int = 0,
) -> Iterator[Stage]:
    """Yields a graph, then the result of each pass in turn; without a machine, no pass runs."""
    found = Schedule(
        tuple(inputs), tuple(outputs), machine or PLAIN_MACHINE, env=env, budget=budget
    )
    if env is not None:
        env.is_scheduled = True
    yield Stage("expand", "what was recorded, in meta-operators", found)
    if machine:
        yield from _passed(found)


def _passed(found: Schedule) -> Iterator[Stage]:
    # A program for any size is checked for each size to which it is bound.
    checked: Checked | None = {} if get("METAOP_VERIFY") and found.env is None else None
    for one in PASSES:
        found = one.function(found)
        if one.check is not None and checked is not None:
            one.check(found, checked)
        yield Stage(one.name, one.why, found)


def backend_of(device: Device) -> str:
    """The name of the backend that computes on a device."""
    if device.placement is not None:
        return "distributed"
    found: str = "cuda" if device.type == "cuda" else get("METAOP_BACKEND")
    return found


def budget_of(device: Device) -> int:
    """The number of bytes that a program on a device may take now; 0 means no limit.

    Raises UnsupportedError if a budget is set that the device cannot keep.
    """
    found = current_budget()
    if found and backend_of(device) != "llvm":
        raise UnsupportedError(
            f"a memory budget is set, but the {backend_of(device)} backend, which computes on "
            f"{device}, does not support one",
            fix="remove the budget (metaop.memory_budget(None), METAOP_MEMORY_BUDGET=0)",
        )
    return found


def backend_named(name: str) -> Backend:
    """Looks up a backend by name."""
    module, _, attribute = BACKENDS[name].partition(":")
    found: Backend = getattr(import_module(module), attribute)
    return found


def machine_of(backend: Backend, index: int, is_part: bool = False) -> Machine | None:
    """The machine description of a device for the passes; None if no pass runs."""
    machine = None if backend.machine is None else backend.machine(index)
    # All ranks must round alike, even if kernels were tuned on some of the hosts.
    return replace(machine, choose=None) if machine is not None and is_part else machine


def local_compiler(device: Device) -> Callable[[Sequence[Node], Sequence[Node]], LocalProgram]:
    """Returns a function that compiles what one rank runs between collectives on its own device."""
    backend, index = backend_named(backend_of(device)), device.index or 0
    machine, make = machine_of(backend, index, is_part=True), backend.local
    assert make is not None

    def compiled(inputs: Sequence[Node], outputs: Sequence[Node]) -> LocalProgram:
        return make(inputs, outputs, lambda: schedule(inputs, outputs, machine), index)

    return compiled


def _distributed_program(subgraph: Subgraph, scheduled: Callable[[], Schedule]) -> Program:
    from metaop.dist.program import DistributedProgram

    placement = subgraph.outputs[0].type.device.placement
    own = placement.memory.device
    graph = on_nodes(unroll)(scheduled())
    if own.type == "cuda" and any(
        node.dtype.is_complex for node in (*graph.inputs, *topological(graph.outputs))
    ):
        raise UnsupportedError(
            "NCCL sends no complex numbers",
            fix="keep view_as_real(tensor) in global tensors, and view_as_complex on each rank",
        )
    return DistributedProgram(graph.inputs, graph.outputs, placement.world, local_compiler(own))


# The passes run on each rank's part, once the layout of the arguments is known.
DISTRIBUTED = Backend(_distributed_program)


def disable(
    fn: Callable[..., Any] | None = None, recursive: bool = True, *, reason: str | None = None
) -> Any:
    """Returns the function unchanged: nothing has to be hidden from this compiler."""
    return (lambda function: function) if fn is None else fn


def is_compiling() -> bool:
    """Whether PyTorch's tracer is running: never."""
    return False


def is_dynamo_compiling() -> bool:
    """Whether PyTorch's tracer is running: never."""
    return False


def is_exporting() -> bool:
    """Whether PyTorch's exporter is running: never."""
    return False


def allow_in_graph(fn: Any) -> Any:
    """Returns its argument: captured code may call any function."""
    return fn


def assume_constant_result(fn: Any) -> Any:
    """Returns its argument: the function is called whenever the program calls it."""
    return fn


def reset() -> None:
    """Does nothing: a program is found by what it computes, so none is ever out of date."""


@contextmanager
def set_stance(
    stance: str = "default",
    *,
    skip_guard_eval_unsafe: bool = False,
    force_backend: Any = None,
) -> Iterator[None]:
    """Accepted, as a function, a decorator or for a `with` block; everything stays compiled."""
    yield


def cudagraph_mark_step_begin() -> None:
    """Does nothing: the memory of a result is never reused while the result exists."""
