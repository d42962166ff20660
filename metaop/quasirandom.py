"""Sequences of points that fill a cube more evenly than random ones, under PyTorch's names."""

from __future__ import annotations

from typing import Any

import numpy as np

from metaop.errors import ArgumentError
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import tensor
from metaop.tensor.functions.random import randint
from metaop.tensor.promotion import defaults
from metaop.unified_graph.dtype import DType

__all__ = ["SobolEngine"]


class SobolEngine:
    """Points of Sobol's sequence in the cube [0, 1) of `dimension` dimensions, drawn in order.

    With `scramble`, the sequence is shuffled by `seed`, or by metaop's generator without one; the
    shuffled points differ from PyTorch's. SciPy makes the points, with the direction numbers of Joe
    and Kuo (2008).

    Raises ArgumentError for more dimensions than there are direction numbers for.

    >>> metaop.quasirandom.SobolEngine(2).draw(3)
    tensor([[0.0000, 0.0000],
            [0.5000, 0.5000],
            [0.7500, 0.2500]])
    """

    MAXBIT = 30
    MAXDIM = 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if not 1 <= dimension <= self.MAXDIM:
            raise ArgumentError(
                f"SobolEngine: {dimension} dimensions, but from 1 to {self.MAXDIM} are supported",
                fix="use metaop.rand for more dimensions",
            )
        self.dimension, self.scramble, self.seed = dimension, scramble, seed
        self.num_generated = 0
        if scramble and seed is None:
            seed = int(randint(0, 2**31 - 1, (1,)))
        self._seed = seed
        self._points = self._begun()

    def _begun(self) -> Any:
        from scipy.stats import qmc

        return qmc.Sobol(self.dimension, scramble=self.scramble, bits=self.MAXBIT, seed=self._seed)

    def draw(self, n: int = 1, out: Tensor | None = None, dtype: DType | None = None) -> Tensor:
        """The next `n` points: (n, dimension), also written into `out` if it is given."""
        import warnings

        with warnings.catch_warnings():  # points beyond a power of two are asked for on purpose
            warnings.simplefilter("ignore")
            points = self._points.random(n) if n else np.empty((0, self.dimension))
        self.num_generated += n
        made = tensor(points, dtype=dtype or defaults.dtype)
        return made if out is None else out.resize_(made.shape).copy_(made)

    def draw_base2(self, m: int, out: Tensor | None = None, dtype: DType | None = None) -> Tensor:
        """The next `2**m` points; the number of all points drawn must then be a power of two.

        Raises ArgumentError otherwise.
        """
        count = 2**m
        total = self.num_generated + count
        if total & (total - 1):
            raise ArgumentError(
                f"SobolEngine: {total} points would be drawn, which is no power of two",
                fix="call reset() first, or use draw()",
            )
        return self.draw(count, out, dtype)

    def fast_forward(self, n: int) -> SobolEngine:
        """Leaves `n` points out."""
        self._points.fast_forward(n)
        self.num_generated += n
        return self

    def reset(self) -> SobolEngine:
        """Begins again with the first point."""
        self._points, self.num_generated = self._begun(), 0
        return self

    def __repr__(self) -> str:
        words = [f"dimension={self.dimension}"]
        words += ["scramble=True"] if self.scramble else []
        words += [] if self.seed is None else [f"seed={self.seed}"]
        return f"SobolEngine({', '.join(words)})"
