"""Recurrent cells, and layers that run them over a sequence."""

from __future__ import annotations

from metaop.nn.functional.arguments import is_loop, optional
from metaop.operators import recurrent as operators
from metaop.tensor.casting import casts_on_cpu
from metaop.tensor.core import Tensor, wrap
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.recording import record, results

Weights = tuple["Tensor | None", ...]


def _type_of_state(operands: list[Tensor], low: DType) -> DType | None:
    """The type of the hidden state, the second operand: its sum with the gates has that type."""
    return operands[1].dtype


def _cell(kind: str, input: Tensor, states: tuple[Tensor, ...], weights: Weights) -> list[Tensor]:
    hidden, *memory = states
    calls = (input.call, hidden.call, memory[0].call if memory else None, *map(optional, weights))
    return [wrap(call) for call in results(record(operators.recurrent_cell, calls, (kind,)))]


def rnn_tanh_cell(
    input: Tensor,
    hx: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor:
    """tanh(x W_ih^T + b_ih + h W_hh^T + b_hh): (N, I), (N, H) -> (N, H)."""
    return _cell("rnn_tanh", input, (hx,), (w_ih, w_hh, b_ih, b_hh))[0]


def rnn_relu_cell(
    input: Tensor,
    hx: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor:
    """relu(x W_ih^T + b_ih + h W_hh^T + b_hh): (N, I), (N, H) -> (N, H)."""
    return _cell("rnn_relu", input, (hx,), (w_ih, w_hh, b_ih, b_hh))[0]


@casts_on_cpu(_type_of_state)
def gru_cell(
    input: Tensor,
    hx: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor:
    """One GRU step: (N, I), (N, H) -> (N, H); gates reset, update, new."""
    return _cell("gru", input, (hx,), (w_ih, w_hh, b_ih, b_hh))[0]


@casts_on_cpu(_type_of_state)
def lstm_cell(
    input: Tensor,
    hx: tuple[Tensor, Tensor],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """One LSTM step: the new hidden state and cell state; gates i, f, g, o."""
    hidden, memory = _cell("lstm", input, tuple(hx), (w_ih, w_hh, b_ih, b_hh))
    return hidden, memory


def recurrent_layer(
    kind: str,
    input: Tensor,
    states: tuple[Tensor, ...],
    weights: Weights,
    *,
    projection: Tensor | None = None,
    lengths: Tensor | None = None,
    reverse: bool = False,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """A cell run over (T, N, I), forwards or in `reverse`: outputs (T, N, H) and the last states.

    `kind` is "rnn_tanh", "rnn_relu", "lstm" or "gru"; `states` has one (N, H), or two for LSTM;
    `weights` are w_ih, w_hh, b_ih, b_hh. Samples end at `lengths` (N).
    """
    run = _layer_in_type_of_state if kind == "gru" else _layer
    return run(kind, input, states, weights, projection, lengths, reverse)


def _layer(
    kind: str,
    input: Tensor,
    states: tuple[Tensor, ...],
    weights: Weights,
    projection: Tensor | None,
    lengths: Tensor | None,
    reverse: bool,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    hidden, *memory = states
    calls = (
        input.call,
        optional(lengths),
        hidden.call,
        memory[0].call if memory else None,
        *map(optional, weights),
        optional(projection),
    )
    call = record(operators.recurrent_layer, calls, (kind, reverse, is_loop(input)))
    outputs, *last = (wrap(one) for one in results(call))
    return outputs, tuple(last)


_layer_in_type_of_state = casts_on_cpu(_type_of_state)(_layer)
