"""PyTorch's types and functions of symbolic sizes, for programs that ask for them.

Sizes are plain numbers to programs here, also where the compiler makes a program for any size. So
no value is of these types, and the functions are Python's own.
"""

from __future__ import annotations

import math
from typing import Any

__all__ = [
    *("SymBool", "SymFloat", "SymInt", "sym_float", "sym_int", "sym_ite", "sym_max", "sym_min"),
    *("sym_not", "sym_sqrt", "sym_sum"),
]


class SymBool:
    """The type of symbolic truth values, which say something of sizes; there are none.

    >>> isinstance(True, metaop.SymBool)
    False
    """


class SymFloat:
    """The type of symbolic quotients of sizes, of which there are none.

    >>> isinstance(1.5, metaop.SymFloat)
    False
    """


class SymInt:
    """The type of symbolic sizes, of which there are none.

    >>> isinstance(metaop.ones(2, 3).shape[0], (int, metaop.SymInt))
    True
    """


def sym_float(a: Any) -> float:
    """A size or another number as a float.

    >>> metaop.sym_float(2)
    2.0
    """
    return float(a)


def sym_int(a: Any) -> int:
    """A number without its fraction.

    >>> metaop.sym_int(2.7)
    2
    """
    return int(a)


def sym_ite(b: bool, t: Any, f: Any) -> Any:
    """The size `t` if `b` is true, `f` otherwise.

    >>> metaop.sym_ite(2 > 1, 3, 4)
    3
    """
    return t if b else f


def sym_max(a: Any, b: Any) -> Any:
    """The larger of two sizes, as a float if either is one.

    >>> metaop.sym_max(2, 1.0)
    2.0
    """
    larger = max(a, b)
    return float(larger) if isinstance(a, float) or isinstance(b, float) else larger


def sym_min(a: Any, b: Any) -> Any:
    """The smaller of two sizes, as a float if either is one.

    >>> metaop.sym_min(2, 3.0)
    2.0
    """
    smaller = min(a, b)
    return float(smaller) if isinstance(a, float) or isinstance(b, float) else smaller


def sym_not(a: Any) -> bool:
    """Whether a value is false.

    >>> metaop.sym_not(2 > 1)
    False
    """
    return not a


def sym_sqrt(a: Any) -> float:
    """The square root of a size.

    >>> metaop.sym_sqrt(9)
    3.0
    """
    return math.sqrt(a)


def sym_sum(args: Any) -> Any:
    """The sum of several sizes.

    >>> metaop.sym_sum([1, 2, 3])
    6
    """
    return sum(args)
