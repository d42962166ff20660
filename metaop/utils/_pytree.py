"""Nested containers as flat lists of what they hold, and back."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

__all__ = [
    "TreeSpec",
    "tree_all",
    "tree_any",
    "tree_flatten",
    "tree_leaves",
    "tree_map",
    "tree_map_only",
    "tree_unflatten",
]


class TreeSpec(NamedTuple):
    """The containers of a nest: the type of one, what it needs to be made again, its children."""

    type: type | None
    context: Any
    children_specs: list[TreeSpec]

    @property
    def num_leaves(self) -> int:
        if self.type is None:
            return 1
        return sum(spec.num_leaves for spec in self.children_specs)


def _opened(tree: Any) -> tuple[list[Any], Any] | None:
    """The children of a container and its context; None for a leaf."""
    if isinstance(tree, (dict, OrderedDict)) and type(tree) in (dict, OrderedDict):
        return list(tree.values()), list(tree)
    if type(tree) in (list, tuple, deque):
        return list(tree), None
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return list(tree), None
    return None


def tree_flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list, TreeSpec]:
    """The leaves of nested lists, tuples and dicts in order, and what `tree_unflatten` needs."""
    opened = None if is_leaf is not None and is_leaf(tree) else _opened(tree)
    if opened is None:
        return [tree], TreeSpec(None, None, [])
    leaves: list[Any] = []
    specs = []
    for child in opened[0]:
        found, spec = tree_flatten(child, is_leaf)
        leaves += found
        specs.append(spec)
    return leaves, TreeSpec(type(tree), opened[1], specs)


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """The nest that `tree_flatten` took apart, with other leaves."""
    return _built(iter(leaves), treespec)


def _built(leaves: Any, spec: TreeSpec) -> Any:
    if spec.type is None:
        return next(leaves)
    children = [_built(leaves, child) for child in spec.children_specs]
    if spec.context is not None:
        return spec.type(zip(spec.context, children))
    return getattr(spec.type, "_make", spec.type)(children)


def tree_leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves of a nest."""
    return tree_flatten(tree, is_leaf)[0]


def tree_map(
    func: Callable[..., Any],
    tree: Any,
    *rests: Any,
    is_leaf: Callable[[Any], bool] | None = None,
) -> Any:
    """The nest with `func` applied to each leaf (of several nests of one form)."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [tree_leaves(rest, is_leaf) for rest in rests]
    return tree_unflatten([func(*row) for row in zip(leaves, *others)], spec)


def tree_map_only(kind: Any, func: Callable[[Any], Any], tree: Any) -> Any:
    """`tree_map` for leaves of a type; the others stay."""
    return tree_map(lambda leaf: func(leaf) if isinstance(leaf, kind) else leaf, tree)


def tree_all(pred: Callable[[Any], bool], tree: Any) -> bool:
    """Whether `pred` holds for all leaves."""
    return all(map(pred, tree_leaves(tree)))


def tree_any(pred: Callable[[Any], bool], tree: Any) -> bool:
    """Whether `pred` holds for any leaf."""
    return any(map(pred, tree_leaves(tree)))
