"""Nested containers as flat lists of what they hold, and back."""

from __future__ import annotations

from collections import OrderedDict, deque, namedtuple
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

__all__ = [
    "GetAttrKey",
    "LeafSpec",
    "MappingKey",
    "NodeDef",
    "PyTree",
    "SequenceKey",
    "TreeSpec",
    "keystr",
    "register_pytree_node",
    "tree_all",
    "tree_any",
    "tree_flatten",
    "tree_flatten_with_path",
    "tree_leaves",
    "tree_map",
    "tree_map_only",
    "tree_structure",
    "tree_unflatten",
]

PyTree = Any


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


def LeafSpec() -> TreeSpec:
    """The specification of a single leaf."""
    return TreeSpec(None, None, [])


class NodeDef(NamedTuple):
    """How a container is taken apart, and made of its context and new children."""

    type: type
    flatten_fn: Callable[[Any], tuple[Iterable[Any], Any]]
    unflatten_fn: Callable[[Iterable[Any], Any], Any]
    flatten_with_keys_fn: Callable[[Any], tuple[list[tuple[Any, Any]], Any]] | None = None


class MappingKey(NamedTuple):
    """The place of a leaf in a dict."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"


class SequenceKey(NamedTuple):
    """The place of a leaf in a list or tuple."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"


class GetAttrKey(NamedTuple):
    """The place of a leaf in a named tuple."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"


def _items(tree: Any) -> tuple[list[Any], Any]:
    return list(tree.values()), list(tree)


def _dict_flatten_with_keys(tree: Any) -> tuple[list[tuple[Any, Any]], Any]:
    children, keys = _items(tree)
    return [(MappingKey(key), child) for key, child in zip(keys, children)], keys


def _sequence(kind: type) -> NodeDef:
    def flatten_with_keys(tree: Any) -> tuple[list[tuple[Any, Any]], Any]:
        return [(SequenceKey(index), child) for index, child in enumerate(tree)], None

    return NodeDef(
        kind, lambda tree: (list(tree), None), lambda children, _: kind(children), flatten_with_keys
    )


def _mapping(kind: Any) -> NodeDef:
    return NodeDef(
        kind, _items, lambda children, keys: kind(zip(keys, children)), _dict_flatten_with_keys
    )


# Containers by their exact type; `register_pytree_node` adds to them.
SUPPORTED_NODES: dict[type, NodeDef] = {
    **{kind: _sequence(kind) for kind in (list, tuple, deque)},
    **{kind: _mapping(kind) for kind in (dict, OrderedDict)},
    namedtuple: NodeDef(  # type: ignore[dict-item]
        namedtuple,  # type: ignore[arg-type]
        lambda tree: (list(tree), type(tree)),
        lambda children, kind: kind._make(children),
        lambda tree: (list(zip(map(GetAttrKey, tree._fields), tree)), type(tree)),
    ),
}


def register_pytree_node(
    cls: type,
    flatten_fn: Callable[[Any], tuple[Iterable[Any], Any]],
    unflatten_fn: Callable[[Iterable[Any], Any], Any],
    *,
    serialized_type_name: str | None = None,
    to_dumpable_context: Callable[[Any], Any] | None = None,
    from_dumpable_context: Callable[[Any], Any] | None = None,
    flatten_with_keys_fn: Callable[[Any], tuple[list[tuple[Any, Any]], Any]] | None = None,
) -> None:
    """Makes objects of a class containers: what they hold is reached by `tree_map` and its kin.

    `flatten_fn(object)` gives the children and a context, `unflatten_fn(children, context)` a new
    object. The three arguments for writing specifications to files are kept by nobody: there are no
    such files here. Raises `ValueError` for a class that is a container already.
    """
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)


def _get_node_type(tree: Any) -> Any:
    kind = type(tree)
    if kind not in SUPPORTED_NODES and isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return namedtuple
    return kind


def _is_leaf(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    found = is_leaf is not None and is_leaf(tree)
    return found or _get_node_type(tree) not in SUPPORTED_NODES


def tree_flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list, TreeSpec]:
    """The leaves of nested containers in order, and what `tree_unflatten` needs."""
    if _is_leaf(tree, is_leaf):
        return [tree], LeafSpec()
    kind = _get_node_type(tree)
    children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    leaves: list[Any] = []
    specs = []
    for child in children:
        found, spec = tree_flatten(child, is_leaf)
        leaves += found
        specs.append(spec)
    return leaves, TreeSpec(kind, context, specs)


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """The nest that `tree_flatten` took apart, with other leaves."""
    return _built(iter(leaves), treespec)


def _built(leaves: Any, spec: TreeSpec) -> Any:
    if spec.type is None:
        return next(leaves)
    children = [_built(leaves, child) for child in spec.children_specs]
    return SUPPORTED_NODES[spec.type].unflatten_fn(children, spec.context)


def tree_structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> TreeSpec:
    """The containers of a nest."""
    return tree_flatten(tree, is_leaf)[1]


def tree_flatten_with_path(
    tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[list[tuple[tuple[Any, ...], Any]], TreeSpec]:
    """The leaves of a nest with their places, and what `tree_unflatten` needs."""
    return list(_placed(tree, (), is_leaf)), tree_structure(tree, is_leaf)


def _placed(
    tree: Any, path: tuple[Any, ...], is_leaf: Callable[[Any], bool] | None
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if _is_leaf(tree, is_leaf):
        yield path, tree
        return
    node = SUPPORTED_NODES[_get_node_type(tree)]
    if node.flatten_with_keys_fn is None:
        raise ValueError(f"Did not find a flatten_with_keys_fn for type: {node.type}")
    for key, child in node.flatten_with_keys_fn(tree)[0]:
        yield from _placed(child, (*path, key), is_leaf)


def keystr(kp: Iterable[Any]) -> str:
    """The place of a leaf as a text, such as `['weights'][0]`."""
    return "".join(map(str, kp))


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
