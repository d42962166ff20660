"""Values that an operator refuses, which are only known when a program runs."""

from __future__ import annotations

from typing import NamedTuple

from metaop.errors import ArgumentError, DimensionError, DivisionError, MetaopError, ShapeError


class FaultKind(NamedTuple):
    """What can be wrong with a value, and the error that users get.

    A kernel reports the `number`. In the message, `{value}` is replaced by the value and `{bound}`
    by the smallest number that is too large.
    """

    number: int
    error: type[MetaopError]
    message: str
    fix: str


INDEX_OUT_OF_RANGE = FaultKind(
    0,
    DimensionError,
    "index {value} is out of range for a dimension of size {bound}",
    "check the indices: they count from 0 and must be below the dimension's size",
)
DIVISION_BY_ZERO = FaultKind(
    1,
    DivisionError,
    "ZeroDivisionError: an integer tensor is divided by 0",
    "divide by other numbers, or convert the tensor with .float(); metaop.where does not help, "
    "because it computes both of its branches: replace the zeros of the divisor",
)
_OUTSIDE_UNIT = "all elements of {} should be between 0 and 1"
INPUT_OUTSIDE_UNIT = FaultKind(
    2,
    ArgumentError,
    _OUTSIDE_UNIT.format("input"),
    "pass probabilities, such as the values of sigmoid; use binary_cross_entropy_with_logits for "
    "values before it; NaN is not a probability",
)
TARGET_OUTSIDE_UNIT = FaultKind(
    3, ArgumentError, _OUTSIDE_UNIT.format("target"), "pass labels 0 and 1, or probabilities"
)
QUANTILE_OUTSIDE_UNIT = FaultKind(
    4, ArgumentError, "quantile() q values must be in the range [0, 1]", "scale q"
)
NO_WEIGHT = FaultKind(
    5,
    ArgumentError,
    "probability tensor contains either `inf`, `nan` or element < 0",
    "pass weights that are finite and not negative",
)
_NO_DISTRIBUTION = "invalid multinomial distribution ({})"
NO_TOTAL_WEIGHT = FaultKind(
    6,
    ArgumentError,
    _NO_DISTRIBUTION.format("sum of probabilities <= 0"),
    "give at least one category of each row a weight",
)
TOO_FEW_WEIGHTS = FaultKind(
    7,
    ShapeError,
    _NO_DISTRIBUTION.format("with replacement=False, not enough non-negative category to sample"),
    "draw fewer samples, or with replacement",
)
TOO_FEW_VALUES = FaultKind(
    8,
    ShapeError,
    "masked_scatter: expected self and source to have the same number of elements, but source has "
    "fewer than the mask chooses",
    "pass a source with an element for each place where the mask holds",
)
NO_RANGE = FaultKind(
    9, ArgumentError, "histc: range of [min, max] is not finite, or max < min", "pass limits"
)
_KINDS = {
    kind.number: kind
    for kind in (
        *(INDEX_OUT_OF_RANGE, DIVISION_BY_ZERO, INPUT_OUTSIDE_UNIT, TARGET_OUTSIDE_UNIT),
        *(QUANTILE_OUTSIDE_UNIT, NO_WEIGHT, NO_TOTAL_WEIGHT, TOO_FEW_WEIGHTS),
        *(TOO_FEW_VALUES, NO_RANGE),
    )
}


class Fault(Exception):
    """A program met a value that an operator refuses; the executor adds operator and line."""

    def __init__(self, kind: FaultKind, message: str = "") -> None:
        super().__init__(message or kind.message)
        self.kind = kind


def reported_fault(number: int, value: int, bound: int) -> Fault:
    """The fault that a kernel has written to its error slot."""
    kind = _KINDS[number]
    return Fault(kind, kind.message.format(value=value, bound=bound))
