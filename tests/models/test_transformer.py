"""The encoder and decoder: PyTorch's values, what is not seen, writing, and learning to sort."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import metaop
from models import transformer
from tests.models.comparison import compare, copy_state, torch_twin


def build(module: Any) -> Any:
    return module.Transformer(7, 6, 8, heads=2, layers=2, hidden=12, dropout=0.0)


def test_values_gradients_and_steps_are_those_of_torch() -> None:
    def loss(library: Any, model: Any, read: Any, target: Any) -> tuple[Any, Any]:
        logits = model(read, model.shifted(target))
        value = library.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
        return logits, value

    read = np.random.default_rng(1).integers(0, 7, (3, 6))
    compare("transformer", build, loss, read, np.sort(read, 1)[:, :4], steps=3)


def test_waves_are_those_of_the_paper() -> None:
    place, index = np.mgrid[:9, :10]
    angles = place / 10000 ** (index // 2 * 2 / 10)
    expected = np.where(index % 2 == 0, np.sin(angles), np.cos(angles))
    np.testing.assert_allclose(transformer.positional_encoding(9, 10).numpy(), expected, atol=1e-5)


def test_what_is_due_later_is_not_seen_and_all_that_is_read_is() -> None:
    metaop.manual_seed(0)
    model = build(transformer).eval()
    read, written = metaop.randint(0, 7, (2, 6)), metaop.randint(0, 7, (2, 6))
    changed = written.clone()
    changed[:, 3:] = (changed[:, 3:] + 1) % 7
    with metaop.no_grad():
        before, after = model(read, written).numpy(), model(read, changed).numpy()
        other = read.clone()
        other[:, 5] = (other[:, 5] + 1) % 7
        reading = model(other, written).numpy()
    np.testing.assert_allclose(before[:, :3], after[:, :3], atol=1e-6)
    assert (np.abs(before[:, 3:] - after[:, 3:]) > 1e-4).any()
    assert (np.abs(before[:, 0] - reading[:, 0]) > 1e-4).any()


def test_the_likeliest_tokens_are_those_of_torch_and_of_what_is_written() -> None:
    import torch

    metaop.manual_seed(4)
    model, theirs = build(transformer).eval(), build(torch_twin("transformer")).eval()
    copy_state(model, theirs)
    read = np.random.default_rng(3).integers(0, 7, (4, 6))
    found = model.write(metaop.tensor(read), 5)
    np.testing.assert_array_equal(found.numpy(), theirs.write(torch.tensor(read), 5).numpy())
    with metaop.no_grad():
        logits = model(metaop.tensor(read), model.shifted(found))
    np.testing.assert_array_equal(found.numpy(), logits.argmax(-1).numpy())


def test_training_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    words = ["--length", "4", "--numbers", "4", "--width", "16", "--steps"]
    whole = transformer.main([*words, "30"])
    assert np.isfinite(whole).all() and np.mean(whole[-5:]) < 0.9 * whole[0]
    kept = ["--checkpoint", str(tmp_path / "kept.pth")]
    assert transformer.main([*words, "10", *kept]) == whole[:10]
    assert transformer.main([*words, "30", *kept]) == whole
