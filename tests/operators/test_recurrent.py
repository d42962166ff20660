"""Recurrent cells and layers against PyTorch's modules."""

from __future__ import annotations

import numpy as np
import pytest

import metaop
from metaop.errors import ShapeError
from metaop.nn.functional import recurrent as F
from tests.helpers import check, check_derivatives
from tests.operators.against_torch import draw

GATES = {"rnn_tanh": 1, "rnn_relu": 1, "gru": 3, "lstm": 4}
KINDS = list(GATES)


def weights(kind: str, inputs: int = 3, hidden: int = 2) -> list[np.ndarray]:
    rows = GATES[kind] * hidden
    return [draw(rows, inputs), draw(rows, hidden, seed=1), draw(rows), draw(rows, seed=1)]


def initial(kind: str, batch: int = 4, hidden: int = 2) -> list[np.ndarray]:
    return [draw(batch, hidden, seed=s) for s in range(2 if kind == "lstm" else 1)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", [True, False])
def test_cells(kind, bias):
    torch = pytest.importorskip("torch")
    states = initial(kind)
    count = len(states)

    def run(module):
        def cell(x, *rest):
            state = rest[:count] if kind == "lstm" else rest[0]
            return getattr(module, kind + "_cell")(x, state, *rest[count:])

        return cell

    parameters = weights(kind)[: 4 if bias else 2]
    check((run(F), run(torch)), draw(4, 3), *states, *parameters)


def torch_layer(kind, reverse, projection=0):
    """PyTorch's module as a function of input, states and weights; reversed by flipping time."""
    import torch

    name = {"gru": "GRU", "lstm": "LSTM"}.get(kind, "RNN")
    options = {"nonlinearity": kind[4:]} if name == "RNN" else {}
    if projection:
        options["proj_size"] = projection
    module = getattr(torch.nn, name)(3, 2 + (projection > 0), **options).double()
    names = [name for name, _ in module.named_parameters()]

    def run(x, states, parameters):
        x = x.flip(0) if reverse else x
        states = [state.unsqueeze(0) for state in states]
        arguments = (x, tuple(states) if len(states) > 1 else states[0])
        named = dict(zip(names, parameters))
        out, last = torch.func.functional_call(module, named, arguments)
        last = last if isinstance(last, tuple) else (last,)
        return out.flip(0) if reverse else out, *(state.squeeze(0) for state in last)

    return run


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reverse", [False, True])
def test_layers(kind, reverse):
    pytest.importorskip("torch")
    states = initial(kind)
    count = len(states)
    theirs = torch_layer(kind, reverse)

    def ours(x, *rest):
        out, last = F.recurrent_layer(kind, x, rest[:count], rest[count:], reverse=reverse)
        return out, *last

    check(
        (ours, lambda x, *rest: theirs(x, rest[:count], rest[count:])),
        draw(5, 4, 3),
        *states,
        *weights(kind),
    )


def test_projected_hidden_state():
    pytest.importorskip("torch")
    theirs = torch_layer("lstm", False, projection=2)

    def ours(x, hidden, memory, w_ih, w_hh, b_ih, b_hh, projection):
        out, last = F.recurrent_layer(
            "lstm", x, (hidden, memory), (w_ih, w_hh, b_ih, b_hh), projection=projection
        )
        return out, *last

    parameters = [draw(12, 3), draw(12, 2), draw(12), draw(12, seed=1), draw(2, 3)]
    check(
        (ours, lambda x, *rest: theirs(x, rest[:2], rest[2:])),
        draw(3, 4, 3),
        draw(4, 2),
        draw(4, 3),
        *parameters,
    )


@pytest.mark.parametrize("reverse", [False, True])
def test_lengths_are_like_shorter_sequences(reverse):
    x, states, parameters = draw(5, 4, 3), initial("gru"), weights("gru")
    tensors = [metaop.tensor(p) for p in parameters]
    lengths = np.array([5, 2, 1, 4])
    out, (last,) = F.recurrent_layer(
        "gru",
        metaop.tensor(x),
        (metaop.tensor(states[0]),),
        tuple(tensors),
        lengths=metaop.tensor(lengths),
        reverse=reverse,
    )
    for sample, length in enumerate(lengths):
        part = slice(sample, sample + 1)
        short, (end,) = F.recurrent_layer(
            "gru",
            metaop.tensor(x[:length, part]),
            (metaop.tensor(states[0][part]),),
            tuple(tensors),
            reverse=reverse,
        )
        np.testing.assert_allclose(out.numpy()[:length, part], short.numpy(), rtol=1e-12)
        np.testing.assert_allclose(last.numpy()[part], end.numpy(), rtol=1e-12)
        assert (out.numpy()[length:, sample] == 0).all()


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_second_derivatives(kind):
    states = initial(kind, 1)
    count = len(states)

    def layer(x, *rest):
        return F.recurrent_layer(kind, x, rest[:count], rest[count:])[0]

    check_derivatives(layer, draw(2, 1, 3), *states, *weights(kind))


def test_errors():
    x, h = metaop.tensor(draw(4, 3)), metaop.tensor(draw(4, 2))
    parameters = [metaop.tensor(w) for w in weights("gru")]
    with pytest.raises(ShapeError, match="states"):
        F.recurrent_layer("lstm", x, (h,), tuple(parameters))
    with pytest.raises(ShapeError, match=r"\[4, 3\]"):
        F.gru_cell(h, x, *parameters)
    with pytest.raises(ShapeError, match="rows"):
        F.lstm_cell(x, (h, h), *parameters)
