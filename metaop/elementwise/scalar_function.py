"""The type of one row of the function table: everything metaop knows about a scalar function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.faults import FaultKind

if TYPE_CHECKING:
    from metaop.unified_graph.node import Node

Gradient = Callable[..., "tuple[Node | None, ...]"]


def same(dtype: DType) -> DType:
    """The result has the type of the operands."""
    return dtype


def to_bool(dtype: DType) -> DType:
    """The result is a truth value."""
    return dtypes.bool_


def to_float(dtype: DType) -> DType:
    """Integers and booleans are converted to float32; floats and complex numbers stay."""
    return dtype if dtype.is_differentiable else dtypes.float32


def to_int64(dtype: DType) -> DType:
    """Booleans and integers are converted to int64; floats stay, to be refused by `accepts`."""
    return dtype if dtype.is_differentiable else dtypes.int64


class Refusal(NamedTuple):
    """Elements that a function refuses: a kernel that meets one stops the program.

    They are those of the operand at `position` for which the scalar function `test` holds, in
    operands of the kinds `among`.
    """

    kind: FaultKind
    position: int
    test: str
    among: tuple[str, ...]

    def meets(self, values: np.ndarray) -> bool:
        """Whether one of the values is refused."""
        from metaop.elementwise.functions import FUNCTIONS

        return bool(np.any(FUNCTIONS[self.test].numpy(values)))


@dataclass(frozen=True, eq=False)
class ScalarFunction:
    """One scalar function: its meaning, types, gradient and code, side by side.

    `numpy` is the reference on arrays of the operand type (16-bit floats arrive as float32 and
    are rounded once, at the end). `gradient(g, y, *x)` gives the cotangent of each operand from
    the result's cotangent `g`, the result `y` and the operands, None where there is none; its
    nodes are differentiated again for higher derivatives. `llvm(builder, *operands)` emits
    instructions on values of the compute type. `cuda` is a C++ expression with `{0}`, `{1}` … for
    operands that are variables of the compute type; its value is to be converted to the compute
    type of the result. `domain` holds one interval per operand, or one for all of them, from
    which tests draw floats; `accepts` the kinds of operands ("bool", "int", "float").
    """

    name: str
    arity: int
    numpy: Callable[..., Any]
    llvm: Callable[..., Any]
    cuda: str
    gradient: Gradient | None = None
    result: Callable[[DType], DType] = same
    accepts: tuple[str, ...] = ("bool", "int", "float")
    domain: tuple[tuple[float, float], ...] = ((-3.0, 3.0),)
    # The element type that operands are converted to before the function is applied.
    operand: Callable[[DType], DType] = same
    # How partial sums flow: "linear" in all operands together (add), "multilinear" in each alone
    # (mul), "linear in first" operand only (div), "linear in branches" (all operands but the
    # first together: where), or "" when not at all.
    degree: str = ""
    # Whether it takes many steps, each of which waits for the one before: a processor finds too
    # little to do within one vector then, and sees too few reads to go on with them by itself.
    is_serial: bool = False
    # What it refuses of its operands although their types are legal.
    refusal: Refusal | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "numpy", in_compute_precision(self.numpy))
        if len(self.domain) == 1:
            object.__setattr__(self, "domain", self.domain * self.arity)

    def __repr__(self) -> str:
        return self.name


def in_compute_precision(function: Callable[..., Any]) -> Callable[..., Any]:
    """The reference for 16-bit floats: computed in float32, rounded once at the end."""

    def wrapped(*operands: np.ndarray) -> Any:
        narrow = next((x.dtype for x in operands if _is_narrow_float(x.dtype)), None)
        if narrow is None:
            return function(*operands)
        wide = (x.astype(np.float32) if x.dtype == narrow else x for x in operands)
        result = np.asarray(function(*wide))
        return result.astype(narrow) if result.dtype == np.float32 else result

    return wrapped


def _is_narrow_float(dtype: np.dtype) -> bool:
    # NumPy knows the kind of bfloat16 only as V, void.
    return dtype.itemsize == 2 and dtype.kind in "fV"
