"""Derived signatures are complete: they are all that a search without any rule finds.

The search tries every state of every operand and of the result, and asks by changing values what
no rule is needed for: whether a block of the result hangs on what only the other rank holds, and
whether the result is a sum of something for each rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.dist.derivation import derive
from metaop.dist.sbp import BROADCAST, PARTIAL, Sbp, Split, block
from metaop.dist.trace import signatures, trace
from tests.dist.signature_cases import COMPLETE

random = np.random.default_rng(2)
RANKS = 2
_TRIALS = 4
S_ROWS = Split(0), Split(1)

# What is not listed because it is never better: the normalised values, which are split, would be
# filled up with zeros to be added to a partial offset. Cutting the offset into blocks sends nothing
# more than its sum would.
FILLED_UP = {
    "layer_norm": {((x, BROADCAST, b), PARTIAL) for x in S_ROWS for b in (PARTIAL, Split(0))},
    "batch_norm": {((Split(1), w, PARTIAL), PARTIAL) for w in (BROADCAST, Split(0))},
}


def states_of(shape: tuple[int, ...], is_float: bool = True) -> list[Sbp]:
    splits = [Split(k) for k, extent in enumerate(shape) if extent >= RANKS]
    return [BROADCAST, *splits, *([PARTIAL] if is_float else [])]


def is_free(held: Sbp, wanted: Sbp) -> bool:
    """Whether every rank makes the one of the other by itself."""
    if held in (wanted, BROADCAST):
        return True
    return isinstance(held, Split) and wanted == PARTIAL


def derived(function: Callable[..., Any], arrays: list[np.ndarray]) -> set[tuple]:
    """All that follows from the derived signatures by cutting and by filling up with zeros."""
    inputs, outputs = trace(function, *map(metaop.tensor, arrays))
    found = [(sources, states[0]) for sources, states in derive(inputs, outputs, RANKS)]
    choices = [states_of(x.shape, x.dtype.kind == "f") for x in arrays]
    return {
        (held, wanted)
        for held in product(*choices)
        for wanted in states_of(outputs[0].shape)
        if any(
            all(map(is_free, held, sources)) and is_free(state, wanted) for sources, state in found
        )
    }


def change(array: np.ndarray, state: Sbp, rank: int) -> np.ndarray:
    """The operand after a change of what one rank alone holds of it; indices stay among those."""
    if state == BROADCAST:
        return array
    part = [slice(None)] * array.ndim
    if isinstance(state, Split):
        part[state.axis] = slice(*block(array.shape[state.axis], RANKS, rank))
    changed = array.copy()
    if array.dtype.kind == "f":
        changed[tuple(part)] += 3 * random.normal(size=changed[tuple(part)].shape)
    else:
        changed[tuple(part)] = random.choice(array.ravel(), changed[tuple(part)].shape)
    return changed


def found_by_trying(function: Callable[..., Any], arrays: list[np.ndarray]) -> set[tuple]:
    """All states of operands and result between which nothing has to be sent."""

    def run(operands: Any) -> np.ndarray:
        return function(*map(metaop.tensor, operands)).numpy()

    choices = [states_of(x.shape, x.dtype.kind == "f") for x in arrays]
    base = run(arrays)
    found = set()
    for held in product(*choices):
        possible = set(states_of(base.shape))
        for _ in range(_TRIALS):
            first, second = (
                [change(array, state, rank) for array, state in zip(arrays, held)]
                for rank in range(RANKS)
            )
            both = [_both(*three) for three in zip(arrays, first, second)]
            possible &= set(_unrefuted(base, run(first), run(second), run(both)))
        found |= {(held, state) for state in possible}
    return found


def _both(base: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return first + second - base


def _unrefuted(
    base: np.ndarray, first: np.ndarray, second: np.ndarray, both: np.ndarray
) -> Iterator[Sbp]:
    """The states of the result that these values allow."""

    def same(one: np.ndarray, other: np.ndarray) -> bool:
        return np.allclose(one, other, rtol=1e-9, atol=1e-9)

    if same(base, first) and same(base, second) and same(base, both):
        yield BROADCAST
    if same(both - first, second - base):
        yield PARTIAL
    for axis, extent in enumerate(base.shape):
        parts = [
            np.split(x, [block(extent, RANKS, 0)[1]], axis) for x in (base, first, second, both)
        ]
        (base0, base1), (first0, first1), (second0, second1), (both0, both1) = parts
        mine = same(base0, second0) and same(first0, both0)
        if mine and same(base1, first1) and same(second1, both1):
            yield Split(axis)


@pytest.mark.parametrize("name", COMPLETE)
def test_nothing_is_missing_and_nothing_too_much(name: str) -> None:
    function, arrays, _ = COMPLETE[name]
    found = derived(function, arrays)
    superfluous = FILLED_UP.get(name, set())
    assert not found & superfluous
    assert found | superfluous == found_by_trying(function, arrays)


@pytest.mark.parametrize("name", COMPLETE)
def test_the_signatures_are_those_of_the_list(name: str) -> None:
    function, arrays, expected = COMPLETE[name]
    found = signatures(function, *map(metaop.tensor, arrays), ranks=RANKS)
    sums = {entry for entry in found if "P(" not in entry}
    assert sums == set(expected.split())
