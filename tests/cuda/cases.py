"""Graphs whose kernels show everything that the CUDA printer can say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from metaop.codegen.cuda.schedules import CUDA
from metaop.codegen.lowering import Machine
from metaop.elementwise import apply, cast
from metaop.elementwise.functions import FUNCTIONS
from metaop.elementwise.meta_op import where
from metaop.operators import convolution, counting, distinct, places
from metaop.reduce import reduce_axes, reduce_with_map
from metaop.reindex import views
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.access import IndexMap
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.faults import DIVISION_BY_ZERO
from metaop.unified_graph.node import Index, Input, Node, input_node, topological
from tests.codegen.lowering import test_lowering as shared
from tests.codegen.lowering.test_scans import GRAPHS as SCANS
from tests.codegen.lowering.test_scans import scans

Graph = Callable[[], list[Node]]
F32 = dtypes.float32
X = input_node(0, (7, 8), F32)


def tensor(slot: int, *shape: int, dtype: DType = F32) -> Node:
    return input_node(slot, shape, dtype)


def every_function(dtype: DType, refusing: bool) -> list[Node]:
    """All rows of the table that take the type, on positive numbers below one.

    Those that may refuse their operands are apart: all in one kernel need too many registers.
    """
    x, y = tensor(0, 50, dtype=dtype), tensor(1, 50, dtype=dtype)
    results = []
    for row in FUNCTIONS.values():
        if row.name in ("where", "cast") or row.operand(dtype).kind not in row.accepts:
            continue
        if (row.refusal is not None) != refusing:
            continue
        if row.name == "acosh":
            results.append(apply("acosh", x + 1))
        elif row.refusal is not None and row.refusal.kind is DIVISION_BY_ZERO:
            results.append(apply(row.name, x, y + 1))
        else:
            results.append(apply(row.name, *(x, y)[: row.arity]))
    return results


def conversions(source: DType) -> list[Node]:
    x = tensor(0, 40, dtype=source)
    return [cast(x, target) for target in dtypes.ALL if target is not source]


def reductions(dtype: DType, reducers: tuple[str, ...]) -> list[Node]:
    x = tensor(0, 5, 70, dtype=dtype)
    return [reduce_axes(name, x, [dim]) for name in reducers for dim in (0, 1)]


def scatter(reducer: str, dtype: DType) -> list[Node]:
    """Rows combined into the rows that an index names, of which some are named twice."""
    index = tensor(1, 9, dtype=dtypes.int64)
    taken = views.take(tensor(2, 5, 6, dtype=dtype), 0, index)
    write = taken.op.map  # type: ignore[union-attr]
    source = tensor(0, 9, 6, dtype=dtype)
    return [reduce_with_map(reducer, source, write, (5, 6), (index,))]


def cross_entropy() -> list[Node]:
    logits, target = tensor(0, 12, 33), tensor(1, 12, dtype=dtypes.int64)
    largest = reduce_axes("max", logits, [1], True)
    total = reduce_axes("add", apply("exp", logits - largest), [1], True)
    log_softmax = logits - largest - apply("log", total)
    classes = views.broadcast_to(views.reshape(target, (12, 1)), (12, 33))
    picked = where(apply("eq", classes, counter(33)), log_softmax, 0.0)
    return [reduce_axes("add", picked, [0, 1]) * (-1.0 / 12)]


def framed(dtype: DType) -> list[Node]:
    """Rows with another first and last one: the first result may take the memory of the second."""
    x = tensor(0, 10, 20, dtype=dtype)
    inside = views.slice_dimension(x, 0, 1, 8)
    image = views.pad(inside, (1, 0), (1, 0), 1)
    return [image * 2, image + 1]


def ordered(rows: int, length: int) -> Node:
    """The order of rows with equal keys, the least and the greatest of which are extreme."""
    return shared.orders(tensor(0, rows, length) * 3.0, dtypes.int32)


def counter(extent: int) -> Node:
    return Node(Index(IndexMap.axes((extent,))[0]), (), (extent,), dtypes.int64)


def matmul(rows: int, depth: int, columns: int, dtype: DType = F32) -> list[Node]:
    left, right = tensor(0, rows, depth, dtype=dtype), tensor(1, depth, columns, dtype=dtype)
    bias = tensor(2, columns, dtype=dtype)
    return [apply("relu", shared.matmul(left, right) + views.broadcast_to(bias, (rows, columns)))]


def batched_matmul(dtype: DType) -> list[Node]:
    left, right = tensor(0, 3, 41, 50, dtype=dtype), tensor(1, 3, 50, 35, dtype=dtype)
    shape = (3, 41, 35, 50)
    a = views.broadcast_to(views.reshape(left, (3, 41, 1, 50)), shape)
    b = views.reshape(views.transpose(right, 1, 2), (3, 1, 35, 50))
    return [reduce_axes("add", a * views.broadcast_to(b, shape), [3])]


def matmul_gradient(rows: int, depth: int, columns: int, dtype: DType) -> list[Node]:
    """Products whose factors run along the depth, and across it."""
    left, right = tensor(0, rows, depth, dtype=dtype), tensor(1, depth, columns, dtype=dtype)
    return shared.gradients(shared.matmul, left, right)


def of_two_factors(dtype: DType) -> list[Node]:
    """The factors are computed while they are copied."""
    left, right = tensor(0, 40, 24, dtype=dtype), tensor(1, 24, 33, dtype=dtype)
    return [shared.matmul(apply("relu", left), views.pad(right, (1, 0), (-1, 0), 0.0))]


def narrow_convolution(dtype: DType) -> list[Node]:
    return [shared.conv(tensor(0, 2, 16, 12, 9, dtype=dtype), tensor(1, 65, 16, 3, 3, dtype=dtype))]


def narrow_convolution_gradient(dtype: DType) -> list[Node]:
    image, weight = tensor(0, 2, 8, 9, 10, dtype=dtype), tensor(1, 5, 8, 3, 3, dtype=dtype)
    return shared.gradients(shared.conv, image, weight)


# Products by tensor cores, by the dtype of their factors.
NARROW: dict[str, Callable[[DType], list[Node]]] = {
    "matmul": lambda dtype: matmul(40, 33, 50, dtype),
    "large matmul": lambda dtype: matmul(150, 77, 131, dtype),
    "large matmul in whole chunks": lambda dtype: matmul(136, 72, 264, dtype),
    "matmul gradient": lambda dtype: matmul_gradient(33, 17, 65, dtype),
    "large matmul gradient": lambda dtype: matmul_gradient(136, 160, 72, dtype),
    "batched matmul": batched_matmul,
    "matmul of what is computed": of_two_factors,
    "large convolution": narrow_convolution,
    "convolution gradient": narrow_convolution_gradient,
    "deep matmul": lambda dtype: matmul(20, 3000, 24, dtype),
    "few columns": lambda dtype: matmul(300, 41, 5, dtype),
    "few rows": lambda dtype: matmul(3, 40, 700, dtype),
}

CASES: dict[str, Graph] = {
    **shared.GRAPHS,
    **{
        f"{name} {dtype.name}": lambda graph=graph, dtype=dtype: graph(dtype)
        for name, graph in NARROW.items()
        for dtype in (dtypes.bfloat16, dtypes.float16)
    },
    **{f"functions {t.name}": lambda t=t: every_function(t, False) for t in dtypes.ALL},
    **{
        f"functions that refuse {t.name}": lambda t=t: every_function(t, True)
        for t in dtypes.ALL
        if t.kind != "bool"
    },
    **{f"conversions {t.name}": lambda t=t: conversions(t) for t in dtypes.ALL},
    **{
        f"reductions {t.name}": lambda t=t: reductions(t, ("add", "mul", "max", "min"))
        for t in dtypes.ALL
        if t.kind != "bool"
    },
    "reductions bool": lambda: reductions(dtypes.bool_, ("and", "or", "max", "min")),
    **{f"scatter add {t.name}": lambda t=t: scatter("add", t) for t in dtypes.ALL},
    **{f"scatter {name}": lambda name=name: scatter(name, F32) for name in ("mul", "max", "min")},
    "scatter max int8": lambda: scatter("max", dtypes.int8),
    "scatter min bfloat16": lambda: scatter("min", dtypes.bfloat16),
    "places": lambda: list(places.counted(tensor(0, 50, 60))),
    "runs": lambda: list(distinct.runs(tensor(0, 300, dtype=dtypes.int32), True)),
    "bins": lambda: [counting.histc(tensor(0, 5000), None, None, 9)],
    "cross entropy": cross_entropy,
    "wide rows": lambda: [shared.softmax(tensor(0, 3, 2000), 1)],
    "short rows": lambda: [shared.softmax(tensor(0, 300, 5), 1)],
    "two reduced axes": lambda: [reduce_axes("add", tensor(0, 4, 3, 30, 40), [0, 2, 3])],
    "products of rows": lambda: [shared.matmul(X, views.transpose(X, 0, 1))],
    "parts": lambda: [apply("exp", tensor(0, 1 << 16)) + 1.0, tensor(0, 1 << 16) * 2.0],
    "parts of mixed types": lambda: [
        cast(tensor(0, 1 << 16, dtype=dtypes.bfloat16), dtypes.float64),
        cast(tensor(0, 1 << 16, dtype=dtypes.bfloat16), dtypes.int8),
    ],
    "parts of many rows": lambda: [
        tensor(0, 330, 400) * views.broadcast_to(tensor(1, 330, 1), (330, 400))
    ],
    "parts of rows": lambda: [shared.softmax(tensor(0, 5, 24, dtype=dtypes.float16), 1)],
    "transposed": lambda: [views.transpose(tensor(0, 70, 100), 0, 1) * tensor(1, 100, 70) + 1.0],
    "channels last": lambda: [views.permute(tensor(0, 2, 12, 9, 20), (0, 2, 3, 1))],
    "channels first bfloat16": lambda: [
        apply("exp", views.permute(tensor(0, 2, 9, 20, 33, dtype=dtypes.bfloat16), (0, 3, 1, 2)))
    ],
    "transposed bytes": lambda: [
        views.transpose(tensor(0, 3, 40, 65, dtype=dtypes.uint8), 1, 2)
        + views.permute(tensor(1, 40, 65, 3, dtype=dtypes.uint8), (2, 1, 0))
    ],
    "two transposed float64": lambda: [
        views.transpose(tensor(0, 33, 65, dtype=dtypes.float64), 0, 1)
        * views.transpose(tensor(1, 33, 65, dtype=dtypes.float64), 0, 1)
    ],
    "transposed beside itself": lambda: [
        tensor(0, 50, 50) + views.transpose(tensor(0, 50, 50), 0, 1),
        tensor(0, 50, 50) * 2.0,
    ],
    "transposed and padded": lambda: [
        views.pad(views.transpose(tensor(0, 40, 37), 0, 1), (1, 2), (3, 0), 7.0)
    ],
    "transposed and gathered": lambda: [
        views.transpose(views.take(tensor(0, 6, 30), 0, tensor(1, 40, dtype=dtypes.int64)), 0, 1)
        + views.transpose(tensor(2, 40, 30), 0, 1)
    ],
    **{f"framed {t.name}": lambda t=t: framed(t) for t in (dtypes.uint8, dtypes.int64)},
    "framed bfloat16": lambda: framed(dtypes.bfloat16),
    **{f"scan {name}": lambda graph=graph: [graph()] for name, graph in SCANS.items()},
    "scan of many rows": lambda: [scans(tensor(0, 4100, 36), 1)],
    "scan of many rows, backwards": lambda: [scans(tensor(0, 4100, 37), 1, backwards=True)],
    # Five parts of 2048, of which the last one is not full.
    "scan of a long row": lambda: [scans(tensor(0, 9001), 0) * 2.0],
    "scan of long columns": lambda: [scans(tensor(0, 3000, 9), 0, backwards=True)],
    "scan of columns of matrices": lambda: [scans(tensor(0, 3, 20, 50), 1)],
    "large scan of wide rows": lambda: [scans(tensor(0, 3, 5000), 1)],
    "large scan of wide rows bfloat16": lambda: [
        scans(tensor(0, 2, 4100, dtype=dtypes.bfloat16), 1, "max")
    ],
    "scan of bytes": lambda: [scans(tensor(0, 3, 300, dtype=dtypes.int8), 1, "max")],
    **{f"order of {n} elements": lambda n=n: [ordered(4, n)] for n in (1, 2, 64, 65, 700)},
    "order of long rows": lambda: [ordered(2, 9000)],
    "many tasks": lambda: [apply("exp", tensor(0, 50000)) + 1.0],
    "large matmul": lambda: matmul(150, 21, 260),
    "large matmul of parts": lambda: matmul(140, 72, 132),
    "large product of rows": lambda: [
        shared.matmul(tensor(0, 70, 84), views.transpose(tensor(1, 132, 84), 0, 1))
    ],
    "large product of columns": lambda: [
        shared.matmul(views.transpose(tensor(0, 84, 72), 0, 1), tensor(1, 84, 132))
    ],
    "large convolution of points": lambda: [
        convolution.convolution(
            tensor(0, 2, 24, 6, 10),
            tensor(1, 68, 24, 1, 1),
            *(None, (1, 1), (0, 0), (0, 0), (1, 1), 1),
        )
    ],
    "large convolution": lambda: [shared.conv(tensor(0, 2, 20, 16, 17), tensor(1, 65, 20, 3, 3))],
    "large matmul float64": lambda: matmul(70, 33, 130, dtypes.float64),
    "matmul float64": lambda: matmul(40, 33, 50, dtypes.float64),
    "deep matmul": lambda: matmul(20, 3000, 24),
    "deep matmul float64": lambda: matmul(20, 3001, 24, dtypes.float64),
    "deep convolution gradient": lambda: shared.gradients(
        shared.conv, tensor(0, 6, 3, 28, 17), tensor(1, 10, 3, 3, 3)
    ),
    "long columns": lambda: [reduce_axes("add", tensor(0, 5000, 30), [0]) * 2.0],
    "long columns bfloat16": lambda: [
        reduce_axes("add", tensor(0, 5000, 30, dtype=dtypes.bfloat16), [0])
    ],
    "long rows": lambda: [reduce_axes("max", tensor(0, 3, 71000), [1])],
    "a few channels": lambda: [shared.batch_norm(tensor(0, 4, 2, 150, 151))],
    "few rows": lambda: matmul(3, 40, 700),
    "few columns": lambda: matmul(700, 41, 13),
    "large, few rows": lambda: matmul(13, 40, 1000),
    "large, few columns float64": lambda: matmul(1000, 41, 7, dtypes.float64),
    "channels of many images": lambda: [shared.batch_norm(tensor(0, 37, 3, 9, 41))],
    "channels of many large images": lambda: [shared.batch_norm(tensor(0, 21, 3, 20, 80))],
    "channels of small images": lambda: [shared.batch_norm(tensor(0, 16, 30, 6, 6))],
    "gradient of windows by channels": lambda: shared.gradients(
        lambda x, w: convolution.convolution(x, w, None, (1, 1), (1, 1), (1, 1), (1, 1), 6),
        tensor(0, 5, 6, 7, 6),
        tensor(1, 6, 1, 3, 3),
    ),
    "gradients of few channels": lambda: shared.gradients(
        shared.conv, tensor(0, 2, 3, 25, 24), tensor(1, 6, 3, 3, 3)
    ),
    "matmul of bytes": lambda: [
        shared.matmul(
            cast(tensor(0, 40, 33, dtype=dtypes.uint8), dtypes.int32),
            cast(tensor(1, 33, 50, dtype=dtypes.int8), dtypes.int32),
        )
    ],
    "convolution gradient": lambda: shared.gradients(shared.conv, shared.IMAGE, shared.WEIGHT),
}

# On a machine of one multiprocessor, small graphs take the tiles of large ones.
_ONE = replace(CUDA, threads=1)
# 16-bit results are compared with what the same values give in float32.
WIDER: dict[str, Graph] = {
    "long columns bfloat16": lambda: [reduce_axes("add", tensor(0, 5000, 30), [0])],
    **{
        f"{name} {dtype.name}": lambda graph=graph: graph(F32)
        for name, graph in NARROW.items()
        for dtype in (dtypes.bfloat16, dtypes.float16)
    },
}


def machine_of(name: str) -> Machine:
    """The machine that a case is scheduled for."""
    return _ONE if name.startswith("large") else CUDA


def inputs_of(outputs: list[Node]) -> list[Node]:
    """The inputs of a graph by slot."""
    found = [node for node in topological(outputs) if isinstance(node.op, Input)]
    return sorted(found, key=lambda node: node.op.slot)


def random_values(nodes: list[Node], name: str) -> list[np.ndarray]:
    """An array for every input; integers are legal indices of all cases."""
    generator = np.random.default_rng(len(name))
    arrays = []
    for node in nodes:
        if node.dtype.kind == "bool":
            values = generator.integers(0, 2, node.shape)
        elif node.dtype.kind == "int":
            values = generator.integers(0, 5, node.shape)
        elif name.startswith("functions"):
            values = generator.uniform(0.05, 0.9, node.shape)
        else:
            values = generator.standard_normal(node.shape)
        arrays.append(values.astype(node.dtype.numpy))
    return arrays
