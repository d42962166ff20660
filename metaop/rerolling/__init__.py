"""Loops that a recorded program has written out become loops again.

A loop in Python records its calls once per step. Where a subgraph repeats itself, and each copy
reads the same as the one before, or the next elements of a tensor, or what the one before has made,
the copies become one call of `repeat`. Compiling then takes as long as for one step, and one
program serves any number of steps. Gradients repeat themselves as the steps do, from the last to
the first; what they read of the steps is stacked. Steps whose sizes grow are found, too.
"""

from metaop.rerolling.growth import growing_steps
from metaop.rerolling.rewriting import rerolled

__all__ = ["growing_steps", "rerolled"]
