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

functional = metaop.nn.functional
random = np.random.default_rng(2)
RANKS = 2
_TRIALS = 4


def normal(*shape: int) -> np.ndarray:
    return random.normal(size=shape)


def indices(bound: int, *shape: int) -> np.ndarray:
    return random.integers(0, bound, shape)


def conv2d(x: Any, w: Any) -> Any:
    return functional.conv2d(x, w, padding=1)


def layer_norm(x: Any, w: Any, b: Any) -> Any:
    return functional.layer_norm(x, (4,), w, b)


def batch_norm(x: Any, w: Any, b: Any) -> Any:
    return functional.batch_norm(x, None, None, w, b, training=True)


def segment_sum(x: Any, i: Any) -> Any:
    return metaop.zeros(4, x.shape[1], dtype=x.dtype).index_add(0, i, x)


def summed_cross_entropy(x: Any, labels: Any) -> Any:
    return functional.cross_entropy(x, labels, reduction="sum")


S_ROWS = Split(0), Split(1)
LABELS = np.array([2, -100, 0, 1])

# name: (function, operands, all signatures that none of the others makes superfluous)
CASES: dict[str, tuple[Callable[..., Any], list[np.ndarray], str]] = {
    "matmul": (
        metaop.matmul,
        [normal(3, 4), normal(4, 5)],
        "S0,B->S0 B,S1->S1 B,B->B S1,S0->P B,P->P P,B->P",
    ),
    "batched matmul": (
        metaop.bmm,
        [normal(3, 2, 4), normal(3, 4, 5)],
        "S0,S0->S0 S1,B->S1 B,S2->S2 B,B->B S2,S1->P B,P->P P,B->P",
    ),
    "conv2d": (
        conv2d,
        [normal(3, 2, 4, 4), normal(4, 2, 3, 3)],
        "S0,B->S0 B,S0->S1 B,B->B S1,S1->P S2,B->P S3,B->P B,S2->P B,S3->P B,P->P P,B->P",
    ),
    "max_pool2d": (
        lambda x: functional.max_pool2d(x, 2),
        [normal(3, 2, 4, 4)],
        "S0->S0 S1->S1 S2->S2 S3->S3 B->B",
    ),
    "avg_pool2d": (
        lambda x: functional.avg_pool2d(x, 3, 1, 1),
        [normal(3, 2, 4, 4)],
        "S0->S0 S1->S1 B->B S2->P S3->P P->P",
    ),
    "add": (lambda x, y: x + y, [normal(3, 4), normal(3, 4)], "S0,S0->S0 S1,S1->S1 B,B->B P,P->P"),
    "mul": (
        lambda x, y: x * y,
        [normal(3, 4), normal(4)],
        "S0,B->S0 S1,S0->S1 B,B->B B,P->P P,B->P",
    ),
    "gelu": (functional.gelu, [normal(3, 4)], "S0->S0 S1->S1 B->B"),
    "sum": (lambda x: x.sum(1), [normal(3, 4)], "S0->S0 B->B S1->P P->P"),
    "mean of all": (lambda x: x.mean(), [normal(3, 4)], "B->B S0->P S1->P P->P"),
    "reshape": (lambda x: x.reshape(2, 6, 3), [normal(4, 9)], "S0->S0 B->B S1->P P->P"),
    "transpose": (lambda x: x.transpose(0, 2), [normal(3, 4, 2)], "S2->S0 S1->S1 S0->S2 B->B P->P"),
    "gather": (
        lambda x, i: metaop.gather(x, 1, i),
        [normal(3, 4), indices(4, 3, 2)],
        "S0,S0->S0 B,S1->S1 B,B->B S1,B->P P,B->P",
    ),
    "embedding": (
        functional.embedding,
        [indices(5, 3, 2), normal(5, 4)],
        "S0,B->S0 S1,B->S1 B,S1->S2 B,B->B B,S0->P B,P->P",
    ),
    "softmax": (lambda x: functional.softmax(x, 1), [normal(3, 4, 2)], "S0->S0 S2->S2 B->B"),
    "layer_norm": (
        layer_norm,
        [normal(3, 2, 4), normal(4), normal(4)],
        "S0,B,B->S0 S1,B,B->S1 B,S0,S0->S2 B,B,B->B B,S0,P->P B,P,S0->P B,P,P->P",
    ),
    "batch_norm": (
        batch_norm,
        [normal(3, 4, 2), normal(4), normal(4)],
        "S1,S0,S0->S1 B,B,B->B B,S0,P->P B,P,S0->P B,P,P->P",
    ),
    "cross_entropy sum": (summed_cross_entropy, [normal(4, 3), LABELS], "B,B->B S0,S0->P"),
    # The mean is over the labels that are not ignored, which every rank has to count.
    "cross_entropy": (functional.cross_entropy, [normal(4, 3), LABELS], "B,B->B S0,B->P"),
    "concat": (
        lambda x, y: metaop.cat([x, y], 0),
        [normal(3, 4), normal(2, 4)],
        "S1,S1->S1 B,B->B S0,S0->P S0,S1->P S0,P->P S1,S0->P S1,P->P P,S0->P P,S1->P P,P->P",
    ),
    "slice": (lambda x: x[1:], [normal(5, 4)], "S0->S0 S1->S1 B->B P->P"),
    "segment sum": (segment_sum, [normal(5, 3), indices(4, 5)], "S1,B->S1 B,B->B S0,S0->P P,B->P"),
}


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


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_missing_and_nothing_too_much(name: str) -> None:
    function, arrays, _ = CASES[name]
    found = derived(function, arrays)
    superfluous = FILLED_UP.get(name, set())
    assert not found & superfluous
    assert found | superfluous == found_by_trying(function, arrays)


@pytest.mark.parametrize("name", CASES)
def test_the_signatures_are_those_of_the_list(name: str) -> None:
    function, arrays, expected = CASES[name]
    found = signatures(function, *map(metaop.tensor, arrays), ranks=RANKS)
    sums = {entry for entry in found if "P(" not in entry}
    assert sums == set(expected.split())
