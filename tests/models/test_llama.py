"""Llama: names and sizes in the literature, PyTorch's values, turning, writing, and learning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.errors import CheckpointError
from models import llama
from tests.models import published
from tests.models.comparison import compare, parameter_count, torch_twin
from tests.models.test_gpt import check_cache, check_continuation, next_letters


def build(module: Any, context: int = 8) -> Any:
    return module.Llama(13, context, 24, layers=2, heads=6, kv_heads=2, hidden=40)


def test_sizes_and_names_are_those_of_the_published_networks() -> None:
    tiny = llama.Llama(32000, 2048, 2048, 22, 32, 4, 5632)
    assert parameter_count(tiny) == 1_100_048_384  # TinyLlama
    block = "model.layers.0"
    assert list(tiny.state_dict())[:10] == [
        "model.embed_tokens.weight",
        *(f"{block}.self_attn.{name}_proj.weight" for name in "qkvo"),
        *(f"{block}.mlp.{name}_proj.weight" for name in ("gate", "up", "down")),
        *(f"{block}.{name}layernorm.weight" for name in ("input_", "post_attention_")),
    ]
    assert list(tiny.state_dict())[-2:] == ["model.norm.weight", "lm_head.weight"]


def test_values_gradients_and_steps_are_those_of_torch() -> None:
    tokens = np.random.default_rng(1).integers(0, 13, (2, 9))
    compare("llama", build, next_letters, tokens, steps=3)


def test_values_are_those_of_transformers(tmp_path: Path) -> None:
    expected = published.write_folder("llama", tmp_path)
    model = llama.Llama.from_pretrained(tmp_path, context=9)
    with metaop.no_grad():
        found = model(metaop.tensor(published.tokens())).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)
    published.rewrite(tmp_path, rope_parameters={"rope_type": "llama3", "rope_theta": 5e5})
    with pytest.raises(CheckpointError, match="llama3"):
        llama.Llama.from_pretrained(tmp_path)


def test_positions_turn_points_of_the_plane() -> None:
    random = np.random.default_rng(2)
    x, positions = random.standard_normal((2, 3, 5, 8)), np.array([0, 1, 2, 7, 40])
    points = x[..., :4] + 1j * x[..., 4:]
    points = points * np.exp(1j * positions[:, None] * 100.0 ** (-np.arange(4) / 4))
    expected = np.concatenate((points.real, points.imag), -1)
    found = llama.apply_rotary(metaop.tensor(x), metaop.tensor(positions), 100.0)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)


def test_products_depend_on_how_far_positions_are_apart() -> None:
    query, key = metaop.randn(2, 1, 1, 1, 8, dtype=metaop.float64).unbind(0)

    def product(first: int, second: int) -> float:
        turned = llama.apply_rotary(query, metaop.tensor([first]), 1e4)
        return (turned * llama.apply_rotary(key, metaop.tensor([second]), 1e4)).sum().item()

    assert product(9, 4) == pytest.approx(product(105, 100), abs=1e-9)
    assert product(9, 4) != pytest.approx(product(9, 5), abs=1e-3)


@pytest.mark.parametrize("captured", [False, True])
def test_letters_from_memory_have_the_logits_of_the_whole(captured: bool) -> None:
    check_cache(build(llama, 24), captured)


def test_memory_holds_the_shared_heads_only() -> None:
    assert {tuple(part.shape) for pair in build(llama).cache(3) for part in pair} == {(3, 2, 8, 4)}


def test_the_likeliest_continuation_is_that_of_whole_contexts_and_of_torch() -> None:
    check_continuation(build(llama), build(torch_twin("llama")))


def test_training_lowers_the_loss() -> None:
    losses = llama.main(["--steps", "12", "--batch-size", "4", "--width", "32", "--write", "3"])
    assert np.isfinite(losses).all() and np.mean(losses[-3:]) < losses[0]
