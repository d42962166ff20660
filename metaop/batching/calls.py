"""Recorded calls mapped over a batch: what was recorded for one element, recorded for all.

Calls stay calls: each becomes one call of a composite whose expansion has one more axis. So the
result is recorded, fused and differentiated like everything else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from metaop.batching.rules import batched
from metaop.unified_graph.composite import Composite, Derivation, Signature
from metaop.unified_graph.node import Node
from metaop.unified_graph.recording import Call, modes, part, record


def depending(results: Sequence[Call], elements: Mapping[Call, Call]) -> list[Call]:
    """The calls between `elements` and `results`, which vary in the batch, inputs first."""
    seen = set(results)
    stack = list(results)
    while stack:
        call = stack.pop()
        if call in elements or call.buffer is not None:
            continue
        for source in call.inputs:
            if source not in seen:
                seen.add(source)
                stack.append(source)
    varying = set(elements)
    order = []
    for call in sorted(seen, key=lambda call: call.sequence):
        if call not in elements and any(source in varying for source in call.inputs):
            varying.add(call)
            order.append(call)
    return order


def record_batched(order: Sequence[Call], elements: Mapping[Call, Call]) -> dict[Call, Call]:
    """Records the calls of `order` for all elements; `elements` gives the batches they start from.

    A call that is not tracked is not tracked for the batch, and an inner leaf is where the history
    of a value begins.
    """
    indices = _results_read(order)
    done: dict[Call, Call] = dict(elements)
    previous, casts = modes.gradients, modes.casts
    modes.casts = None
    try:
        for call in order:
            if call.signature is None:
                (source,) = call.inputs
                done[call] = part(done[source], indices[source].index(call.index))
                continue
            leaf = call.tape is not None and call.tape.accumulate is not None
            modes.gradients = call.requires_grad and not leaf
            flags = tuple([source in done for source in call.inputs])
            step = _batched_composite(call.signature, flags, tuple(indices[call]))
            done[call] = record(step, [done.get(source, source) for source in call.inputs])
    finally:
        modes.gradients, modes.casts = previous, casts
    return done


def _results_read(order: Sequence[Call]) -> dict[Call, list[int]]:
    """For each call which of its results others read: its own value is the first."""
    found: dict[Call, list[int]] = {}
    for call in order:
        read = found.setdefault(call.maker, [])
        if call.index not in read:
            read.append(call.index)
    return found


def _batched_composite(
    signature: Signature, flags: tuple[bool, ...], indices: tuple[int, ...]
) -> Composite:
    """The composite of chosen results of a signature for a batch of the inputs with a flag."""
    key = (flags, indices)
    found = signature.batched.get(key)
    if found is None:
        first = flags.index(True)

        def expansion(*nodes: Node) -> tuple[Node, ...]:
            inputs = signature.inputs
            outputs = [signature.outputs[index] for index in indices]
            varies = frozenset(node for node, flag in zip(inputs, flags) if flag)
            size = nodes[first].shape[0]
            return tuple(batched(outputs, dict(zip(inputs, nodes)), varies, size))

        composite = signature.composite
        name = (
            composite.name if composite.name.endswith(".batched") else f"{composite.name}.batched"
        )
        derivation = Derivation(
            signature, ("batched", key), lambda other: _batched_composite(other, flags, indices)
        )
        found = Composite(
            name, expansion, differentiable=composite.differentiable, derivation=derivation
        )
        signature.batched[key] = found
    return found
