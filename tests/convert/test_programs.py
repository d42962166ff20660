"""Whole programs: converted without loss, and training as in PyTorch from the same weights."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from tests.convert.running import (
    FOLDER,
    PROGRAMS,
    STEPS,
    copy_weights,
    determined_weights,
    load_program,
    modules_of,
)

pytest.importorskip("libcst")
from metaop.convert import Conversion, Verdict, convert_source
from metaop.convert.source import MARK, comments

# The losses of programs that use torchvision, which is not installed everywhere that PyTorch is:
# `python -m tests.convert.record` writes them with torchvision 0.28.
RECORDED: dict[str, list[float]] = json.loads((FOLDER.parent / "recorded.json").read_text())

every_program = pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)


FOREIGN = ("torch", "torchvision", "einops")


@pytest.fixture(autouse=True)
def writable_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's operator database, which other tests import, freezes what programs set."""
    torch = pytest.importorskip("torch")
    state = torch.backends.flags_frozen.__globals__
    monkeypatch.setitem(state, "__allow_nonbracketed_mutation_flag", True)


@cache
def converted(path: Path) -> Conversion:
    return convert_source(path.read_text())


def own_comments(text: str) -> list[str]:
    """The comments of a text without the converter's marks."""
    stripped = [comment.partition(f"  {MARK}")[0] for comment in comments(text)]
    return [comment for comment in stripped if not comment.startswith(MARK)]


def test_there_are_programs_in_many_styles() -> None:
    assert len(PROGRAMS) >= 40


@every_program
def test_output_parses_and_keeps_lines_comments_and_docstrings(path: Path) -> None:
    text, result = path.read_text(), converted(path).text
    assert result.count("\n") == text.count("\n")
    assert own_comments(result) == comments(text)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    before, after = (
        [ast.get_docstring(n) for n in ast.walk(ast.parse(t)) if isinstance(n, documented)]
        for t in (text, result)
    )
    assert before == after


@every_program
def test_converting_twice_changes_nothing(path: Path) -> None:
    again = convert_source(converted(path).text)
    assert again.text == converted(path).text
    assert Verdict.CONVERTED not in {finding.verdict for finding in again.findings}


@every_program
def test_nothing_unsupported_is_unmarked_and_nothing_foreign_is_left(path: Path) -> None:
    conversion = converted(path)
    lines = conversion.text.split("\n")
    for finding in conversion.findings:
        if finding.verdict is Verdict.UNSUPPORTED:
            following = "\n".join(lines[finding.line - 1 : finding.line + 10])
            assert f"{MARK}unsupported: {finding.name}" in following
    for node in ast.walk(ast.parse(conversion.text)):
        if isinstance(node, ast.Import):
            assert not any(alias.name.split(".")[0] in FOREIGN for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] not in FOREIGN


@every_program
@pytest.mark.filterwarnings("ignore")
def test_losses_are_those_of_pytorch(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    missing = [f for f in converted(path).findings if f.verdict is Verdict.UNSUPPORTED]
    if missing and path.stem != "unsupported_corners":
        pytest.skip(f"not in metaop: {missing[0].name}")
    torch.manual_seed(0)
    if path.stem in RECORDED:
        _compare_with_record(path)
        return
    ours = load_program(converted(path).text, path.stem)
    copy = ours["build"]()
    theirs = load_program(path.read_text(), path.stem)
    model = theirs["build"]()
    copy_weights(model, copy, metaop.from_numpy)
    weights = [
        {name: value.clone() for name, value in module.state_dict().items()}
        for module in modules_of(model)
    ]
    expected, found = losses(theirs, model), losses(ours, copy)
    assert len(expected) >= STEPS
    error = np.abs(found - expected)
    if error.max() > 1e-3:
        # Adagrad makes a step of a gradient that is zero but for rounding, say.
        error -= rounding_of(torch, theirs, weights, expected)
    assert error.max() <= 1e-3, (found, expected)


def _compare_with_record(path: Path) -> None:
    expected = np.array(RECORDED[path.stem])
    for nudge in range(12):
        # A relu at zero falls to either side by rounding: other roundings meet the record. About
        # every other one does.
        program = load_program(converted(path).text, path.stem)
        copy = program["build"]()
        determined_weights(copy, partial(nudged, nudge) if nudge else metaop.from_numpy)
        found = losses(program, copy)
        if np.allclose(found, expected, rtol=0, atol=1e-3):
            break
    assert len(expected) >= STEPS
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3)


def rounding_of(
    torch: Any, program: Mapping[str, Any], weights: Sequence[Any], expected: np.ndarray
) -> np.ndarray:
    """How far PyTorch's own losses go from weights that differ by about a rounding."""
    found = []
    for seed in range(8):
        random, model = torch.Generator().manual_seed(seed), program["build"]()
        for module, values in zip(modules_of(model), weights, strict=True):
            module.load_state_dict(values)
            with torch.no_grad():
                for weight in module.parameters():
                    weight *= 1 + 1e-7 * torch.randn(weight.shape, generator=random)
        found.append(np.abs(losses(program, model) - expected))
    return np.max(found, axis=0)


def nudged(seed: int, values: np.ndarray) -> metaop.Tensor:
    """Weights that differ by about a rounding."""
    noise = np.random.default_rng(seed).standard_normal(values.shape)
    return metaop.from_numpy(np.asarray(values * (1 + 1e-7 * noise), values.dtype))


@pytest.mark.parametrize("name", sorted(RECORDED))
@pytest.mark.filterwarnings("ignore")
def test_recorded_losses_are_those_of_torchvision(name: str) -> None:
    """Where torchvision is installed, the record is checked; elsewhere it stands for it."""
    text = (FOLDER / f"{name}.py").read_text()
    assert "torchvision" in text and len(RECORDED[name]) >= STEPS
    try:
        import torch
        import torchvision  # noqa: F401
    except (ImportError, RuntimeError):
        return
    program = load_program(text, name)
    model = program["build"]()
    determined_weights(model, torch.from_numpy)
    np.testing.assert_allclose(losses(program, model), RECORDED[name], rtol=0, atol=1e-3)


def losses(program: Mapping[str, Any], model: Any) -> np.ndarray:
    return np.array(program["train"](model, STEPS), dtype=float)
