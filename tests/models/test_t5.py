"""T5: transformers' and PyTorch's values, distances, masks, writing from cache, and learning."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.errors import CheckpointError
from models import t5
from tests.models import published
from tests.models.comparison import compare, copy_state, parameter_count, torch_twin


def build(module: Any, **options: Any) -> Any:
    sizes = {"heads": 2, "head": 4, "hidden": 16, "dropout": 0.0, "buckets": 8, "furthest": 10}
    return module.T5(11, 12, 2, 1, **sizes, **options)


def sharpen(model: t5.T5) -> None:
    """Makes the written tokens differ from each other."""
    for name, parameter in model.named_parameters():
        if "norm" not in name:
            metaop.nn.init.normal_(parameter, 0.0, 0.3)


def test_size_and_names_are_those_of_the_published_network() -> None:
    model = t5.T5()
    assert parameter_count(model) == 60_506_624  # t5-small
    names = list(model.state_dict())
    assert {
        "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        "encoder.block.5.layer.1.DenseReluDense.wi.weight",
        "decoder.block.5.layer.1.EncDecAttention.q.weight",
        "decoder.block.5.layer.2.layer_norm.weight",
        "decoder.final_layer_norm.weight",
    } < set(names)
    assert names[0] == "shared.weight" and names[-1] == "lm_head.weight"


@pytest.mark.parametrize("name", ["t5", "t5_gated"])
def test_values_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    def call(**inputs: metaop.Tensor) -> Any:
        model = t5.T5.from_pretrained(tmp_path)
        values = (inputs[key] for key in ("input_ids", "decoder_input_ids", "attention_mask"))
        return type("Output", (), {"logits": model(*values)})

    expected = published.write_folder(name, tmp_path)
    found = published.written(call, metaop.tensor).detach().numpy()
    np.testing.assert_allclose(found, expected, atol=2e-5)
    if name == "t5_gated":
        # Published files of version 1.1 have a head of their own, and say so by other words.
        weights = metaop.load(tmp_path / "model.safetensors")
        weights["lm_head.weight"] = 2 * weights["shared.weight"]
        weights["decoder.embed_tokens.weight"] = weights["shared.weight"]
        metaop.save(weights, tmp_path / "model.safetensors")
        published.rewrite(tmp_path, tie_word_embeddings=False, scale_decoder_outputs=False)
        found = published.written(call, metaop.tensor).detach().numpy()
        np.testing.assert_allclose(found, 2 * expected, atol=4e-5)


def test_other_settings_are_refused(tmp_path: Path) -> None:
    published.write_folder("t5", tmp_path)
    published.rewrite(tmp_path, feed_forward_proj="gated-silu")
    with pytest.raises(CheckpointError, match="feed_forward_proj"):
        t5.T5.from_pretrained(tmp_path)


def test_values_and_gradients_are_those_of_torch() -> None:
    def loss(library: Any, model: Any, read: Any, written: Any, mask: Any) -> tuple[Any, Any]:
        logits = model(read, written, mask)
        value = library.nn.functional.cross_entropy(logits.flatten(0, 1), written.flatten())
        return logits, value

    random = np.random.default_rng(1)
    read, written = random.integers(2, 11, (2, 13)), random.integers(2, 11, (2, 5))
    mask = np.arange(13) < np.array([[13], [6]])
    compare("t5", lambda module: build(module, gated=True), loss, read, written, mask)


@pytest.mark.parametrize("both", [True, False])
def test_buckets_are_those_of_the_paper(both: bool) -> None:
    def expected(distance: int) -> int:
        count, first = (16, 16 * (distance > 0)) if both else (32, 0)
        distance = abs(distance) if both else max(-distance, 0)
        if distance < count // 2:
            return first + distance
        share = math.log(distance / (count // 2)) / math.log(128 / (count // 2))
        return first + min(count - 1, count // 2 + int(share * (count - count // 2)))

    # At these, the logarithms of float32 and of float64 may end on two sides of an integer.
    distances = [d for d in range(-200, 201) if abs(d) not in (16, 23, 32, 45, 64, 91)]
    found = t5.bucket(metaop.tensor(distances), both, 32, 128).tolist()
    assert found == [expected(distance) for distance in distances]
    assert t5.bucket(metaop.tensor([-16, -32, -64, 64]), True, 32, 128).tolist() == [10, 12, 14, 30]


def test_tokens_from_memory_are_those_of_the_whole_and_of_torch() -> None:
    import torch

    metaop.manual_seed(8)
    # A head of its own: the embedding would repeat the token before.
    model, theirs = (build(module, tied=False) for module in (t5, torch_twin("t5")))
    model, theirs = model.double().eval(), theirs.double().eval()
    sharpen(model)
    copy_state(model, theirs)
    read = np.random.default_rng(2).integers(2, 11, (3, 9))
    mask = np.arange(9) < np.array([[9], [4], [7]])
    inputs, shown = metaop.tensor(read), metaop.tensor(mask)
    written = np.zeros((3, 1), np.int64)
    with metaop.no_grad():
        for _ in range(8):
            logits = model(inputs, metaop.tensor(written), shown)[:, -1]
            written = np.concatenate((written, logits.argmax(-1, keepdim=True).numpy()), 1)
    found = model.generate(inputs, 8, temperature=0, mask=shown).numpy()
    np.testing.assert_array_equal(found, written[:, 1:])
    other = theirs.generate(torch.tensor(read), 8, temperature=0, mask=torch.tensor(mask))
    np.testing.assert_array_equal(other.numpy(), found)
    assert len(np.unique(found)) > 3
    # What is hidden does not matter.
    changed = metaop.tensor(np.where(mask, read, 2 + (read - 1) % 9))
    np.testing.assert_array_equal(model.generate(changed, 8, 0, mask=shown).numpy(), found)


def test_later_tokens_do_not_change_earlier_ones() -> None:
    metaop.manual_seed(0)
    model = build(t5).eval()
    read, written = metaop.randint(2, 11, (1, 6)), metaop.randint(2, 11, (1, 6))
    changed = written.clone()
    changed[0, 3:] = 2 + (changed[0, 3:] - 1) % 9
    with metaop.no_grad():
        before, after = model(read, written).numpy(), model(read, changed).numpy()
    np.testing.assert_allclose(before[:, :3], after[:, :3], atol=1e-6)
    assert (np.abs(before[:, 3:] - after[:, 3:]) > 1e-4).any()


def test_lists_and_what_is_written_for_them() -> None:
    read, written = t5.random_numbers(np.random.default_rng(0), 50, 5, 4)
    for row, target in zip(read, written):
        once = sorted(set(row[row != t5.PAD].tolist()))
        assert once and target[: len(once) + 1].tolist() == [*once, t5.END]
        assert not target[len(once) + 1 :].any()


def test_training_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    words = ["--length", "3", "--numbers", "4", "--width", "16", "--checkpoint"]
    whole = t5.main([*words, str(tmp_path / "whole.pth"), "--steps", "30"])
    assert np.isfinite(whole).all() and np.mean(whole[-5:]) < 0.9 * whole[0]
    parts = [*words, str(tmp_path / "parts.pth"), "--steps"]
    assert t5.main([*parts, "10"]) == whole[:10]
    assert t5.main([*parts, "30"]) == whole
