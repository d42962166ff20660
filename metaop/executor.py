"""Running cuts: finds or compiles the program of a subgraph, binds its buffers and runs it."""

from __future__ import annotations

from collections.abc import Sequence

from metaop.codegen.backend import Program
from metaop.compiler import compile_graph
from metaop.differentiation.tape import live_residuals
from metaop.unified_graph.cut import Subgraph, cut_at, finish, recorder
from metaop.unified_graph.recording import Call

_programs: dict[tuple[int, ...], Program] = {}


def realize(*calls: Call) -> None:
    """Computes the values of `calls`, and with them everything pending that a handle can see."""
    with recorder.lock:
        roots = recorder.take_roots()
        known = set(roots)
        roots.extend(call for call in dict.fromkeys(calls) if call.is_pending and call not in known)
        if roots:
            run(cut_at(roots, live_residuals))


def run(subgraph: Subgraph) -> None:
    """Runs a subgraph and hands the values to its calls."""
    program = program_of(subgraph)
    arguments = [leaf.buffer if leaf.scalar is None else leaf.scalar for leaf in subgraph.leaves]
    for call, buffer in zip(subgraph.outputs, program.run(arguments)):
        call.buffer = buffer
    finish(subgraph)


def program_of(subgraph: Subgraph) -> Program:
    """The compiled program of a subgraph, from the cache when its structure was seen before."""
    program = _programs.get(subgraph.key)
    if program is None:
        inputs, outputs = subgraph.expand()
        device = subgraph.outputs[0].type.device
        program = compile_graph(inputs, outputs, device)
        _programs[subgraph.key] = program
    return program


def clear_programs() -> None:
    """Forgets all compiled programs, as a new process would."""
    _programs.clear()


def pending_subgraph(calls: Sequence[Call]) -> Subgraph:
    """The subgraph that `realize(*calls)` would run, for inspection."""
    return cut_at([call for call in calls if call.is_pending], live_residuals)
