"""The names of gradient functions, as `grad_fn` shows them."""

from __future__ import annotations

from metaop.differentiation.tape import pass_through
from metaop.unified_graph.recording import Call


def represented(call: Call) -> tuple[Call, int]:
    """The call whose gradient function a value shows, and which of its outputs the value is."""
    tape = call.tape
    if tape is not None and tape.function is pass_through:
        # A result of a user's function stands for the function, to which its tape passes on.
        source = tape.sources[0]
        assert source is not None
        return source, tape.index
    return call, call.index


def gradient_name(call: Call) -> str:
    """`MulBackward0`-like: the recorded operator, or `MyFunctionBackward`."""
    call = represented(call)[0].maker
    if call.tape is not None and call.tape.accumulate is not None:
        return "AccumulateGrad"
    if call.tape is not None and call.tape.function is not None and call.tape.name:
        return call.tape.name
    if call.signature is None:
        return "FunctionBackward0"
    words = call.signature.composite.name.replace(".", "_").split("_")
    return "".join(word[:1].upper() + word[1:] for word in words) + "Backward0"
