"""Nested containers: what PyTorch's tools say, metaop's say too."""

from __future__ import annotations

from collections import OrderedDict, deque, namedtuple
from typing import Any

import pytest

from metaop.utils import _pytree as ours

theirs = pytest.importorskip("torch.utils._pytree")

Point = namedtuple("Point", "x y")


class Pair(dict):
    """A container of its own."""


for tree in (ours, theirs):
    tree.register_pytree_node(
        Pair,
        lambda pair: (list(pair.values()), list(pair)),
        lambda values, keys: Pair(zip(keys, values)),
        serialized_type_name="tests.Pair",
        flatten_with_keys_fn=tree._dict_flatten_with_keys,
    )

TREES: list[Any] = [
    5,
    [1, (2, 3), {"a": 4, "b": [5, None]}],
    OrderedDict(z=1, a=(2,)),
    Point(1, [2, Point(3, 4)]),
    deque([1, 2]),
    Pair(left=1, right=[2, {"x": 3}]),
    [],
]


@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_trees_are_taken_apart_and_made_again(tree: Any) -> None:
    leaves, spec = ours.tree_flatten(tree)
    assert leaves == theirs.tree_flatten(tree)[0]
    assert spec.num_leaves == len(leaves)
    again = ours.tree_unflatten(leaves, spec)
    assert again == tree
    assert type(again) is type(tree)
    assert ours.tree_structure(tree) == spec


@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_places_of_leaves_are_pytorch_s(tree: Any) -> None:
    found = [(ours.keystr(path), leaf) for path, leaf in ours.tree_flatten_with_path(tree)[0]]
    expected = theirs.tree_flatten_with_path(tree)[0]
    assert found == [(theirs.keystr(path), leaf) for path, leaf in expected]


def test_a_class_is_registered_once() -> None:
    for tree in (ours, theirs):
        with pytest.raises(ValueError, match="already registered"):
            tree.register_pytree_node(Pair, lambda _: ([], None), lambda _, __: Pair())


def test_containers_are_looked_up_by_their_type() -> None:
    for tree in (ours, theirs):
        for value, is_leaf in ((Pair(), False), ({}, False), (Point(1, 2), False), (set(), True)):
            assert (tree._get_node_type(value) not in tree.SUPPORTED_NODES) == is_leaf
        children, context = tree.SUPPORTED_NODES[dict].flatten_fn({"a": 1})
        assert (list(children), context) == ([1], ["a"])
        assert tree.SUPPORTED_NODES[dict].unflatten_fn([2], ["a"]) == {"a": 2}
