"""Faults in what only saves time: values stay, and a warning tells of them once."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import pytest
from scipy.special import log_ndtr

import metaop
from metaop import shortcuts
from metaop.errors import InternalError, ShapeError
from metaop.execution import executor, specialisation
from metaop.execution.executor import clear_programs
from metaop.unified_graph import shape_rule


def broken(*_: Any, **__: Any) -> NoReturn:
    raise ValueError("a bug of ours")


def totals(function: Callable[[Any], Any]) -> list[float]:
    """Sums of tensors of several sizes, by programs that nobody has made yet."""
    clear_programs()
    return [float(function(metaop.arange(n).float()).sum()) for n in range(3, 7)]


@pytest.fixture(autouse=True)
def nothing_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortcuts, "_reported", set())


# Operators that nothing else uses: their rules for shapes are searched here.
PLACES = [
    (executor, "rerolled", "a loop of repeated steps", metaop.tanh, np.tanh),
    (specialisation, "compile_generally", "a program for any size", metaop.exp2, np.exp2),
    (shape_rule, "ShapeRule", "a rule for shapes", metaop.special.log_ndtr, log_ndtr),
]


@pytest.mark.parametrize(("module", "name", "what", "function", "like"), PLACES)
def test_a_fault_costs_only_time(
    module: Any,
    name: str,
    what: str,
    function: Callable[[Any], Any],
    like: Callable[[Any], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("METAOP_VERIFY", "0")
    monkeypatch.setattr(module, name, broken)
    expected = [float(like(np.arange(n)).sum()) for n in range(3, 7)]
    with pytest.warns(RuntimeWarning, match=f"could not make {what}: ValueError: a bug of ours"):
        assert totals(function) == pytest.approx(expected, rel=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert totals(function) == pytest.approx(expected, rel=1e-5)


def test_verifying_raises_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAOP_VERIFY", "1")
    monkeypatch.setattr(specialisation, "compile_generally", broken)
    with pytest.raises(ValueError, match="a bug of ours"):
        totals(metaop.tanh)
    clear_programs()


def test_errors_for_the_user_are_no_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAOP_VERIFY", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shortcuts.go_without("a program", ShapeError("of another shape"))
        with pytest.raises(RuntimeWarning, match="InternalError"):
            try:
                raise InternalError("a table of ours")
            except InternalError as fault:
                shortcuts.go_without("a program", fault)
