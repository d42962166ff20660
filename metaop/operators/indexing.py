"""Reading and writing by index tensors: reindexes and reductions whose maps look indices up."""

from __future__ import annotations

from collections.abc import Sequence

from metaop.elementwise.meta_op import broadcast_shapes, cast, where
from metaop.errors import ArgumentError, DimensionError, ShapeError
from metaop.reduce.meta_op import reduce_with_map
from metaop.reindex import views
from metaop.reindex.meta_op import reindex
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import IndexMap
from metaop.unified_graph.composite import composite
from metaop.unified_graph.index_atoms import Atom, Axis
from metaop.unified_graph.index_expr import IndexExpr
from metaop.unified_graph.node import Node, Shape, constant, index_node

# PyTorch's names of reductions, with the reducers.
REDUCTIONS = {"sum": "add", "add": "add", "prod": "mul", "multiply": "mul", "mean": "add",
              "amax": "amax", "amin": "amin"}  # fmt: skip
_COMBINE = {"add": "add", "mul": "mul", "amax": "maximum", "amin": "minimum"}


class Target:
    """Where elements are written: a map into a tensor of `shape` with its index operands."""

    def __init__(self, index_map: IndexMap, shape: Shape, operands: Sequence[Node]) -> None:
        self.map = index_map
        self.shape = shape
        self.operands = tuple(operands)

    def reduce(self, reducer: str, values: Node) -> Node:
        """The values, combined where several are written; the identity where none is."""
        return reduce_with_map(reducer, values, self.map, self.shape, self.operands)

    def touched(self) -> Node:
        """Whether any value is written to each element."""
        return self.reduce("or", constant(True, dtypes.bool_, self.map.domain))

    def last(self, values: Node, base: Node) -> Node:
        """`base` with the values written one after another, so the last one remains.

        For a row whose elements are written contiguously, the last one is found once.
        """
        along = self._side_by_side()
        apart = [axis for axis in range(values.ndim) if axis not in along]
        others = [dim for dim in range(len(self.shape)) if dim not in along.values()]
        domain = tuple(values.shape[axis] for axis in apart)
        moved = [Axis(axis, values.shape[axis]) for axis in apart]
        renumbered: dict[Atom, IndexExpr] = dict(zip(moved, IndexMap.axes(domain)))
        places = [
            self.map.indices[dim].substitute(lambda atom: renumbered.get(atom)) for dim in others
        ]
        shape = tuple(self.shape[dim] for dim in others)
        order = index_node(index_expr.linear_offset(IndexMap.axes(domain), domain), domain)
        latest = reduce_with_map("max", order, IndexMap(domain, places), shape, self.operands)
        inside = latest >= 0
        rows = views.permute(values, [*apart, *along])
        rows = views.reshape(rows, (order.size, *rows.shape[len(apart) :]))
        chosen = views.take(rows, 0, where(inside, latest, 0))
        inside = views.reshape(inside, (*shape, *(1 for _ in along)))
        written = [*others, *along.values()]
        back = [written.index(dim) for dim in range(len(self.shape))]
        return where(views.permute(inside, back), views.permute(chosen, back), base)

    def _side_by_side(self) -> dict[int, int]:
        """The axes of the values that each run along one whole dimension and no other."""
        found = {}
        for axis, extent in enumerate(self.map.domain):
            atom = Axis(axis, extent)
            dims = [dim for dim, index in enumerate(self.map.indices) if atom in index.atoms()]
            if len(dims) == 1 and self.map.indices[dims[0]] is index_expr.of(atom):
                if self.shape[dims[0]] == extent:
                    found[axis] = dims[0]
        return found


def wrapped(index: Node, extent: int) -> Node:
    """Indices, of which negative ones count from the end."""
    return where(index < 0, index + extent, index)


def _advanced_map(
    source: Node, indices: Sequence[Node], dims: tuple[int, ...]
) -> tuple[IndexMap, tuple[Node, ...]]:
    """The map of `source[…, indices, …]`, with index tensors at `dims`.

    The common shape of the indices replaces adjacent dimensions, and comes first otherwise.
    """
    try:
        common = broadcast_shapes("index", *(index.shape for index in indices))
    except ShapeError:
        listed = " and ".join(str(list(index.shape)) for index in indices)
        raise DimensionError(
            f"shape mismatch: indexing tensors could not be broadcast together: {listed}",
            fix="give all index tensors one shape, or index by one at a time: x[rows][:, columns]",
        ) from None
    adjacent = dims == tuple(range(dims[0], dims[0] + len(dims)))
    position = dims[0] if adjacent else 0
    others = [k for k in range(source.ndim) if k not in dims]
    extents = [source.shape[k] for k in others]
    domain = (*extents[:position], *common, *extents[position:])
    axes = IndexMap.axes(domain)
    inside = axes[position : position + len(common)]
    outside = axes[:position] + axes[position + len(common) :]
    places: list[IndexExpr] = [index_expr.constant(0)] * source.ndim
    operands = []
    for k, axis in zip(others, outside):
        places[k] = axis
    for number, (dim, index) in enumerate(zip(dims, indices), 1):
        own = inside[len(common) - index.ndim :]
        read = [
            index_expr.constant(0) if extent == 1 else axis
            for axis, extent in zip(own, index.shape)
        ]
        places[dim] = index_expr.lookup(number, read, source.shape[dim])
        operands.append(wrapped(index, source.shape[dim]))
    return IndexMap(domain, places), tuple(operands)


