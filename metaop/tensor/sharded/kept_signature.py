"""How a global tensor is sharded stays the same when it is written in place."""

from __future__ import annotations

from typing import Any

from metaop.operators.basic import alias, clone
from metaop.unified_graph.recording import Call, record
from metaop.unified_graph.reshard import reshard

# What is sharded as its operand is.
_SAME = (alias, clone)


def keep_signature(old: Call, new: Call) -> Call:
    """`new`, asked to be sharded as `old` is; parameters stay where they were put."""
    states = _signature(old)
    return new if states is None else record(reshard, (new,), (states,))


def _signature(call: Call) -> Any:
    states = None
    while call.buffer is None and call.signature is not None and call.signature.composite in _SAME:
        call = call.inputs[0]
    if call.buffer is not None:
        states = getattr(call.buffer, "states", None)
    elif call.signature is not None and call.signature.composite is reshard:
        states = call.signature.attributes[0]
    # A partial value lies so only until somebody needs it.
    partial = states is None or any(state.is_partial for state in states)
    return None if partial else states
