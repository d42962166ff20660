"""Random bits as a scalar function of a key and a counter."""

from __future__ import annotations

import numpy as np

from metaop.elementwise.scalar_function import ScalarFunction, to_int64

# Threefry-2x32 with 20 rounds: J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers:
# as easy as 1, 2, 3", SC 2011. It passes BigCrush and needs only 32-bit additions, exclusive ors
# and rotations, which every vector unit has.
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
GROUPS = 5


def threefry(key: np.ndarray, counter: np.ndarray) -> np.ndarray:
    """64 random bits from a 64-bit key and a 64-bit counter, both halves low word first."""
    key, counter = key.astype(np.uint64), counter.astype(np.uint64)
    keys = [_low(key), _high(key)]
    keys.append(keys[0] ^ keys[1] ^ np.uint32(PARITY))
    first, second = _low(counter) + keys[0], _high(counter) + keys[1]
    for group in range(GROUPS):
        for rotation in ROTATIONS[group % 2]:
            first = first + second
            second = (second << np.uint32(rotation)) | (second >> np.uint32(32 - rotation))
            second = second ^ first
        first = first + keys[(group + 1) % 3]
        second = second + keys[(group + 2) % 3] + np.uint32(group + 1)
    return (first.astype(np.uint64) | (second.astype(np.uint64) << np.uint64(32))).astype(np.int64)


def _low(words: np.ndarray) -> np.ndarray:
    return (words & np.uint64(0xFFFFFFFF)).astype(np.uint32)


def _high(words: np.ndarray) -> np.ndarray:
    return (words >> np.uint64(32)).astype(np.uint32)


ROWS = (
    ScalarFunction(
        "random_bits",
        2,
        numpy=threefry,
        llvm=lambda b, key, counter: b.math.threefry(key, counter, ROTATIONS, GROUPS, PARITY),
        cuda="metaop_threefry({0}, {1})",
        accepts=("int",),
        operand=to_int64,
        is_serial=True,
    ),
)
