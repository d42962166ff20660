"""The node tests that the onnx package ships, one metaop test for each operator."""

from __future__ import annotations

import functools
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner, _normalize_tensor

import metaop.onnx
from tests.onnx.node_tests import NOT_PASSED

LETTERS = "abcdefghijklmnopqrstuvwxyz"


@functools.cache
def cases() -> dict[str, list[Any]]:
    """The node tests by the first letter of the operator that they are named after."""
    with warnings.catch_warnings():
        # Some expected values are computed with overflow on purpose.
        warnings.simplefilter("ignore")
        found = defaultdict(list)
        for case in load_model_tests(kind="node"):
            found[case.name.removeprefix("test_")[0]].append(case)
    return found


def passes(case: Any) -> bool:
    """Whether a node test passes, by the comparison of onnx's own runner."""
    prepared = metaop.onnx.backend.prepare(case.model, "CPU")
    for inputs, expected in case.data_sets:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outputs = prepared.run([_normalize_tensor(one) for one in inputs])
        try:
            Runner.assert_similar_outputs(
                [_normalize_tensor(one) for one in expected],
                list(outputs),
                rtol=case.rtol,
                atol=case.atol,
            )
        except (AssertionError, TypeError):
            return False
    return True


@pytest.mark.parametrize("letter", LETTERS)
def test_node_tests_pass(letter: str) -> None:
    failed = [case.name for case in cases()[letter] if not passes(case)]
    # Random numbers agree by chance now and then.
    assert set(failed) <= set(NOT_PASSED)


def test_at_least_98_percent_pass() -> None:
    names = [case.name for found in cases().values() for case in found]
    assert set(NOT_PASSED) <= set(names)
    assert len(NOT_PASSED) <= 0.02 * len(names)


def test_the_document_has_the_same_table() -> None:
    text = (Path(__file__).parents[2] / "docs" / "onnx.md").read_text()
    rows = "".join(f"| `{name}` | {reason} |\n" for name, reason in NOT_PASSED.items())
    assert f"| --- | --- |\n{rows}\n" in text


def test_a_sequence_with_a_scalar() -> None:
    """What onnx's runner cannot compare is right."""
    (case,) = [one for one in cases()["l"] if one.name == "test_loop16_seq_none"]
    ((inputs, (expected,)),) = case.data_sets
    (found,) = metaop.onnx.backend.run_model(case.model, inputs, "CPU")
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        np.testing.assert_array_equal(one, other)
