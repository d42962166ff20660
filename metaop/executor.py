"""Running cuts: finds or compiles the program of a subgraph, binds its buffers and runs it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from metaop.codegen.backend import IndexFault, Program
from metaop.codegen.memory import Buffer
from metaop.codegen.reference import evaluate
from metaop.compiler import compile_graph
from metaop.differentiation.tape import live_residuals
from metaop.errors import DimensionError
from metaop.operators.basic import alias, clone
from metaop.unified_graph.cut import Subgraph, cut_at, finish, recorder
from metaop.unified_graph.recording import Call

_programs: dict[tuple[int, ...], Program] = {}
_running: list[Subgraph] = []


def realize(*calls: Call) -> None:
    """Computes the values of `calls`, and with them everything pending that a handle can see."""
    with recorder.lock:
        roots = recorder.take_roots()
        known = set(roots)
        roots.extend(call for call in dict.fromkeys(calls) if call.is_pending and call not in known)
        for group in _by_device(roots):
            run(cut_at(group, live_residuals))


def _by_device(roots: list[Call]) -> list[list[Call]]:
    """The roots apart by device: a program runs on one."""
    groups = []
    while roots:
        device = roots[0].type.device
        groups.append([call for call in roots if call.type.device is device])
        roots = [call for call in roots if call.type.device is not device]
    return groups


def run(subgraph: Subgraph) -> None:
    """Runs a subgraph and hands the values to its calls."""
    program = program_of(subgraph)
    arguments = [leaf.buffer if leaf.scalar is None else leaf.scalar for leaf in subgraph.leaves]
    _running.append(subgraph)
    try:
        buffers = program.run(arguments)
    except IndexFault as fault:
        raise _located(fault, subgraph) from None
    finally:
        _running.pop()
    held = {id(argument) for argument in arguments}
    for call, buffer in zip(subgraph.outputs, buffers):
        if id(buffer) in held and isinstance(buffer, Buffer) and _owns_memory(call):
            buffer = buffer.copy()
        held.add(id(buffer))
        call.buffer = buffer
    finish(subgraph)


def _owns_memory(call: Call) -> bool:
    """Whether users may write the memory of this value without changing another tensor.

    They can through NumPy, for memory of the host. Views and detached values share memory with what they show.
    """
    if call.signature is None:
        return True
    composite = call.signature.composite
    return composite is clone or (call.epoch is None and composite is not alias)


def running() -> Subgraph | None:
    """The subgraph whose program runs now: what an observer of programs may look at."""
    return _running[-1] if _running else None


def _located(fault: IndexFault, subgraph: Subgraph) -> DimensionError:
    """The error for an index out of range, with the operator and the line that recorded it.

    Finding them costs nothing until it happens: the oracle repeats the subgraph call by call.
    """
    values: dict[Call, list[np.ndarray]] = {}
    for call in subgraph.leaves:
        shape, dtype = call.type.shape, call.type.dtype.numpy
        if call.buffer is not None:
            values[call] = [call.buffer.view(shape, dtype)]
        else:
            values[call] = [np.asarray(call.scalar).astype(dtype)]
    for call in subgraph.order:
        signature = call.signature
        if signature is None:
            values[call] = values[call.inputs[0]][call.index :]
            continue
        try:
            inputs = [values[source][0] for source in call.inputs]
            values[call] = evaluate(signature.outputs, inputs)
        except IndexError as error:
            shapes = " and ".join(str(list(source.type.shape)) for source in call.inputs)
            return DimensionError(
                f"{signature.composite.name}: {error} (operands of shapes {shapes})",
                fix="check the indices: they count from 0 and must be below the dimension's size",
                location=call.location,
            )
    return DimensionError(str(fault), fix="check the indices passed to gather-like operators")


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
