"""The elementwise family: `y[i] = f(x1[i], …, xn[i])` for one row of a table of functions."""

from metaop.elementwise.meta_op import Elementwise, apply, cast

__all__ = ["Elementwise", "apply", "cast"]
