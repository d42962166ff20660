"""GPT-2: transformers' values from the published layout, what is refused, and learning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.errors import CheckpointError
from models import gpt, gpt2
from tests.models import published
from tests.models.comparison import compare, torch_twin
from tests.models.test_gpt import check_continuation, next_letters


def build(module: Any) -> Any:
    return module.GPT2(vocabulary=13, context=8, width=24, layers=2, heads=3)


def logits(folder: Path) -> np.ndarray:
    model = gpt2.GPT2.from_pretrained(folder)
    with metaop.no_grad():
        return model(metaop.tensor(published.tokens())).numpy()


def test_values_are_those_of_transformers(tmp_path: Path) -> None:
    expected = published.write_folder("gpt2", tmp_path)
    np.testing.assert_allclose(logits(tmp_path), expected, atol=1e-5)


def test_files_in_parts_and_of_older_names_are_read(tmp_path: Path) -> None:
    expected = published.write_folder("gpt2", tmp_path)
    weights = metaop.load(tmp_path / "model.safetensors")
    older = {name.removeprefix("transformer."): value for name, value in weights.items()}
    older |= {f"h.{n}.attn.bias": metaop.ones(1, 1, 12, 12).tril() for n in (0, 1)}
    files = {name: f"part-{len(name) % 2}.safetensors" for name in older}
    for file in set(files.values()):
        metaop.save({name: older[name] for name in older if files[name] == file}, tmp_path / file)
    (tmp_path / "model.safetensors").unlink()
    index = json.dumps({"weight_map": files})
    (tmp_path / "model.safetensors.index.json").write_text(index)
    np.testing.assert_allclose(logits(tmp_path), expected, atol=1e-5)
    (tmp_path / "part-1.safetensors").unlink()
    with pytest.raises(CheckpointError, match="no part-1"):
        logits(tmp_path)


@pytest.mark.parametrize(
    "changed",
    [
        {"activation_function": "relu"},
        {"n_inner": 40},
        {"scale_attn_by_inverse_layer_idx": True},
        {"model_type": "gpt_neo"},
    ],
)
def test_other_settings_are_refused(changed: dict[str, Any], tmp_path: Path) -> None:
    published.write_folder("gpt2", tmp_path)
    published.rewrite(tmp_path, **changed)
    with pytest.raises(CheckpointError, match=next(iter(changed))):
        logits(tmp_path)


def test_weights_that_lie_the_other_way_round_are_refused(tmp_path: Path) -> None:
    published.write_folder("gpt2", tmp_path)
    linear = gpt.GPT(29, 12, 24, 2, 3)
    metaop.save(linear.state_dict(), tmp_path / "model.safetensors")
    with pytest.raises(RuntimeError, match="c_attn"):
        logits(tmp_path)


def test_a_head_that_is_not_the_embedding_is_refused(tmp_path: Path) -> None:
    published.write_folder("gpt2", tmp_path)
    weights = metaop.load(tmp_path / "model.safetensors")
    metaop.save({**weights, "lm_head.weight": metaop.zeros(29, 24)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="one parameter"):
        logits(tmp_path)


def test_values_and_gradients_are_those_of_torch() -> None:
    compare("gpt2", build, next_letters, np.random.default_rng(1).integers(0, 13, (2, 9)))


def test_the_likeliest_continuation_is_that_of_whole_contexts_and_of_torch() -> None:
    check_continuation(build(gpt2), build(torch_twin("gpt2")))


def test_a_sequence_that_has_ended_repeats_its_end() -> None:
    metaop.manual_seed(0)
    model = build(gpt2).eval()
    for parameter in model.parameters():
        metaop.nn.init.normal_(parameter, 0.0, 0.5)
    start = metaop.tensor([[1, 2], [3, 4], [5, 6]])
    plain = model.generate(start, 12, temperature=0)
    end = int(plain[0, 4].item())
    found = model.generate(start, 12, temperature=0, end=end).numpy()
    for row, free in zip(found, plain.numpy()):
        ends = np.flatnonzero(free[2:] == end)
        stop = 3 + ends[0] if len(ends) else len(row)
        np.testing.assert_array_equal(row[:stop], free[:stop])
        assert (row[stop:] == end).all()


def test_training_lowers_the_loss() -> None:
    losses = gpt2.main(["--steps", "12", "--batch-size", "4", "--width", "32", "--write", "3"])
    assert np.isfinite(losses).all() and np.mean(losses[-3:]) < losses[0]
