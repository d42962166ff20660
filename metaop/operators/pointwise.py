"""One composite per row of the function table, with broadcasting and PyTorch's promotion."""

from __future__ import annotations

from metaop.elementwise import meta_op
from metaop.elementwise.functions import FUNCTIONS
from metaop.elementwise.meta_op import cast
from metaop.unified_graph.composite import Composite
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.node import Node, Scalar


def _composite_of(name: str) -> Composite:
    def expansion(
        *operands: Node | None,
        dtype: DType | None = None,
        number: Scalar | None = None,
    ) -> Node:
        prepared = [
            number if x is None else x if dtype is None else cast(x, dtype) for x in operands
        ]
        if name == "where":
            return meta_op.where(*operands)  # type: ignore[arg-type]
        return meta_op.apply(name, *prepared)  # type: ignore[arg-type]

    arity = FUNCTIONS[name].arity

    def positional(*arguments: object) -> Node:
        dtype, number = (*arguments[arity:], None, None)[:2]
        return expansion(*arguments[:arity], dtype=dtype, number=number)  # type: ignore

    return Composite(name, positional)


# Called as `record(POINTWISE[name], operands, (dtype, number))`: operands are converted to
# `dtype` first when it is given, and an absent operand is the constant `number`.
POINTWISE: dict[str, Composite] = {
    name: _composite_of(name) for name in FUNCTIONS if name != "cast"
}
