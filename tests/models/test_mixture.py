"""Experts: what each token goes through, room, evenness, PyTorch's values, writing, learning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import metaop
from metaop.errors import ArgumentError
from models import mixture
from tests.models.comparison import compare
from tests.models.test_gpt import sharpen


def build(module: Any, context: int = 8) -> Any:
    return module.Mixture(13, context, 24, 2, 6, 2, 16, experts=4, capacity=1.0)


def plainly(layer: mixture.Experts, x: np.ndarray, room: int) -> tuple[np.ndarray, float]:
    """What the experts make of vectors (count, width), one token after the other."""
    gate, w1, w2, w3 = (
        value.detach().numpy() for value in (layer.gate.weight, layer.w1, layer.w2, layer.w3)
    )
    logits = x @ gate.T
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    order = np.argsort(-shares, 1)[:, : layer.chosen]
    found, guests = np.zeros_like(x), np.zeros(len(gate), int)
    for rank in range(layer.chosen):
        for row, vector in enumerate(x):
            expert = order[row, rank]
            guests[expert] += 1
            if guests[expert] <= room:
                bent = w1[expert] @ vector
                hidden = bent / (1 + np.exp(-bent)) * (w3[expert] @ vector)
                weight = shares[row, expert] / shares[row, order[row]].sum()
                found[row] += weight * (w2[expert] @ hidden)
    return found, len(gate) * float((guests / guests.sum() * shares.mean(0)).sum())


@pytest.mark.parametrize("chosen", [1, 2, 3])
@pytest.mark.parametrize("training", [True, False])
def test_each_token_goes_through_its_experts_while_there_is_room(
    chosen: int, training: bool
) -> None:
    metaop.manual_seed(chosen)
    layer = mixture.Experts(6, 5, 3, chosen, capacity=0.75).double().train(training)
    for parameter in layer.parameters():
        metaop.nn.init.normal_(parameter)
    x = np.random.default_rng(0).standard_normal((16, 6))
    room = int(np.ceil(0.75 * 16 * chosen / 3)) if training else 16
    expected, uneven = plainly(layer, x, room)
    found, value = layer(metaop.tensor(x.reshape(2, 8, 6)))
    np.testing.assert_allclose(found.detach().numpy().reshape(16, 6), expected, atol=1e-12)
    assert value.item() == pytest.approx(uneven)
    everything, _ = plainly(layer, x, 16)
    assert (np.abs(everything - expected).max() > 1e-3) == training


def test_an_even_choice_is_1_and_one_expert_for_all_is_as_many_as_there_are() -> None:
    layer = mixture.Experts(4, 3, 4, chosen=1).double().eval()
    with metaop.no_grad():
        layer.gate.weight.copy_(50 * metaop.eye(4))
    even, single = metaop.eye(4).double(), metaop.tensor([[1.0, 0, 0, 0]] * 4).double()
    assert layer(even)[1].item() == pytest.approx(1)
    assert layer(single)[1].item() == pytest.approx(4)


def test_an_impossible_choice_is_refused() -> None:
    with pytest.raises(ArgumentError, match="5 of 4"):
        mixture.Experts(4, 3, 4, chosen=5)


def test_values_and_gradients_are_those_of_torch() -> None:
    def loss(library: Any, model: Any, tokens: Any) -> tuple[Any, Any]:
        return model(tokens[:, :-1]), model.loss(tokens[:, :-1], tokens[:, 1:])

    compare("mixture", build, loss, np.random.default_rng(1).integers(0, 13, (2, 9)))


def test_letters_from_memory_have_the_logits_of_the_whole() -> None:
    metaop.manual_seed(1)
    model = build(mixture).eval()
    sharpen(model)
    cache, tokens = model.cache(2), metaop.randint(0, 13, (2, 8))
    with metaop.no_grad():
        expected = model(tokens).numpy()
        for start, end in ((0, 5), (5, 6), (6, 8)):
            logits = model(tokens[:, start:end], metaop.arange(start, end), cache).numpy()
            # Sharp attention rounds; see the test of GPT.
            bound = 1e-5 * np.abs(expected).max()
            np.testing.assert_allclose(logits, expected[:, start:end], atol=bound)


def test_training_lowers_the_loss() -> None:
    losses = mixture.main(["--steps", "12", "--batch-size", "4", "--width", "32", "--write", "3"])
    assert np.isfinite(losses).all() and np.mean(losses[-3:]) < losses[0]
