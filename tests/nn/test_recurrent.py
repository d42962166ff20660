"""Recurrent layers and cells against PyTorch's, with padded and packed sequences."""

from __future__ import annotations

import pytest

import metaop
from metaop.nn.functional import arguments
from metaop.nn.utils import rnn
from tests.nn.parity import close, draw, pair, same_behaviour, same_text, to_metaop

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True, params=["unrolled", "loop"])
def form(request, monkeypatch):
    """Layers run their steps in a loop, or each step by itself."""
    shortest = 1 if request.param == "loop" else 1 << 30
    monkeypatch.setattr(arguments, "_SHORTEST_LOOP", shortest)


OPTIONS = [
    {},
    {"num_layers": 2, "bias": False},
    {"bidirectional": True, "batch_first": True},
    {"num_layers": 2, "bidirectional": True},
]


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_layer(name, options):
    ours, theirs = pair(name, 3, 4, **options)
    same_text(ours, theirs)
    same_behaviour(ours, theirs, (draw(5, 2, 3),))


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_given_state_and_no_batch(name):
    ours, theirs = pair(name, 3, 4, num_layers=2)
    state = draw(2, 6, 4, seed=3)
    states = (state, draw(2, 6, 4, seed=4)) if name == "LSTM" else state
    same_behaviour(ours, theirs, (draw(5, 6, 3), states))
    ours.zero_grad()
    theirs.zero_grad()
    same_behaviour(ours, theirs, (draw(5, 3),))


@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_variants():
    for name, options in (("RNN", {"nonlinearity": "relu"}), ("LSTM", {"proj_size": 2})):
        ours, theirs = pair(name, 3, 4, num_layers=2, bidirectional=True, **options)
        same_text(ours, theirs)
        same_behaviour(ours, theirs, (draw(4, 2, 3),))


@pytest.mark.parametrize("name", ["RNNCell", "LSTMCell", "GRUCell"])
@pytest.mark.parametrize("bias", [True, False])
def test_cell(name, bias):
    ours, theirs = pair(name, 3, 4, bias=bias)
    same_text(ours, theirs)
    same_behaviour(ours, theirs, (draw(2, 3),))
    state = draw(2, 4, seed=5)
    states = (state, draw(2, 4, seed=6)) if name == "LSTMCell" else state
    ours.zero_grad()
    theirs.zero_grad()
    same_behaviour(ours, theirs, (draw(2, 3), states))


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("lengths", [[5, 3, 2], [2, 5, 3]])
def test_packed(name, lengths):
    ours, theirs = pair(name, 3, 4, bidirectional=True, num_layers=2)
    padded = draw(5, 3, 3)
    wanted_in = torch.nn.utils.rnn.pack_padded_sequence(padded, lengths, enforce_sorted=False)
    leaf = to_metaop(padded)
    packed = rnn.pack_padded_sequence(leaf, lengths, enforce_sorted=False)
    close(packed.data, wanted_in.data, 0)
    assert packed.batch_sizes.tolist() == wanted_in.batch_sizes.tolist()
    result, state = ours(packed)
    wanted, wanted_state = theirs(wanted_in)
    close(result.data, wanted.data, 1e-5)
    for got, expected in zip(
        state if name == "LSTM" else [state], wanted_state if name == "LSTM" else [wanted_state]
    ):
        close(got, expected, 1e-5)
    again, sizes = rnn.pad_packed_sequence(result, padding_value=-1.0, total_length=6)
    expected, wanted_sizes = torch.nn.utils.rnn.pad_packed_sequence(
        wanted, padding_value=-1.0, total_length=6
    )
    close(again, expected, 1e-5)
    assert sizes.tolist() == wanted_sizes.tolist()
    again.sum().backward()
    expected.sum().backward()
    close(leaf.grad, padded.grad, 1e-4)


def test_padding_of_sequences():
    theirs = [draw(n, 2, seed=n, grad=False) for n in (3, 5, 1)]
    ours = to_metaop(theirs)
    for options in ({}, {"batch_first": True, "padding_value": 2.0}, {"padding_side": "left"}):
        close(
            rnn.pad_sequence(ours, **options),
            torch.nn.utils.rnn.pad_sequence(theirs, **options),
            0,
        )
    packed = rnn.pack_sequence(ours, enforce_sorted=False)
    for got, wanted in zip(rnn.unpack_sequence(packed), theirs):
        close(got, wanted, 0)


def test_dropout_between_layers():
    metaop.manual_seed(0)
    from metaop import nn

    layer = nn.LSTM(3, 64, num_layers=2, dropout=0.5)
    x = metaop.ones(4, 2, 3)
    first, second = layer(x)[0].detach().numpy(), layer(x)[0].detach().numpy()
    assert abs(first - second).max() > 1e-4
    layer.eval()
    assert abs(layer(x)[0] - layer(x)[0]).max().item() == 0
    with pytest.warns(UserWarning, match="num_layers greater than 1"):
        nn.RNN(3, 4, dropout=0.5)


def test_wrong_shapes():
    from metaop import nn

    layer = nn.GRU(3, 4)
    with pytest.raises(RuntimeError, match="input_size"):
        layer(metaop.ones(5, 2, 7))
    with pytest.raises(RuntimeError, match="hidden size"):
        layer(metaop.ones(5, 2, 3), metaop.ones(1, 3, 4))
    with pytest.raises(RuntimeError, match="larger than 0"):
        layer(metaop.ones(0, 2, 3))
    with pytest.raises(ValueError, match="2D or 3D"):
        layer(metaop.ones(5))
    with pytest.raises(ValueError, match="decreasing"):
        rnn.pack_padded_sequence(metaop.ones(5, 2, 3), [2, 5])
