"""Inversion of scatter maps: the same values, and no write map left but dropping axes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from metaop.fusion import simplify
from metaop.reduce.meta_op import Reduce, reduce_with_map
from metaop.reindex import views
from metaop.reindex.inversion import invert
from metaop.reindex.meta_op import Reindex, reindex
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.access import IndexMap
from metaop.unified_graph.evaluation import evaluate
from metaop.unified_graph.node import Constant, Input, Node, input_node, topological


def random_view(rng: np.random.Generator, node: Node) -> Node:
    """One random view of a node."""
    kind = rng.integers(0, 9)
    dim = int(rng.integers(0, node.ndim)) if node.ndim else 0
    extent = node.shape[dim] if node.ndim else 1
    if kind == 0 and node.ndim > 1:
        return views.permute(node, [int(k) for k in rng.permutation(node.ndim)])
    if kind == 1:
        return views.reshape(node, random_factors(rng, node.size))
    if kind == 2 and extent > 1:
        step = int(rng.integers(1, 3))
        start = int(rng.integers(0, extent))
        return views.slice_dimension(node, dim, start, (extent - start - 1) // step + 1, step)
    if kind == 3 and node.ndim:
        widths = rng.integers(0, 3, (2, node.ndim))
        return views.pad(node, [int(w) for w in widths[0]], [int(w) for w in widths[1]])
    if kind == 4 and node.size < 100:
        return views.broadcast_to(node, (2, *node.shape))
    if kind == 5 and node.ndim:
        return views.flip(node, [dim])
    if kind == 6 and node.ndim:
        return views.roll(node, int(rng.integers(0, 5)), dim)
    if kind == 7 and node.ndim and node.size < 200:
        kernel, dilation = int(rng.integers(1, 4)), int(rng.integers(1, 3))
        padding = int(rng.integers(0, 2))
        if node.shape[-1] + 2 * padding > dilation * (kernel - 1):
            stride = int(rng.integers(1, 4))
            return views.windows(node, [kernel], [stride], [padding], [dilation])
    if kind == 8 and node.ndim > 1:
        return views.select(node, dim, int(rng.integers(0, extent)))
    return node


def random_factors(rng: np.random.Generator, size: int) -> tuple[int, ...]:
    """A random shape with `size` elements."""
    shape = []
    for divisor in (2, 2, 3, 3, 2):
        if size % divisor == 0 and rng.random() < 0.6:
            shape.append(divisor)
            size //= divisor
    shape.append(size)
    return tuple(int(n) for n in rng.permutation(shape))


def is_plain(node: Node) -> bool:
    """Whether a Reduce only drops axes: every target index is its own axis, in order."""
    assert isinstance(node.op, Reduce)
    index_map = node.op.map
    used = [expr for expr in index_map.indices if not expr.is_constant]
    axes = list(IndexMap.axes(index_map.domain))
    places = [axes.index(expr) for expr in used if expr in axes]
    return not index_map.is_guarded and len(places) == len(used) and places == sorted(set(places))


def check(reduced: Node, source: Node, value: np.ndarray) -> Node:
    """Checks the inverse of a Reduce of `source` against the reference evaluation."""
    inverse = invert(reduced)
    assert inverse is not None
    assert (inverse.shape, inverse.dtype) == (reduced.shape, reduced.dtype)
    for node in topological([inverse]):
        assert isinstance(node.op, (Input, Reindex, Reduce, Constant))
        assert not isinstance(node.op, Reduce) or is_plain(node)
    expected, actual = evaluate([reduced, inverse], [value])
    np.testing.assert_allclose(actual, expected, rtol=1e-12)
    return inverse


def random_reduction(rng: np.random.Generator, reducer: str) -> tuple[Node, Node]:
    """A Reduce by the map of random views, and its source; views that cancel are drawn again."""
    while True:
        shape = tuple(int(n) for n in rng.integers(1, 7, rng.integers(1, 4)))
        node = base = input_node(0, shape, dtypes.float64)
        for _ in range(rng.integers(1, 6)):
            following = random_view(rng, node)
            if isinstance(following.op, (Reindex, Input)):
                node = following
        if isinstance(node.op, Reindex) and node.size:
            source = input_node(0, node.shape, dtypes.float64)
            reduced = reduce_with_map(reducer, source, node.op.map, base.shape)
            if isinstance(reduced.op, Reduce):
                return reduced, source


@pytest.mark.parametrize("seed", range(300))
@pytest.mark.parametrize("reducer", ["add", "max"])
def test_random_views(seed: int, reducer: str) -> None:
    rng = np.random.default_rng(seed)
    reduced, source = random_reduction(rng, reducer)
    check(reduced, source, rng.standard_normal(source.shape))


def transposed(view: Node, base: Node) -> tuple[Node, Node]:
    """The Reduce that writes where `view` reads, and its source."""
    source = input_node(0, view.shape, dtypes.float64)
    assert isinstance(view.op, Reindex)
    reduced = reduce_with_map("add", source, view.op.map, base.shape)
    assert isinstance(reduced.op, Reduce)
    return reduced, source


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("kernel", [1, 2, 3])
def test_windows(stride: int, padding: int, dilation: int, kernel: int) -> None:
    base = input_node(0, (2, 3, 9, 8), dtypes.float64)
    pair = [(n, n) for n in (kernel, stride, padding, dilation)]
    reduced, source = transposed(views.windows(base, *pair), base)
    inverse = check(reduced, source, np.random.default_rng(0).standard_normal(source.shape))
    reductions = [node for node in topological([inverse]) if isinstance(node.op, Reduce)]
    if stride >= dilation * (kernel - 1) + 1:
        assert not reductions
    else:
        (reduction,) = reductions
        # Only the offsets inside the window stay to be summed over (or the few positions), of
        # those only every stride-th where the stride divides the work.
        positions = source.shape[2:4]
        most = math.prod(min(kernel, count) for count in positions)
        summed = reduction.inputs[0].size // reduction.size
        assert summed <= most
        if dilation == 1 and 1 < stride <= kernel < min(positions):
            assert summed == (-(-kernel // stride)) ** 2


@pytest.mark.parametrize("width", [1, 2, 5])
@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize("shift", [0, 3])
@pytest.mark.parametrize(("extent", "parts"), [(9, 4), (7, 3), (5, 8), (2, 9)])
def test_windows_that_begin_at_fractions(
    extent: int, parts: int, width: int, step: int, shift: int
) -> None:
    """Adaptive pooling and resizing: only the few windows that hold an element are looked at."""
    domain = (2, parts, width)
    row, part, offset = IndexMap.axes(domain)
    place = (part * extent + shift) // parts * step + offset
    length = (extent * parts + shift) // parts * step + width
    base = input_node(0, (2, length), dtypes.float64)
    reduced, source = transposed(reindex(base, IndexMap(domain, [row, place])), base)
    inverse = check(reduced, source, np.random.default_rng(0).standard_normal(source.shape))
    few = min(-(-parts * -(-width // step) // extent), parts)
    reductions = [node for node in topological([inverse]) if isinstance(node.op, Reduce)]
    assert all(node.inputs[0].size <= few * node.size for node in reductions)
    assert few == 1 or reductions


@pytest.mark.parametrize(
    "view",
    [
        lambda x: views.permute(x, [2, 0, 1]),
        lambda x: views.reshape(x, (12, 10)),
        lambda x: views.reshape(views.permute(x, [2, 1, 0]), (8, 15)),
        lambda x: views.slice_dimension(x, 1, 1, 3),
        lambda x: views.slice_dimension(x, 2, 1, 2, 2),
        lambda x: views.pad(x, (1, 0, 2), (0, 3, 1)),
        lambda x: views.select(x, 0, 2),
        lambda x: views.flip(x, [0, 2]),
        lambda x: views.roll(x, 2, 1),
    ],
)
def test_one_to_one_views_need_no_reduction(view: object) -> None:
    base = input_node(0, (6, 5, 4), dtypes.float64)
    reduced, source = transposed(view(base), base)  # type: ignore[operator]
    inverse = check(reduced, source, np.random.default_rng(0).standard_normal(source.shape))
    assert isinstance(inverse.op, Reindex)


def test_lookups_stay_scatters() -> None:
    base = input_node(0, (5, 4), dtypes.float64)
    index = input_node(1, (3,), dtypes.int64)
    rows = views.take(base, 0, index)
    assert isinstance(rows.op, Reindex)
    source = input_node(0, rows.shape, dtypes.float64)
    reduced = reduce_with_map("add", source, rows.op.map, base.shape, (index,))
    assert invert(reduced) is None


def test_simplification_looks_at_every_node_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    visits = 0

    def counting(node: Node) -> Node:
        nonlocal visits
        visits += 1
        return original(node)

    original = simplify._open_product
    monkeypatch.setattr(simplify, "_open_product", counting)

    def chain(length: int) -> int:
        """The visits to a chain of scatters, each read by the next."""
        nonlocal visits
        x = input_node(0, (6,), dtypes.float32)
        for _ in range(length):
            (i,), (j,) = IndexMap.axes((6,)), IndexMap.axes((12,))
            spread = reduce_with_map("add", x * x, IndexMap((6,), (i * 2,)), (12,))
            x = reduce_with_map("add", spread, IndexMap((12,), (j // 2,)), (6,))
        visits = 0
        simplify.simplify([x])
        return visits

    assert chain(40) == 4 * chain(10)


def test_windows_as_large_as_the_image_sum_over_their_offsets() -> None:
    """Results and offsets of a window are as many: the offsets stay, and need no computing."""
    image = input_node(0, (2, 4, 3, 3), dtypes.float32)
    shown = views.windows(image, (3, 3), (1, 1), (1, 1), (1, 1))
    assert isinstance(shown.op, Reindex)
    source = input_node(1, shown.shape, dtypes.float32)
    scattered = reduce_with_map("add", source, shown.op.map, image.shape)
    inverted = invert(scattered)
    assert inverted is not None
    gathered = inverted.inputs[0].op
    assert isinstance(gathered, Reindex)
    assert gathered.map.indices[-2:] == gathered.map.axes(gathered.map.domain)[-2:]
