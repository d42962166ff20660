"""The counter-based generator: published vectors, statistics, independence of streams."""

from __future__ import annotations

import numpy as np
import pytest

from metaop.elementwise.functions import FUNCTIONS
from metaop.elementwise.meta_op import apply
from metaop.unified_graph.dtype import bool_, int64
from metaop.unified_graph.node import input_node

random_bits = FUNCTIONS["random_bits"].numpy
_COUNT = 1 << 18


def _words(bits):
    return bits.astype(np.uint64) & np.uint64(0xFFFFFFFF), bits.astype(np.uint64) >> np.uint64(32)


def _draw(key, count=_COUNT):
    return random_bits(np.full(count, key, np.int64), np.arange(count))


@pytest.mark.parametrize(
    "counter, key, expected",
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_known_answers(counter, key, expected):
    """The vectors that Random123 publishes for threefry2x32 with 20 rounds."""

    def joined(words):
        return np.array([words[0] | words[1] << 32], np.uint64).astype(np.int64)

    low, high = _words(random_bits(joined(key), joined(counter)))
    assert (int(low[0]), int(high[0])) == expected


@pytest.mark.parametrize("key", [0, 1, -1, 12345678901])
def test_every_bit_is_fair(key):
    bits = _draw(key).astype(np.uint64)
    for position in range(64):
        ones = int(((bits >> np.uint64(position)) & np.uint64(1)).sum())
        # Five standard deviations of a fair coin.
        assert abs(ones - _COUNT / 2) < 2.5 * _COUNT**0.5


def test_bytes_are_equally_frequent():
    counts = np.bincount(_draw(7).view(np.uint8), minlength=256)
    mean = counts.mean()
    chi_square = ((counts - mean) ** 2 / mean).sum()
    # 255 degrees of freedom: mean 255, standard deviation 22.6.
    assert 160 < chi_square < 360


def test_neighbouring_keys_and_counters_are_independent():
    first, second = _draw(1), _draw(2)
    for other in (second, np.roll(first, 1)):
        different = int(np.unpackbits((first ^ other).view(np.uint8)).sum())
        assert abs(different - 32 * _COUNT) < 5 * 4 * _COUNT**0.5
    assert len(np.unique(np.concatenate([first, second]))) == 2 * _COUNT


def test_operands_are_converted_to_int64():
    node = apply("random_bits", input_node(0, (3,), bool_), input_node(1, (3,), int64))
    assert node.dtype is int64
    assert all(source.dtype is int64 for source in node.inputs)