@composite(variadic=True)
def index_tensors(inputs: tuple[Node, ...], dims: tuple[int, ...]) -> Node:
    """The first input, indexed by the others at dimensions `dims`."""
    source, *indices = inputs
    index_map, operands = _advanced_map(source, indices, dims)
    return reindex(source, index_map, 0, operands)


@composite(variadic=True)
def index_put(inputs: tuple[Node, ...], dims: tuple[int, ...], accumulate: bool) -> Node:
    """The first input with the second written or added at the indices in the other inputs."""
    source, values, *indices = inputs
    index_map, operands = _advanced_map(source, indices, dims)
    values = cast(values, source.dtype)
    while values.ndim > len(index_map.domain) and values.shape[0] == 1:
        values = views.reshape(values, values.shape[1:])
    if broadcast_shapes("index_put", values.shape, index_map.domain) != index_map.domain:
        raise ShapeError(
            f"shape mismatch: value tensor of shape {list(values.shape)} cannot be broadcast to "
            f"indexing result of shape {list(index_map.domain)}"
        )
    target = Target(index_map, source.shape, operands)
    if values.size == 1 and not accumulate:
        return where(target.touched(), views.reshape(values, ()), source)
    values = views.broadcast_to(values, index_map.domain)
    return source + target.reduce("add", values) if accumulate else target.last(values, source)


@composite
def gather(source: Node, index: Node, dim: int) -> Node:
    """`y[i, j] = source[i, index[i, j]]` for dimension 1."""
    return views.gather(source, dim, index)


@composite
def take(source: Node, index: Node, dim: int) -> Node:
    """Slices of dimension `dim` at an index tensor, whose dimensions replace it."""
    return views.take(source, dim, index)


def _scatter_target(source: Node, index: Node, dim: int) -> Target:
    places = list(IndexMap.axes(index.shape))
    places[dim] = index_expr.lookup(1, IndexMap.axes(index.shape), source.shape[dim])
    return Target(IndexMap(index.shape, places), source.shape, (index,))


def _rows_target(source: Node, index: Node, dim: int) -> Target:
    domain = (*source.shape[:dim], index.size, *source.shape[dim + 1 :])
    places = list(IndexMap.axes(domain))
    index = views.reshape(index, (index.size,))
    places[dim] = index_expr.lookup(1, [places[dim]], source.shape[dim])
    return Target(IndexMap(domain, places), source.shape, (index,))


def _combined(
    target: Target, source: Node, values: Node, reduce: str | None, include_self: bool
) -> Node:
    if reduce is None:
        return target.last(values, source)
    if reduce not in REDUCTIONS:
        raise ArgumentError(f"reduce argument must be one of {sorted(REDUCTIONS)}, got {reduce!r}")
    reducer = REDUCTIONS[reduce]
    result = target.reduce(reducer, values)
    if include_self:
        result = Node.apply(_COMBINE[reducer], source, result)
    if reduce == "mean":
        count = target.reduce("add", constant(1, source.dtype, values.shape))
        if include_self:
            count = count + 1
        count = where(count.equals(0), 1, count)
        integer = source.dtype.kind == "int"
        result = Node.apply("floor_divide", result, count) if integer else result / count
    return result if include_self else where(target.touched(), result, source)


@composite
def scatter(
    source: Node, index: Node, values: Node, dim: int, reduce: str | None, include_self: bool
) -> Node:
    """`y[i, index[i, j]] = values[i, j]` for dimension 1, over a copy of `source`.

    Without `reduce`, the last of several values for one element remains. A 0-d `values` is a
    number.
    """
    target = _scatter_target(source, index, dim)
    values = cast(values, source.dtype)
    if values.ndim == 0 and source.ndim:
        if reduce is None:
            return where(target.touched(), values, source)
        values = views.broadcast_to(values, index.shape)
    elif values.shape != index.shape:
        for k, extent in enumerate(index.shape):
            values = views.slice_dimension(values, k, 0, extent)
    return _combined(target, source, values, reduce, include_self)


@composite
def scatter_rows(
    source: Node, index: Node, values: Node, dim: int, reduce: str | None, include_self: bool
) -> Node:
    """Slice `k` of `values` along `dim` written to slice `index[k]` of a copy of `source`."""
    target = _rows_target(source, index, dim)
    values = cast(values, source.dtype)
    if values.ndim == 0 and reduce is None:
        return where(target.touched(), values, source)
    if values.shape != target.map.domain:
        values = views.reshape(values, target.map.domain)
    return _combined(target, source, values, reduce, include_self)


@composite
def select_by_mask(mask: Node, value: Node, source: Node) -> Node:
    """`value` where the mask holds, else `source`, in the type of `source`."""
    return where(mask, cast(value, source.dtype), source)
