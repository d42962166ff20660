"""The reducers: commutative, associative combinations with an identity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from metaop.unified_graph.dtype import DType


@dataclass(frozen=True, eq=False)
class Reducer:
    """One way to combine many values into one.

    `combine` names the scalar function of two operands, `identity` gives the value that changes
    nothing, `scatter` is NumPy's unbuffered in-place form. `ties` tells how the gradient treats
    equal extremes: to the "first" of them, or shared by "all".
    """

    name: str
    combine: str
    identity: Callable[[DType], Any]
    scatter: Callable[..., None]
    ties: str = "first"

    def __repr__(self) -> str:
        return self.name


REDUCERS: dict[str, Reducer] = {
    reducer.name: reducer
    for reducer in (
        Reducer("add", "add", lambda dtype: 0, np.add.at),
        Reducer("mul", "mul", lambda dtype: 1, np.multiply.at),
        Reducer("max", "maximum", lambda dtype: dtype.lowest, np.maximum.at),
        Reducer("min", "minimum", lambda dtype: dtype.highest, np.minimum.at),
        # amax and amin of PyTorch: the gradient is shared evenly among equal extremes.
        Reducer("amax", "maximum", lambda dtype: dtype.lowest, np.maximum.at, ties="all"),
        Reducer("amin", "minimum", lambda dtype: dtype.highest, np.minimum.at, ties="all"),
        Reducer("and", "logical_and", lambda dtype: True, np.logical_and.at),
        Reducer("or", "logical_or", lambda dtype: False, np.logical_or.at),
    )
}
