"""The composites that everything else uses: aliases, conversions, fills."""

from __future__ import annotations

from metaop.elementwise.meta_op import cast, where
from metaop.reindex.views import broadcast_to
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.composite import composite
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.node import Node, Scalar, Shape, constant


@composite
def alias(source: Node) -> Node:
    """The same value, as another node."""
    return source


@composite
def clone(source: Node) -> Node:
    """A copy with its own memory."""
    return source


@composite
def overwrite(old: Node, new: Node) -> Node:
    """`new`, which replaces `old`; the gradient of `old` is zero."""
    return where(constant(False, dtypes.bool_, new.shape), old, new)


@composite
def convert(source: Node, dtype: DType) -> Node:
    """The values converted to another dtype."""
    return cast(source, dtype)


@composite
def expand(source: Node, shape: Shape) -> Node:
    """The values repeated along dimensions of extent 1 and new leading dimensions."""
    return broadcast_to(source, shape)


@composite
def filled(value: Node, shape: Shape, dtype: DType) -> Node:
    """A tensor filled with a scalar argument."""
    return broadcast_to(cast(value, dtype), shape)


@composite(variadic=True)
def constant_fill(inputs: tuple[Node, ...], value: Scalar, shape: Shape, dtype: DType) -> Node:
    """A tensor filled with a constant that is compiled in (zeros, ones); takes no inputs."""
    return constant(value, dtype, shape)
