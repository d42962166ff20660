"""GPT: size and names of GPT-2, PyTorch's values, causality, writing, and learning."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.codegen.caches.kernels import KernelCache
from metaop.codegen.llvm import kernels, rows
from metaop.execution import executor, specialisation
from models import gpt
from tests.models.comparison import compare, copy_state, parameter_count, torch_twin


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


def sharpen(model: gpt.CausalLanguageModel) -> None:
    """Makes weights so large that attention goes to few letters, and each letter matters."""
    for name, parameter in model.named_parameters():
        if "ln_" not in name and "norm" not in name:
            metaop.nn.init.normal_(parameter, 0.0, 0.5)


def whole_context(model: gpt.CausalLanguageModel) -> Callable[[np.ndarray], np.ndarray]:
    """Logits of the letter that follows, computed from all letters at once."""

    def logits(tokens: np.ndarray) -> np.ndarray:
        with metaop.no_grad():
            return model(metaop.tensor(tokens[:, -model.context :])).numpy()[:, -1]

    return logits


def check_cache(model: gpt.CausalLanguageModel, captured: bool) -> None:
    """Letters by the cache have the logits of the whole; 13 letters, a context of 24."""
    metaop.manual_seed(1)
    sharpen(model.eval())
    whole, cache = whole_context(model), model.cache(2)
    step = metaop.jit(model.forward) if captured else model.forward
    tokens = np.random.default_rng(1).integers(0, 13, (2, 24))
    ends = [5, *range(6, 25)]
    with metaop.no_grad():
        for start, end in zip([0, *ends], ends):
            new, positions = metaop.tensor(tokens[:, start:end]), metaop.arange(start, end)
            logits = step(new, positions, cache)[:, -1].numpy()
            expected = whole(tokens[:, :end])
            # Sharp attention rounds: float64 agrees to 2e-14, float32 to 2e-5 in logits up to 9.
            np.testing.assert_allclose(logits, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("captured", [False, True])
def test_letters_by_the_cache_have_the_logits_of_the_whole(captured: bool) -> None:
    check_cache(gpt.GPT(vocabulary=13, context=24, width=24, layers=2, heads=3), captured)


def check_continuation(model: gpt.CausalLanguageModel, theirs: Any) -> None:
    """The likeliest letters are those of whole contexts and of PyTorch; the context is 8."""
    import torch

    metaop.manual_seed(2)
    model, theirs = model.double().eval(), theirs.double().eval()
    sharpen(model)
    copy_state(model, theirs)
    whole = whole_context(model)
    expected = np.random.default_rng(2).integers(0, 13, (2, 3))
    start, count = expected, 12  # the context of 8 runs over
    for _ in range(count):
        expected = np.concatenate((expected, whole(expected).argmax(-1)[:, None]), 1)
    assert len(np.unique(expected[:, 3:])) > 2
    written = model.generate(metaop.tensor(start), count, temperature=0)
    np.testing.assert_array_equal(written.numpy(), expected)
    other = theirs.generate(torch.tensor(start), count, temperature=0)
    np.testing.assert_array_equal(other.numpy(), expected)


def test_the_likeliest_continuation_is_that_of_whole_contexts_and_of_torch() -> None:
    check_continuation(build(gpt), build(torch_twin("gpt")))


@pytest.mark.parametrize("captured", [False, True])
def test_further_letters_compile_nothing(captured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def counting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            made.append(name)
            return function(*arguments)

        return counted

    cache = KernelCache(counting("kernel", kernels.start_compiling))
    monkeypatch.setenv("METAOP_DISK_CACHE", "false")
    monkeypatch.setattr(rows, "kernel_cache", lambda: cache)
    for name in ("compile_subgraph", "compile_generally"):
        function = counting("program", getattr(specialisation, name))
        monkeypatch.setattr(specialisation, name, function)
    executor.clear_programs()
    model = gpt.GPT(vocabulary=13, context=80, width=24, layers=2, heads=3).eval()
    if captured:
        monkeypatch.setattr(model, "forward", metaop.jit(model.forward))
    counts = []

    def drawn(logits: metaop.Tensor, *options: Any) -> metaop.Tensor:
        token = sample(logits, *options)
        token.numpy()
        counts.append((made.count("program"), made.count("kernel")))
        return token

    sample = gpt.sample
    monkeypatch.setattr(gpt, "sample", drawn)
    model.generate(metaop.zeros(1, 5, dtype=metaop.int64), 64, 0.9, top_k=8, top_p=0.95)
    assert len(counts) == 64 and counts[0][0] > 0 and counts[0][1] > 0
    assert counts[1:] == [counts[1]] * 63


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [(1.0, None, None), (0.7, 3, None), (1.3, None, 0.6), (1.0, 4, 0.75), (2.0, 50, 1.0)],
)
def test_draws_follow_the_probabilities_that_are_left(
    temperature: float, top_k: int | None, top_p: float | None
) -> None:
    metaop.manual_seed(3)
    logits = np.array([0.3, 2.0, -1.0, 1.2, 1.9, -3.0, 0.9])
    likely = np.exp(logits / temperature)
    left = np.argsort(-likely)[:top_k]
    shares = likely[left] / likely[left].sum()
    if top_p is not None:
        left = left[np.cumsum(shares) - shares < top_p]
    expected = np.zeros(7)
    expected[left] = likely[left] / likely[left].sum()
    rows = metaop.tensor(logits.astype(np.float32)).expand(20_000, 7)
    drawn = gpt.sample(rows, temperature, top_k, top_p)
    assert drawn.shape == (20_000, 1)
    found = np.bincount(drawn.numpy()[:, 0], minlength=7) / 20_000
    assert set(np.flatnonzero(found)) <= set(left)
    np.testing.assert_allclose(found, expected, atol=0.02)


def test_the_likeliest_is_always_left() -> None:
    rows = metaop.tensor([[0.0, 3.0, 1.0], [5.0, 5.0, 0.0]])
    assert gpt.sample(rows, 1.0, None, 0.0)[0].item() == 1
    assert gpt.sample(rows, 0.0)[:, 0].tolist() == [1, 0]
    assert gpt.sample(rows, 1.0, 1)[0].item() == 1


def test_training_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    words = ["--batch-size", "4", "--width", "32", "--write", "3", "--steps"]
    whole = gpt.main([*words, "12"])
    assert np.isfinite(whole).all() and np.mean(whole[-3:]) < whole[0]
    kept = ["--checkpoint", str(tmp_path / "runs" / "gpt.pth")]
    assert gpt.main([*words, "5", *kept]) == whole[:5]
    assert gpt.main([*words, "12", *kept]) == whole
