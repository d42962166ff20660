"""Embedding lookups, and recurrent layers."""

from __future__ import annotations

from typing import Any

from metaop.onnx.exporting.rows.base import Operands, row
from metaop.operators import (
    embedding,
    indexing,
    recurrent,
)
from metaop.unified_graph import dtype as dtypes


@row(embedding.embedding)
def _embedding(o: Operands) -> str:
    return o.w.node("Gather", o.name(1), o.name(0), axis=0)


@row(indexing.index_tensors)
def _index_tensors(o: Operands) -> str | None:
    dims = o.attributes[0]
    if len(dims) != 1:
        return None
    return o.w.node("Gather", o.name(0), o.name(1), axis=dims[0])


@row(indexing.take)
def _take(o: Operands) -> str:
    return o.w.node("Gather", o.name(0), o.name(1), axis=o.attributes[0])


@row(indexing.gather)
def _gather(o: Operands) -> str | None:
    if not o.ndim:
        return None
    return o.w.node("GatherElements", o.name(0), o.name(1), axis=o.attributes[0])


_RECURRENT = {"lstm": ("LSTM", (0, 3, 1, 2)), "gru": ("GRU", (1, 0, 2))}


@row(recurrent.recurrent_layer)
def _recurrent_layer(o: Operands) -> list[str] | None:
    kind, reverse, _ = o.attributes
    w, weights = o.w, o.names[4:8]
    if o.names[8] is not None or (weights[2] is None) != (weights[3] is None):
        return None
    operator, order = _RECURRENT.get(kind, ("RNN", (0,)))
    hidden = o.type(2).shape[-1]

    def sorted_rows(name: str) -> str:
        parts = w.several("Split", len(order), name, w.integers([hidden] * len(order)), axis=0)
        found = w.node("Concat", *(parts[k] for k in order), axis=0) if len(order) > 1 else parts[0]
        return found

    of_input, of_hidden = (w.unsqueeze(sorted_rows(one), [0]) for one in weights[:2] if one)
    bias = None
    if weights[2] is not None and weights[3] is not None:
        both = [sorted_rows(weights[2]), sorted_rows(weights[3])]
        bias = w.unsqueeze(w.node("Concat", *both, axis=0), [0])
    lengths = None
    if o.names[1] is not None:
        lengths = w.cast(o.names[1], o.type(1).dtype, dtypes.int32)
    starts = [w.unsqueeze(one, [0]) for one in o.names[2:4] if one is not None]
    options: dict[str, Any] = {"hidden_size": hidden}
    options["direction"] = "reverse" if reverse else "forward"
    if operator == "GRU":
        options["linear_before_reset"] = 1
    if kind == "rnn_relu":
        options["activations"] = ["Relu"]
    found = w.several(
        operator, 1 + len(starts), o.name(0), of_input, of_hidden, bias, lengths, *starts,
        **options,
    )  # fmt: skip
    return [w.squeeze(found[0], [1]), *(w.squeeze(one, [0]) for one in found[1:])]
