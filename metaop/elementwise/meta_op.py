"""The elementwise meta-operator and the functions that build its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from metaop.elementwise.scalar_function import Refusal, ScalarFunction
from metaop.errors import DTypeError, ShapeError
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.access import Access, IndexMap
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.faults import Fault
from metaop.unified_graph.node import Constant, MetaOp, Node, Operand, Shape, constant
from metaop.unified_graph.symbolic import SymFloat, SymInt

if TYPE_CHECKING:
    from metaop.elementwise.complex_numbers.forms import ComplexForm


@dataclass(frozen=True)
class Elementwise(MetaOp):
    """`y[i] = function(x1[i], …, xn[i])`; every operand has the shape of the result."""

    function: ScalarFunction
    name: ClassVar[str] = "elementwise"
    is_pointwise: ClassVar[bool] = True

    def access(self, node: Node) -> Access:
        identity = IndexMap.identity(node.shape)
        return Access(node.shape, (identity,) * len(node.inputs), identity)

    def reference(self, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        if self.function.name == "cast":
            return cast_reference(inputs[0], node.dtype)
        if self.refuses(node.inputs, inputs):
            raise Fault(self.function.refusal.kind)  # type: ignore[union-attr]
        with np.errstate(all="ignore"):
            return np.asarray(self.function.numpy(*inputs)).astype(node.dtype.numpy, copy=False)

    def can_fail(self, operands: Sequence[Node]) -> bool:
        return self.refusal(operands) is not None

    def refusal(self, operands: Sequence[Node]) -> Refusal | None:
        """What the function refuses of such operands; None where it can meet nothing of it."""
        found = self.function.refusal
        if found is None:
            return None
        operand = operands[found.position]
        if operand.dtype.kind not in found.among:
            return None
        op = operand.op
        is_fine = isinstance(op, Constant) and not found.meets(op.value(operand.dtype))
        return None if is_fine else found

    def refuses(self, operands: Sequence[Node], values: Sequence[np.ndarray]) -> bool:
        """Whether the function refuses an element of its operands, which have these values."""
        refusal = self.refusal(operands)
        return refusal is not None and refusal.meets(values[refusal.position])

    def describe(self, node: Node) -> str:
        return self.function.name


def cast_reference(array: np.ndarray, dtype: DType) -> np.ndarray:
    """C's conversion, with floats to integers saturating only as the hardware does."""
    with np.errstate(all="ignore"):
        if dtype.kind == "bool":
            return array != 0
        if array.dtype.kind == "c" and dtype.kind != "complex":
            array = array.real
        if dtype.kind == "int" and array.dtype.kind in "fV":
            # Through int64, as PyTorch's CPU kernels do for the narrow types.
            return array.astype(np.int64).astype(dtype.numpy)
        return array.astype(dtype.numpy)


def apply(name: str, *operands: Operand) -> Node:
    """The node of the scalar function `name`, with broadcasting and promotion of its operands.

    Python numbers become constants of the type that the other operands have. Raises ShapeError
    when the shapes do not broadcast and DTypeError when the function does not take the type.
    """
    from metaop.elementwise.functions import FUNCTIONS

    function = FUNCTIONS[name]
    nodes = [operand for operand in operands if isinstance(operand, Node)]
    dtype = nodes[0].dtype
    for node in nodes[1:]:
        dtype = dtypes.promote(dtype, node.dtype)
    for operand in operands:
        if isinstance(operand, (float, SymFloat)) and not dtype.is_differentiable:
            dtype = dtypes.float32
        elif isinstance(operand, complex):
            dtype = dtype.whole
        elif type(operand) in (int, SymInt) and dtype.kind == "bool":
            dtype = dtypes.int64
    dtype = function.operand(dtype)
    result = function.result(dtype)
    if dtype.kind == "complex":
        form = _complex_form(name)
        result = result.part if form.is_real else result
    elif dtype.kind not in function.accepts:
        raise DTypeError(f"{name} does not take {dtype.name}", fix="convert the operand first")
    shape = broadcast_shapes(name, *(node.shape for node in nodes))
    inputs = tuple(_prepare(operand, dtype, shape) for operand in operands)
    return Node(Elementwise(function), inputs, shape, result)


def _complex_form(name: str) -> ComplexForm:
    from metaop.elementwise.complex_numbers.forms import FORMS

    if name not in FORMS:
        raise DTypeError(
            f"{name} does not take complex numbers",
            fix="compute with view_as_real(tensor), or with tensor.real and tensor.imag",
        )
    return FORMS[name]


def where(condition: Node, left: Operand, right: Operand) -> Node:
    """`left` where `condition` holds, else `right`; the branches are promoted, not the test."""
    from metaop.elementwise.functions import FUNCTIONS

    branches = [x for x in (left, right) if isinstance(x, Node)]
    dtype = branches[0].dtype if branches else dtypes.float32
    for branch in branches[1:]:
        dtype = dtypes.promote(dtype, branch.dtype)
    shape = broadcast_shapes("where", condition.shape, *(x.shape for x in branches))
    inputs = (
        _prepare(condition, dtypes.bool_, shape),
        _prepare(left, dtype, shape),
        _prepare(right, dtype, shape),
    )
    return Node(Elementwise(FUNCTIONS["where"]), inputs, shape, dtype)


def cast(node: Node, dtype: DType) -> Node:
    """The values of `node` as `dtype`; the node itself when it has that type already."""
    from metaop.elementwise.functions import FUNCTIONS

    if node.dtype is dtype:
        return node
    return Node(Elementwise(FUNCTIONS["cast"]), (node,), node.shape, dtype)


def _prepare(operand: Operand, dtype: DType, shape: Shape) -> Node:
    from metaop.reindex.views import broadcast_to

    if not isinstance(operand, Node):
        return constant(operand, dtype, shape)
    return broadcast_to(cast(operand, dtype), shape)


def broadcast_shapes(operator: str, *shapes: Shape) -> Shape:
    """NumPy's common shape; ShapeError naming the operator when there is none."""
    first = shapes[0]
    if all(shape == first for shape in shapes[1:]):
        return first
    result: list[int] = []
    for position in range(1, max(map(len, shapes)) + 1):
        extents: list[int] = []
        for shape in shapes:
            if len(shape) >= position and shape[-position] != 1 and shape[-position] not in extents:
                extents.append(shape[-position])
        if len(extents) > 1:
            listed = " and ".join(str(list(shape)) for shape in shapes)
            raise ShapeError(
                f"{operator}: shapes {listed} do not broadcast: dimension -{position} has sizes "
                f"{' and '.join(map(str, sorted(extents)))}",
                fix="make the sizes equal, or 1, in that dimension (reshape, unsqueeze, expand)",
            )
        result.append(extents.pop() if extents else 1)
    return tuple(reversed(result))


Node.apply = staticmethod(apply)  # type: ignore[assignment]
Node.cast = staticmethod(cast)  # type: ignore[assignment]
