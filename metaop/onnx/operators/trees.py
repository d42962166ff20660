"""Classical models of ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import metaop
from metaop.errors import CheckpointError
from metaop.onnx.table import ML, operator
from metaop.tensor.core import Tensor


@operator("Binarizer", domain=ML)
def binarised(x: Tensor, *, threshold: float = 0.0) -> Tensor:
    """1 where a number is greater than the threshold, else 0."""
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
    """Sums, means, minima or maxima over trees; rows are samples, columns targets."""
    members = _members(nodes_modes, membership_values)
    missing = nodes_missing_value_tracks_true or [0] * len(nodes_modes)
    rows = x.numpy(force=True)
    found = []
    for root in tree_roots:
        leaf = _Walk(
            root, nodes_featureids, nodes_modes, nodes_splits, members, missing,
            (nodes_falsenodeids, nodes_truenodeids), (nodes_falseleafs, nodes_trueleafs),
        ).leaves(rows)  # fmt: skip
        said = np.zeros((len(rows), n_targets), leaf_weights.dtype)
        said[np.arange(len(rows)), np.asarray(leaf_targetids)[leaf]] = leaf_weights[leaf]
        found.append(said)
    trees = np.stack(found)
    combine = (np.mean, np.sum, np.min, np.max)[aggregate_function]
    total = metaop.tensor(np.asarray(combine(trees, axis=0)).astype(leaf_weights.dtype))
    return (_POST["NONE"], _POST["LOGISTIC"], _POST["SOFTMAX"])[post_transform](total)


class _Walk(NamedTuple):
    """A tree: the test of each node, and the next node or leaf for each outcome."""

    root: int
    features: Sequence[int]
    modes: np.ndarray
    splits: np.ndarray
    members: dict[int, set[float]]
    missing: Sequence[int]
    after: tuple[Sequence[int], Sequence[int]]
    is_leaf: tuple[Sequence[int], Sequence[int]]

    def leaves(self, rows: np.ndarray) -> list[int]:
        """The leaf of each sample.

        Raises CheckpointError for a tree with a cycle.
        """
        return [self._leaf(row) for row in rows]

    def _leaf(self, row: np.ndarray) -> int:
        at = self.root
        for _ in range(len(self.modes)):
            answer = self._answer(at, row[self.features[at]])
            after = int(self.after[answer][at])
            if self.is_leaf[answer][at]:
                return after
            at = after
        raise CheckpointError("TreeEnsemble: a tree has a cycle", fix="export the file again")

    def _answer(self, at: int, value: Any) -> bool:
        if self.missing[at] and np.isnan(value):
            return True
        mode = int(self.modes[at])
        if mode == _MEMBER:
            return value in self.members[at]
        return bool(_MODES[mode](value, self.splits[at]))


def _members(modes: np.ndarray, values: np.ndarray | None) -> dict[int, set[float]]:
    """The sets of nodes with membership tests, separated by NaN in the file."""
    sets: list[set[float]] = [set()]
    for value in [] if values is None else values.tolist():
        if value != value:
            sets.append(set())
        else:
            sets[-1].add(value)
    asking = [k for k, mode in enumerate(modes) if mode == _MEMBER]
    return dict(zip(asking, sets))
