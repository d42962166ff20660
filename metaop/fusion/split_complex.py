"""The pass that replaces every complex value by two real ones, so that later passes see only these.

Complex memory holds pairs: a program reads and writes complex numbers (…) as real ones (…, 2).
Operators that only move numbers or treat both parts alike work on pairs, all others on parts.
"""

from __future__ import annotations

from collections.abc import Sequence

from metaop.elementwise.complex_numbers.forms import FORMS
from metaop.elementwise.complex_numbers.parts import Parts, truth
from metaop.elementwise.meta_op import Elementwise, cast, where
from metaop.errors import UnsupportedError
from metaop.fusion.unroll import unroll
from metaop.reduce.halving import dropped_axes, halving_product
from metaop.reduce.meta_op import Reduce, reduce_with_map
from metaop.reduce.replacement import Replacement
from metaop.reduce.triangle import product_in_steps
from metaop.reindex.meta_op import Reindex, reindex
from metaop.reindex.reinterpret import Reinterpret
from metaop.reindex.views import broadcast_to, concatenate, select, unsqueeze
from metaop.unified_graph.access import NEVER, IndexMap
from metaop.unified_graph.loop import Loop
from metaop.unified_graph.node import Constant, Input, Node, constant, input_node, topological
from metaop.unified_graph.reshard import Reshard
from metaop.unified_graph.rewrite import rebuild


class Split:
    """A complex value as real nodes: pairs along a last dimension, two parts, or both."""

    def __init__(self, pairs: Node | None = None, parts: Parts | None = None) -> None:
        self._pairs = pairs
        self._parts = parts

    @property
    def has_pairs(self) -> bool:
        """Whether one node already has both parts."""
        return self._pairs is not None

    @property
    def pairs(self) -> Node:
        """The parts along a last dimension of 2."""
        if self._pairs is None:
            assert self._parts is not None
            listed = [unsqueeze(part, part.ndim) for part in self._parts]
            self._pairs = concatenate(listed, listed[0].ndim - 1)
        return self._pairs

    @property
    def parts(self) -> Parts:
        """The real and the imaginary part."""
        if self._parts is None:
            assert self._pairs is not None
            last = self._pairs.ndim - 1
            self._parts = Parts(select(self._pairs, last, 0), select(self._pairs, last, 1))
        return self._parts


def split_complex(inputs: Sequence[Node], outputs: Sequence[Node]) -> tuple[list[Node], list[Node]]:
    """Inputs and outputs of a program without complex values, in the same memory.

    Raises UnsupportedError for operators that work neither on pairs nor on parts.
    """
    order = topological(outputs)
    if not any(node.dtype.is_complex for node in (*inputs, *order)):
        return list(inputs), list(outputs)
    if any(isinstance(node.op, Loop) and _has_complex(node) for node in order):
        outputs = unroll(outputs)
    outputs = rebuild(outputs, transform=_product_of_halves)
    done: dict[Node, Node | Split] = {}
    for node in topological(outputs):
        done[node] = _split_node(node, [done[source] for source in node.inputs])
    return [_memory_of(_input(x)) for x in inputs], [_memory_of(done[x]) for x in outputs]


def _has_complex(node: Node) -> bool:
    return any(x.dtype.is_complex for x in (node, *node.inputs))


def _memory_of(value: Node | Split) -> Node:
    return value.pairs if isinstance(value, Split) else value


def _input(node: Node) -> Node | Split:
    if not node.dtype.is_complex:
        return node
    assert isinstance(node.op, Input)
    return Split(input_node(node.op.slot, (*node.shape, 2), node.dtype.part))


def _product_of_halves(node: Node) -> Node:
    """A product of complex numbers as a tree of products of two."""
    op = node.op
    if not (isinstance(op, Reduce) and op.reducer.name == "mul" and node.dtype.is_complex):
        return node
    steps = product_in_steps(node)
    if steps is not node:
        return steps
    dims = dropped_axes(op.map, node)
    if dims is None:
        raise UnsupportedError("complex numbers are not multiplied into chosen places")
    return halving_product(node.inputs[0], dims, node)


