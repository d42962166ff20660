"""Trees of nested containers: flattening them to lists of leaves, and back."""

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
    """The structure of a tree: the type of a container, the context to rebuild it, its children."""

    type: type | None
    context: Any
    children_specs: list[TreeSpec]

    @property
    def num_leaves(self) -> int:
        if self.type is None:
            return 1
        return sum(spec.num_leaves for spec in self.children_specs)


def LeafSpec() -> TreeSpec:
    """The structure of a single leaf."""
    return TreeSpec(None, None, [])


class NodeDef(NamedTuple):
    """How to flatten a container, and to rebuild it from its context and new children."""

    type: type
    flatten_fn: Callable[[Any], tuple[Iterable[Any], Any]]
    unflatten_fn: Callable[[Iterable[Any], Any], Any]
    flatten_with_keys_fn: Callable[[Any], tuple[list[tuple[Any, Any]], Any]] | None = None


class MappingKey(NamedTuple):
    """The key of a leaf in a dict."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"


class SequenceKey(NamedTuple):
    """The index of a leaf in a list or tuple."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"


class GetAttrKey(NamedTuple):
    """The field of a leaf in a named tuple."""

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


# By the exact type of the container; `register_pytree_node` adds to it.
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
    """Registers a class as a container, so that `tree_map` and the others descend into it.

    `flatten_fn(object)` returns the children and a context, `unflatten_fn(children, context)` a new
    object. The three arguments for serialising structures have no effect: metaop does not
    serialise them. Raises `ValueError` if the class is registered already.
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
    """The leaves of a tree in order, and its structure for `tree_unflatten`."""
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
    """Rebuilds a tree from leaves and the structure that `tree_flatten` returned."""
    return _built(iter(leaves), treespec)


def _built(leaves: Any, spec: TreeSpec) -> Any:
    if spec.type is None:
        return next(leaves)
    children = [_built(leaves, child) for child in spec.children_specs]
    return SUPPORTED_NODES[spec.type].unflatten_fn(children, spec.context)


def tree_structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> TreeSpec:
    """The structure of a tree."""
    return tree_flatten(tree, is_leaf)[1]


def tree_flatten_with_path(
    tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[list[tuple[tuple[Any, ...], Any]], TreeSpec]:
    """The leaves of a tree with their key paths, and its structure for `tree_unflatten`."""
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
    """A key path as text, such as `['weights'][0]`."""
    return "".join(map(str, kp))


def tree_leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves of a tree."""
    return tree_flatten(tree, is_leaf)[0]


def tree_map(
    func: Callable[..., Any],
    tree: Any,
    *rests: Any,
    is_leaf: Callable[[Any], bool] | None = None,
) -> Any:
    """Applies `func` to each leaf, or to the corresponding leaves of several trees."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [tree_leaves(rest, is_leaf) for rest in rests]
    return tree_unflatten([func(*row) for row in zip(leaves, *others)], spec)


def tree_map_only(kind: Any, func: Callable[[Any], Any], tree: Any) -> Any:
    """`tree_map` for leaves of one type; the others are unchanged."""
    return tree_map(lambda leaf: func(leaf) if isinstance(leaf, kind) else leaf, tree)


def tree_all(pred: Callable[[Any], bool], tree: Any) -> bool:
    """Whether `pred` holds for all leaves."""
    return all(map(pred, tree_leaves(tree)))


def tree_any(pred: Callable[[Any], bool], tree: Any) -> bool:
    """Whether `pred` holds for any leaf."""
    return any(map(pred, tree_leaves(tree)))
