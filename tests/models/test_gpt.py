"""GPT: size and names of GPT-2, PyTorch's values, causality, and learning."""

from __future__ import annotations

from typing import Any

import numpy as np

import metaop
from models import gpt
from tests.models.comparison import compare, parameter_count


def build(module: Any) -> Any:
    return module.GPT(vocabulary=13, context=8, width=24, layers=2, heads=3)


def next_letters(library: Any, model: Any, tokens: Any) -> tuple[Any, Any]:
    logits = model(tokens[:, :-1])
    loss = library.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    return logits, loss


def test_size_and_names_are_those_of_gpt2() -> None:
    model = gpt.GPT(50257, 1024, 768, 12, 12)
    assert parameter_count(model) == 124_439_808
    names = list(model.state_dict())
    assert names[:4] == [
        *("transformer.wte.weight", "transformer.wpe.weight"),
        *("transformer.h.0.ln_1.weight", "transformer.h.0.ln_1.bias"),
    ]
    assert "transformer.h.11.attn.c_attn.weight" in names and names[-1] == "lm_head.weight"


def test_values_and_gradients_are_those_of_torch() -> None:
    compare("gpt", build, next_letters, np.random.default_rng(1).integers(0, 13, (2, 9)))


def test_later_letters_do_not_change_earlier_predictions() -> None:
    model = build(gpt).eval()
    tokens = metaop.randint(0, 13, (1, 8))
    changed = tokens.clone()
    changed[0, 5:] = (changed[0, 5:] + 1) % 13
    with metaop.no_grad():
        before, after = model(tokens).numpy(), model(changed).numpy()
    np.testing.assert_allclose(before[0, :5], after[0, :5], rtol=1e-5, atol=1e-6)
    assert (before[0, 5:] != after[0, 5:]).any()


def test_the_likeliest_continuation_repeats() -> None:
    model = build(gpt).eval()
    start = metaop.zeros(2, 3, dtype=metaop.int64)
    first, second = (model.generate(start, 8, temperature=0).numpy() for _ in range(2))
    assert first.shape == (2, 11)
    np.testing.assert_array_equal(first, second)


def test_training_lowers_the_loss() -> None:
    losses = gpt.main(["--steps", "12", "--batch-size", "4", "--width", "32", "--write", "3"])
    assert np.isfinite(losses).all() and np.mean(losses[-3:]) < losses[0]
