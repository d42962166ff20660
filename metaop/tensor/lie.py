"""How a global tensor lies stays the same when it is written in place."""

from __future__ import annotations

from typing import Any

from metaop.unified_graph.recording import Call, record
from metaop.unified_graph.reshard import reshard


def keep_lie(old: Call, new: Call) -> Call:
    """`new`, asked to lie as `old` does; parameters stay where they were put."""
    state = _lie(old)
    return new if state is None else record(reshard, (new,), (state,))


def _lie(call: Call) -> Any:
    state = None
    if call.buffer is not None:
        state = getattr(call.buffer, "sbp", None)
    elif call.signature is not None and call.signature.composite is reshard:
        state = call.signature.attributes[0]
    # A partial value lies so only until somebody needs it.
    return None if state is None or state.is_partial else state
