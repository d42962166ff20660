"""The nodes of the meta-operator graph: frozen and interned, so that equality is identity."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import Access, IndexMap
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.index_expr import IndexExpr, evaluate
from metaop.unified_graph.interning import WeakTable
from metaop.unified_graph.symbolic import SymFloat, SymInt, is_symbolic

Shape = tuple[int, ...]
Scalar = int | float | bool


class MetaOp:
    """What a node does. Subclasses are the three families and the sources."""

    name: ClassVar[str]
    # Whether element i of the result depends only on element i of the inputs.
    is_pointwise: ClassVar[bool] = False
    # Whether it has a kernel of its own, which reads its inputs from buffers.
    is_alone: ClassVar[bool] = False

    def access(self, node: Node) -> Access:
        """How the node reads its inputs and writes its result."""
        raise NotImplementedError

    def reference(self, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """The value of the node computed by NumPy, the oracle of every backend."""
        raise NotImplementedError

    def can_fail(self, operands: Sequence[Node]) -> bool:
        """Whether a run may meet a value in the operands that the operator refuses."""
        # Operands other than the data are indices.
        return len(operands) > 1 and not self.is_pointwise

    def describe(self, node: Node) -> str:
        """The operator with its attributes, as `show` prints it."""
        return self.name


class Node:
    """One meta-operator applied to inputs.

    `op` says what is computed, `inputs` are nodes, `shape` and `dtype` belong to the result. Two
    nodes with the same content are the same object, so common subexpressions never exist twice.
    Arithmetic on nodes builds elementwise nodes, with broadcasting and promotion.
    """

    __slots__ = ("op", "inputs", "shape", "dtype", "__weakref__")
    _table: ClassVar[WeakTable[Node]] = WeakTable()
    # Set by the elementwise room: builds the node of a scalar function by its name.
    apply: ClassVar[Callable[..., Node]]
    # Set by the elementwise room: converts a node to another dtype.
    cast: ClassVar[Callable[[Node, DType], Node]]
    op: MetaOp
    inputs: tuple[Node, ...]
    shape: Shape
    dtype: DType

    def __new__(cls, op: MetaOp, inputs: Iterable[Node], shape: Shape, dtype: DType) -> Node:
        key = (op, tuple(inputs), shape, dtype)
        node = cls._table.get(key)
        if node is None:
            node = object.__new__(cls)
            node.op, node.inputs, node.shape, node.dtype = key
            return cls._table.add(key, node)
        return node

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        total = 1
        for extent in self.shape:
            total *= extent
        return total

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"<{self.op.describe(self)} {self.dtype.name}{list(self.shape)}>"

    def __add__(self, other: Operand) -> Node:
        return Node.apply("add", self, other)

    def __radd__(self, other: Operand) -> Node:
        return Node.apply("add", other, self)

    def __sub__(self, other: Operand) -> Node:
        return Node.apply("sub", self, other)

    def __rsub__(self, other: Operand) -> Node:
        return Node.apply("sub", other, self)

    def __mul__(self, other: Operand) -> Node:
        return Node.apply("mul", self, other)

    def __rmul__(self, other: Operand) -> Node:
        return Node.apply("mul", other, self)

    def __truediv__(self, other: Operand) -> Node:
        return Node.apply("div", self, other)

    def __rtruediv__(self, other: Operand) -> Node:
        return Node.apply("div", other, self)

    def __pow__(self, other: Operand) -> Node:
        return Node.apply("pow", self, other)

    def __neg__(self) -> Node:
        return Node.apply("neg", self)

    def __lt__(self, other: Operand) -> Node:
        return Node.apply("lt", self, other)

    def __le__(self, other: Operand) -> Node:
        return Node.apply("le", self, other)

    def __gt__(self, other: Operand) -> Node:
        return Node.apply("gt", self, other)

    def __ge__(self, other: Operand) -> Node:
        return Node.apply("ge", self, other)

    def __and__(self, other: Operand) -> Node:
        return Node.apply("bitwise_and", self, other)

    def __or__(self, other: Operand) -> Node:
        return Node.apply("bitwise_or", self, other)

    def __invert__(self) -> Node:
        return Node.apply("bitwise_not", self)

    def equals(self, other: Operand) -> Node:
        """Elementwise equality (`==` on nodes is identity)."""
        return Node.apply("eq", self, other)

    def differs(self, other: Operand) -> Node:
        """Elementwise inequality."""
        return Node.apply("ne", self, other)


Operand = Node | Scalar


@dataclass(frozen=True)
class Input(MetaOp):
    """A value that is bound when the program runs: element `slot` of its inputs."""

    slot: int
    name: ClassVar[str] = "input"

    def access(self, node: Node) -> Access:
        return Access(node.shape, (), IndexMap.identity(node.shape))

    def describe(self, node: Node) -> str:
        return f"input {self.slot}"


@dataclass(frozen=True)
class Constant(MetaOp):
    """The same number in every element; stored as bytes so that -0.0, 0 and False differ.

    A symbolic number has no bits before sizes are known.
    """

    bits: bytes | SymFloat
    name: ClassVar[str] = "constant"

    @property
    def is_symbolic(self) -> bool:
        return not isinstance(self.bits, bytes)

    def value(self, dtype: DType) -> Any:
        """The number as a NumPy scalar, or the symbolic one."""
        if isinstance(self.bits, SymFloat):
            return self.bits
        return np.frombuffer(self.bits, dtype.numpy)[0]

    def access(self, node: Node) -> Access:
        return Access(node.shape, (), IndexMap.identity(node.shape))

    def reference(self, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        return np.full(node.shape, self.value(node.dtype), node.dtype.numpy)

    def describe(self, node: Node) -> str:
        return f"constant {self.value(node.dtype)}"


@dataclass(frozen=True)
class Index(MetaOp):
    """An index expression as a tensor: `y[i] = expr(i)`, int64. The source of every iota."""

    expr: IndexExpr
    name: ClassVar[str] = "index"

    def access(self, node: Node) -> Access:
        return Access(node.shape, (), IndexMap.identity(node.shape))

    def reference(self, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        grids = np.indices(node.shape, sparse=True) if node.shape else ()
        value = evaluate(self.expr, lambda atom: grids[atom.name])  # type: ignore[attr-defined]
        return np.broadcast_to(np.asarray(value, np.int64), node.shape).copy()

    def describe(self, node: Node) -> str:
        return f"index {self.expr}"


def input_node(slot: int, shape: Shape, dtype: DType) -> Node:
    """The node of program input number `slot`."""
    return Node(Input(slot), (), tuple(shape), dtype)


def constant(value: Any, dtype: DType, shape: Shape = ()) -> Node:
    """A tensor filled with `value`; for a symbolic one, the node that computes it."""
    if is_symbolic(value):
        return _symbolic_constant(value, dtype, tuple(shape))
    bits = np.asarray(value).astype(dtype.numpy).tobytes()
    return Node(Constant(bits), (), tuple(shape), dtype)


def _symbolic_constant(value: Any, dtype: DType, shape: Shape) -> Node:
    if isinstance(value, SymInt):
        count: Any = value
        return Node.cast(index_node(index_expr.constant(count), shape), dtype)
    return Node.cast(Node(Constant(value), (), shape, dtypes.float64), dtype)


def index_node(expr: IndexExpr, shape: Shape) -> Node:
    """The int64 tensor whose element at `i` is `expr(i)`."""
    return Node(Index(expr), (), tuple(shape), dtypes.int64)


def topological(outputs: Iterable[Node], stops: Container[Node] = ()) -> list[Node]:
    """Every node that the outputs need, each after its inputs.

    Neither the nodes in `stops` nor what only they need is visited. Iterative: any depth works.
    """
    order: list[Node] = []
    seen: set[Node] = set()
    for output in outputs:
        if output in seen or output in stops:
            continue
        seen.add(output)
        stack: list[tuple[Node, int]] = [(output, 0)]
        while stack:
            node, position = stack.pop()
            inputs = node.inputs
            while position < len(inputs):
                source = inputs[position]
                position += 1
                if source not in seen and source not in stops:
                    seen.add(source)
                    stack.append((node, position))
                    stack.append((source, 0))
                    break
            else:
                order.append(node)
    return order