def _split_node(node: Node, sources: list[Node | Split]) -> Node | Split:
    op = node.op
    real = [source for source in sources if isinstance(source, Node)]
    if isinstance(op, Input):
        return _input(node)
    if isinstance(op, Reinterpret):
        (source,) = sources
        return source.pairs if isinstance(source, Split) else Split(source)
    if isinstance(op, Constant) and node.dtype.is_complex:
        value = op.value(node.dtype)
        numbers = (value.real, value.imag)
        return Split(parts=Parts(*(constant(x, node.dtype.part, node.shape) for x in numbers)))
    if isinstance(op, Elementwise):
        return _split_elementwise(op, node, sources)
    if len(real) == len(sources):
        return node if tuple(real) == node.inputs else Node(op, real, node.shape, node.dtype)
    first = sources[0]
    if isinstance(op, Reindex) and isinstance(first, Split):
        return _split_reindex(op, first, real)
    if isinstance(op, Reduce) and isinstance(first, Split) and op.reducer.name == "add":
        return _split_sum(op, node, first, real)
    if isinstance(op, (Replacement, Reshard)):
        whole = [_memory_of(source) for source in sources]
        return Split(Node(op, whole, whole[0].shape, whole[0].dtype))
    raise UnsupportedError(
        f"{op.describe(node)} does not take complex numbers",
        fix="compute with view_as_real(tensor), or with tensor.real and tensor.imag",
    )


def _split_elementwise(op: Elementwise, node: Node, sources: list[Node | Split]) -> Node | Split:
    name = op.function.name
    if name == "cast":
        return _split_cast(node, sources[0])
    if name == "where" and node.dtype.is_complex:
        condition, left, right = sources
        assert isinstance(condition, Node) and isinstance(left, Split) and isinstance(right, Split)
        if left.has_pairs and right.has_pairs:
            shown = broadcast_to(unsqueeze(condition, condition.ndim), left.pairs.shape)
            return Split(where(shown, left.pairs, right.pairs))
        chosen = (where(condition, x, y) for x, y in zip(left.parts, right.parts))
        return Split(parts=Parts(*chosen))
    whole = [source for source in sources if isinstance(source, Split)]
    if not whole:
        real = [source for source in sources if isinstance(source, Node)]
        return node if tuple(real) == node.inputs else Node(op, real, node.shape, node.dtype)
    form = FORMS[name]
    if form.is_linear and all(source.has_pairs for source in whole):
        pairs = [source.pairs for source in whole]
        return Split(Node(op, pairs, pairs[0].shape, pairs[0].dtype))
    found = form.formula(*(source.parts for source in whole))
    return Split(parts=found) if isinstance(found, Parts) else found


def _split_cast(node: Node, source: Node | Split) -> Node | Split:
    if isinstance(source, Node):
        if not node.dtype.is_complex:
            return Node(node.op, (source,), node.shape, node.dtype)
        real = cast(source, node.dtype.part)
        return Split(parts=Parts(real, constant(0, real.dtype, real.shape)))
    if node.dtype.is_complex:
        if source.has_pairs:
            return Split(cast(source.pairs, node.dtype.part))
        return Split(parts=Parts(*(cast(part, node.dtype.part) for part in source.parts)))
    if node.dtype.kind == "bool":
        return truth(source.parts)
    return cast(source.parts.real, node.dtype)


def _split_reindex(op: Reindex, source: Split, operands: Sequence[Node]) -> Split:
    if source.has_pairs and op.fill == 0:
        return Split(reindex(source.pairs, _of_pairs(op.map), 0, operands))
    fills = (op.fill.real, op.fill.imag)
    found = (reindex(part, op.map, fill, operands) for part, fill in zip(source.parts, fills))
    return Split(parts=Parts(*found))


def _split_sum(op: Reduce, node: Node, source: Split, operands: Sequence[Node]) -> Split:
    if source.has_pairs:
        index_map = _of_pairs(op.map)
        return Split(reduce_with_map("add", source.pairs, index_map, (*node.shape, 2), operands))
    found = (reduce_with_map("add", part, op.map, node.shape, operands) for part in source.parts)
    return Split(parts=Parts(*found))


def _of_pairs(index_map: IndexMap) -> IndexMap:
    """A map of numbers as one of pairs, whose last axis stays."""
    domain = (*index_map.domain, 2)
    indices = (*index_map.indices, IndexMap.axes(domain)[-1])
    guards = (*index_map.guards, NEVER) if index_map.never else index_map.guards
    return IndexMap(domain, indices, guards)
