"""How values of several ranks are reduced: PyTorch's `ReduceOp`."""

from __future__ import annotations

from typing import Any

from metaop.errors import ArgumentError
from metaop.tensor.core import Tensor


class Premultiplied(str):
    """A sum of values that each rank multiplies by its own factor first: call it with the factor.

    The text does not contain the factor, because the ranks may choose different ones.
    """

    factor: Any = None

    def __call__(self, factor: Any) -> Premultiplied:
        """The reduction with a factor: a number, or a tensor of one element."""
        chosen = Premultiplied(self)
        chosen.factor = factor.item() if isinstance(factor, Tensor) else factor
        return chosen


class ReduceOp:
    """The elementwise operation of a reduction over the ranks, whose shapes are equal.

    BAND, BOR and BXOR combine the bits of integers and booleans in host memory. For booleans, SUM
    is "any" and PRODUCT is "all". PREMUL_SUM(factor) multiplies the floats of each rank by its
    factor, then adds.

    >>> x = metaop.ones(2)
    >>> metaop.distributed.all_reduce(x, metaop.distributed.ReduceOp.MAX)
    >>> x
    tensor([1., 1.])
    >>> metaop.distributed.all_reduce(x, metaop.distributed.ReduceOp.PREMUL_SUM(0.5))
    >>> x
    tensor([0.5000, 0.5000])
    """

    SUM = "sum"
    AVG = "avg"
    PRODUCT = "prod"
    MAX = "max"
    MIN = "min"
    BAND = "band"
    BOR = "bor"
    BXOR = "bxor"
    PREMUL_SUM = Premultiplied("premul_sum")
    # PyTorch's name for the type of these constants, used in annotations.
    RedOpType = str


_NAMES = {
    **{"sum": "add", "avg": "add", "premul_sum": "add", "prod": "mul", "max": "max", "min": "min"},
    **{"band": "band", "bor": "bor", "bxor": "bxor"},
}
BITWISE = ("band", "bor", "bxor")
# Booleans travel as bytes of 0 and 1: a sum says whether any is true, a product whether all are.
_NAMES_OF_BOOLEANS = {**_NAMES, "sum": "max", "prod": "min"}


def supports_complex(reduceOp: str) -> bool:
    """Whether complex values can be reduced: they have no order, and no bits to combine.

    >>> ReduceOp = metaop.distributed.ReduceOp
    >>> supports_complex = metaop.distributed.supports_complex
    >>> supports_complex(ReduceOp.SUM), supports_complex(ReduceOp.MAX)
    (True, False)
    """
    return reduceOp in ("sum", "avg", "premul_sum")


def operation(op: str, tensor: Tensor) -> str:
    """The name of the reducer for a reduction of such a tensor; a mean uses the sum."""
    if op not in _NAMES:
        raise ArgumentError(f"unknown reduction {op!r}", fix=f"use one of {', '.join(_NAMES)}")
    dtype, fix = tensor.dtype, ""
    if dtype.kind == "complex" and not supports_complex(op):
        fix = "reduce the real and the imaginary part"
    elif op in BITWISE and dtype.kind == "float":
        fix = "use a tensor of integers or booleans"
    elif op in BITWISE and tensor.device.type == "cuda":
        fix = "NCCL combines no bits; reduce tensor.cpu()"
    elif op == "avg" and dtype.kind == "bool":
        fix = "average tensor.float()"
    elif op == "premul_sum" and dtype.kind not in ("float", "complex"):
        fix = "use a tensor of floats"
    elif op == "premul_sum" and getattr(op, "factor", None) is None:
        fix = "name the factor: ReduceOp.PREMUL_SUM(0.5)"
    if fix:
        raise ArgumentError(f"{op} of {dtype.name} on {tensor.device.type}", fix=fix)
    return (_NAMES_OF_BOOLEANS if dtype.kind == "bool" else _NAMES)[op]
