"""Refused values: the error for users, with the operator and the line that recorded it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from metaop.errors import MetaopError, describe_location
from metaop.fusion.two_stages import with_short_scans
from metaop.unified_graph.cut import Subgraph
from metaop.unified_graph.evaluation import evaluate
from metaop.unified_graph.faults import INDEX_OUT_OF_RANGE, Fault
from metaop.unified_graph.recording import Call


def located(fault: Fault, subgraph: Subgraph) -> MetaopError:
    """The error for a rejected value, with the operator and the line that recorded it."""
    if all(leaf.type.device.placement is None for leaf in subgraph.leaves):
        return _repeated(fault, subgraph)
    # The other ranks may not have failed, so they would not take part in a second run.
    return explainer(subgraph)(fault)


def explainer(subgraph: Subgraph) -> Callable[[Fault], MetaopError]:
    """Makes errors that name the operators that may have refused a value, and their lines.

    It does not hold the subgraph.
    """
    refusing = [
        (call.signature.composite.name, call.location)
        for call in subgraph.order
        if call.signature and call.signature.can_fail
    ]

    def explain(fault: Fault) -> MetaopError:
        message = f"{' or '.join(dict.fromkeys(name for name, _ in refusing))}: {fault}"
        lines = dict.fromkeys(describe_location(location) for _, location in refusing)
        if len(lines) > 1:
            message += f" (called at {' or '.join(lines)})"
        location = refusing[0][1] if len(lines) == 1 else None
        return fault.kind.error(message, fix=fault.kind.fix, location=location)

    return explain


def _repeated(fault: Fault, subgraph: Subgraph) -> MetaopError:
    """The same, located by the reference interpreter, which repeats the calls one by one."""
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
            inputs = [values[source][0] for source in subgraph.inputs_of(call)]
            values[call] = evaluate(with_short_scans(signature.outputs), inputs)
        except (Fault, IndexError) as error:
            kind = error.kind if isinstance(error, Fault) else INDEX_OUT_OF_RANGE
            shapes = " and ".join(str(list(source.type.shape)) for source in call.inputs)
            return kind.error(
                f"{signature.composite.name}: {error} (operands of shapes {shapes})",
                fix=kind.fix,
                location=call.location,
            )
    return fault.kind.error(str(fault), fix=fault.kind.fix)
