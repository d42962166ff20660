"""Dropout: elements or whole channels zeroed by a mask of counter-based random bits.

The mask is a function of the seed and the element's index, so backward recomputes it.
"""

from __future__ import annotations

import math

from metaop.elementwise.meta_op import apply, where
from metaop.operators.random import random_bits
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.composite import composite
from metaop.unified_graph.node import Node, Shape, constant

# What a dropped element holds before alpha dropout's affine correction: the limit of SELU.
_SATURATION = -1.7580993408473766


def _kept(seed: Node, shape: Shape, probability: float) -> Node:
    """A boolean per element, true with probability 1 - `probability`."""
    bound = math.floor(probability * 2.0**32) - (1 << 31)
    upper = apply("right_shift", random_bits(seed, shape), constant(32, dtypes.int64))
    return upper >= min(bound, (1 << 31) - 1)


def _mask_shape(shape: Shape, lead: int | None) -> Shape:
    """The shape of a mask that is constant along all but the first `lead` dimensions."""
    return shape if lead is None else (*shape[:lead], *(1 for _ in shape[lead:]))


@composite
def dropout(input: Node, seed: Node, probability: float, lead: int | None) -> Node:
    """Zeroes elements, or channels, with `probability` and scales the others to keep the mean."""
    if probability == 1:
        return input * 0
    kept = _kept(seed, _mask_shape(input.shape, lead), probability)
    return where(kept, input * (1.0 / (1.0 - probability)), 0)


@composite
def alpha_dropout(input: Node, seed: Node, probability: float, lead: int | None) -> Node:
    """Dropout that preserves mean 0 and variance 1 of SELU activations."""
    if probability == 1:
        return input * 0
    keep = 1.0 - probability
    scale = 1.0 / math.sqrt(keep * (1.0 + probability * _SATURATION**2))
    kept = _kept(seed, _mask_shape(input.shape, lead), probability)
    shift = -scale * probability * _SATURATION
    return where(kept, input * scale + shift, constant(_SATURATION * scale + shift, input.dtype))
