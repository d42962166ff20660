"""Classical models of ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import metaop
from metaop.errors import CheckpointError
from metaop.onnx.table import ML, operator
from metaop.tensor.core import Tensor


@operator("Binarizer", domain=ML)
def binarised(x: Tensor, *, threshold: float = 0.0) -> Tensor:
    return (x > threshold).to(x.dtype)


@operator("Scaler", domain=ML)
def scaled(x: Tensor, *, offset: Sequence[float], scale: Sequence[float]) -> Tensor:
    """(x - offset) * scale."""
    shift, factor = (metaop.tensor(list(one), dtype=metaop.float32) for one in (offset, scale))
    return (x.to(metaop.float32) - shift) * factor


@operator("LinearRegressor", domain=ML)
def linear_regressor(
    x: Tensor,
    *,
    coefficients: Sequence[float],
    intercepts: Sequence[float] | None = None,
    post_transform: str = "NONE",
    targets: int = 1,
) -> Tensor:
    """x coefficients^T + intercepts."""
    weight = metaop.tensor(list(coefficients), dtype=metaop.float32).reshape((targets, -1))
    bias = None if not intercepts else metaop.tensor(list(intercepts), dtype=metaop.float32)
    return _POST[post_transform](metaop.nn.functional.linear(x.to(metaop.float32), weight, bias))


_POST: dict[str, Any] = {
    "NONE": lambda x: x,
    "SOFTMAX": lambda x: metaop.softmax(x, -1),
    "LOGISTIC": metaop.sigmoid,
}


# Comparisons of a node by their number in ONNX.
_MODES = (
    lambda x, y: x <= y,
    lambda x, y: x < y,
    lambda x, y: x >= y,
    lambda x, y: x > y,
    lambda x, y: x == y,
    lambda x, y: x != y,
)
_MEMBER = 6


@operator("TreeEnsemble", domain=ML)
def tree_ensemble(
    x: Tensor,
    *,
    aggregate_function: int = 1,
    leaf_targetids: Sequence[int],
    leaf_weights: np.ndarray,
    membership_values: np.ndarray | None = None,
    n_targets: int,
    nodes_falseleafs: Sequence[int],
    nodes_falsenodeids: Sequence[int],
    nodes_featureids: Sequence[int],
    nodes_hitrates: Any = None,
    nodes_missing_value_tracks_true: Sequence[int] | None = None,
    nodes_modes: np.ndarray,
    nodes_splits: np.ndarray,
    nodes_trueleafs: Sequence[int],
    nodes_truenodeids: Sequence[int],
    post_transform: int = 0,
    tree_roots: Sequence[int],
) -> Tensor:
    """Sums, means, minima or maxima of what trees say; rows are samples, columns targets.

    Every sample goes one node down in a step, all trees and samples at once.
    """
    members = _members(nodes_modes, membership_values)
    missing = nodes_missing_value_tracks_true or [0] * len(nodes_modes)
    rows = x.numpy(force=True)
    found = []
    for root in tree_roots:
        node = np.full(len(rows), root)
        leaf = np.full(len(rows), -1)
        for _ in range(len(nodes_modes)):
            going = np.flatnonzero(leaf < 0)
            if not len(going):
                break
            for sample in going:
                at = int(node[sample])
                value = rows[sample, nodes_featureids[at]]
                mode = int(nodes_modes[at])
                if mode == _MEMBER:
                    is_true = value in members[at]
                else:
                    is_true = bool(_MODES[mode](value, nodes_splits[at]))
                is_true = is_true or (bool(missing[at]) and np.isnan(value))
                after = (nodes_truenodeids if is_true else nodes_falsenodeids)[at]
                if (nodes_trueleafs if is_true else nodes_falseleafs)[at]:
                    leaf[sample] = after
                else:
                    node[sample] = after
        if (leaf < 0).any():
            raise CheckpointError("TreeEnsemble: a tree has no end", fix="export the file again")
        said = np.zeros((len(rows), n_targets), leaf_weights.dtype)
        said[np.arange(len(rows)), np.asarray(leaf_targetids)[leaf]] = leaf_weights[leaf]
        found.append(said)
    trees = np.stack(found)
    combine = (np.mean, np.sum, np.min, np.max)[aggregate_function]
    total = metaop.tensor(np.asarray(combine(trees, axis=0)).astype(leaf_weights.dtype))
    return (_POST["NONE"], _POST["LOGISTIC"], _POST["SOFTMAX"])[post_transform](total)


def _members(modes: np.ndarray, values: np.ndarray | None) -> dict[int, set[float]]:
    """The sets of the nodes that ask for members, which NaN separates in the file."""
    sets: list[set[float]] = [set()]
    for value in [] if values is None else values.tolist():
        if value != value:
            sets.append(set())
        else:
            sets[-1].add(value)
    asking = [k for k, mode in enumerate(modes) if mode == _MEMBER]
    return dict(zip(asking, sets))
