"""Refused values: the error for users, with the operator and the line that recorded it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from metaop.errors import MetaopError, describe_location
from metaop.fusion.two_stages import with_short_scans
from metaop.unified_graph.cut import Subgraph, walk
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
        (signature.composite.name, call.location)
        for call, signature in subgraph.operators
        if signature.can_fail
    ]

    def explain(fault: Fault) -> MetaopError:
        message = f"{' or '.join(dict.fromkeys(name for name, _ in refusing))}: {fault}"
        lines = dict.fromkeys(describe_location(location) for _, location in refusing)
        if len(lines) > 1:
            message += f" (called at {' or '.join(lines)})"
        location = refusing[0][1] if len(lines) == 1 else None
        return fault.kind.error(message, fix=fault.kind.fix, location=location)

    return explain


def value_of(leaf: Call) -> np.ndarray:
    """The value of a leaf: its memory, or its number as an array."""
    shape, dtype = leaf.type.shape, leaf.type.dtype.numpy
    if leaf.buffer is None:
        return np.asarray(leaf.scalar).astype(dtype)
    return leaf.buffer.view(shape, dtype)  # type: ignore[no-any-return]


def _repeated(fault: Fault, subgraph: Subgraph) -> MetaopError:
    """The same, located by the reference interpreter, which repeats the calls one by one."""
    values = {leaf: [value_of(leaf)] for leaf in subgraph.leaves}
    for call, signature, operands in walk(subgraph.order, values, subgraph.inputs_of):
        try:
            values[call] = evaluate(with_short_scans(signature.outputs), operands)
        except (Fault, IndexError) as error:
            kind = error.kind if isinstance(error, Fault) else INDEX_OUT_OF_RANGE
            shapes = " and ".join(str(list(source.type.shape)) for source in call.inputs)
            return kind.error(
                f"{signature.composite.name}: {error} (operands of shapes {shapes})",
                fix=kind.fix,
                location=call.location,
            )
    return fault.kind.error(str(fault), fix=fault.kind.fix)
