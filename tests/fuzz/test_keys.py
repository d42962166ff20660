"""Random keys of all kinds, in tuples and lists, against PyTorch: reads, writes and updates."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaop

torch = pytest.importorskip("torch")

# Makes an index of the library.
Item = Callable[[Any], Any]


def random_item(rng: random.Random, extent: int) -> tuple[Item, int]:
    """An index for a dimension, and how many dimensions it takes."""
    place = rng.randrange(-extent, extent)
    places = [rng.randrange(-extent, extent) for _ in range(rng.randrange(1, 4))]
    ends = [None if rng.random() < 0.4 else rng.randrange(-extent - 1, extent + 2) for _ in "ab"]
    mask, flag = [rng.random() < 0.5 for _ in range(extent)], rng.random() < 0.5
    step = rng.choice([None, 1, 2, 3])
    kinds: list[tuple[Item, int]] = [
        (lambda lib: place, 1),
        (lambda lib: slice(*ends, step), 1),
        (lambda lib: slice(None), 1),
        (lambda lib: lib.tensor(places), 1),
        (lambda lib: lib.tensor([[k] for k in places]), 1),
        (lambda lib: list(places), 1),
        (lambda lib: np.array(places), 1),
        (lambda lib: lib.tensor(place), 1),
        (lambda lib: lib.tensor(mask), 1),
        (lambda lib: None, 0),
        (lambda lib: flag, 0),
    ]
    return rng.choice(kinds)


def random_key(rng: random.Random, shape: list[int]) -> Item:
    items: list[Item] = []
    taken = 0
    for _ in range(rng.randrange(1, len(shape) + 2)):
        item, count = random_item(rng, shape[min(taken, len(shape) - 1)])
        items.append(item)
        taken += count
    if rng.random() < 0.3:
        items.insert(rng.randrange(len(items) + 1), lambda lib: ...)
    form = rng.choice([tuple, list, None])
    return lambda lib: items[0](lib) if form is None else form([item(lib) for item in items])


def outcome(lib: Any, values: np.ndarray, key: Item, kind: str) -> np.ndarray | None:
    """The result, or the tensor that was written; None for an error."""
    x = lib.tensor(values)
    try:
        if kind == "read":
            return np.array(x[key(lib)].numpy())
        if kind == "write":
            x[key(lib)] = -1.0
        else:
            x[key(lib)] += 100.0
        return np.array(x.numpy())
    except (IndexError, RuntimeError, TypeError, ValueError):
        return None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(12))
def test_keys(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference runs them: this is about what a key means, not about kernels."""
    monkeypatch.setenv("METAOP_BACKEND", "reference")
    rng = random.Random(seed)
    read = 0
    for _ in range(25):
        shape = [rng.randrange(1, 5) for _ in range(rng.randrange(1, 5))]
        values = np.arange(float(np.prod(shape))).reshape(shape)
        key = random_key(rng, shape)
        for kind in ("read", "write", "update"):
            wanted, found = (outcome(lib, values, key, kind) for lib in (torch, metaop))
            assert (wanted is None) == (found is None), (shape, key(torch), kind)
            if wanted is not None and found is not None:
                read += kind == "read"
                np.testing.assert_array_equal(found, wanted, str((shape, key(torch), kind)))
    assert read > 8
