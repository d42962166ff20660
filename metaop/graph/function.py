"""Built-in message and reduce functions, named as in DGL.

Messages: `copy_u(u, out)`, `copy_e(e, out)` and `LEFT_OPERATOR_RIGHT(left, right, out)` with `u`
(source), `v` (destination) or `e` (edge) on each side and add, sub, mul, div or dot between:
`u_mul_e("h", "w", "m")`. Reductions: `sum`, `mean`, `max`, `min`, `prod` `(message, out)`.
"""

from __future__ import annotations

from collections.abc import Callable

from metaop.graph.built_in import BinaryMessage, CopyMessage, Reduction


def copy_u(u: str, out: str) -> CopyMessage:
    """The feature `u` of the source as message `out`."""
    return CopyMessage("u", u, out)


def copy_v(v: str, out: str) -> CopyMessage:
    """The feature `v` of the destination as message `out`."""
    return CopyMessage("v", v, out)


def copy_e(e: str, out: str) -> CopyMessage:
    """The feature `e` of the edge as message `out`."""
    return CopyMessage("e", e, out)


copy_src, copy_edge = copy_u, copy_e


def _binary(operator: str, left: str, right: str) -> Callable[[str, str, str], BinaryMessage]:
    def message(lhs_field: str, rhs_field: str, out: str) -> BinaryMessage:
        return BinaryMessage(operator, left, right, lhs_field, rhs_field, out)

    message.__name__ = f"{left}_{operator}_{right}"
    return message


def _reduction(name: str, reducer: str) -> Callable[[str, str], Reduction]:
    def reduction(msg: str, out: str) -> Reduction:
        return Reduction(reducer, msg, out)

    reduction.__name__ = name
    return reduction


u_add_v = _binary("add", "u", "v")
u_add_e = _binary("add", "u", "e")
v_add_u = _binary("add", "v", "u")
v_add_e = _binary("add", "v", "e")
e_add_u = _binary("add", "e", "u")
e_add_v = _binary("add", "e", "v")

u_sub_v = _binary("sub", "u", "v")
u_sub_e = _binary("sub", "u", "e")
v_sub_u = _binary("sub", "v", "u")
v_sub_e = _binary("sub", "v", "e")
e_sub_u = _binary("sub", "e", "u")
e_sub_v = _binary("sub", "e", "v")

u_mul_v = _binary("mul", "u", "v")
u_mul_e = _binary("mul", "u", "e")
v_mul_u = _binary("mul", "v", "u")
v_mul_e = _binary("mul", "v", "e")
e_mul_u = _binary("mul", "e", "u")
e_mul_v = _binary("mul", "e", "v")

u_div_v = _binary("div", "u", "v")
u_div_e = _binary("div", "u", "e")
v_div_u = _binary("div", "v", "u")
v_div_e = _binary("div", "v", "e")
e_div_u = _binary("div", "e", "u")
e_div_v = _binary("div", "e", "v")

u_dot_v = _binary("dot", "u", "v")
u_dot_e = _binary("dot", "u", "e")
v_dot_u = _binary("dot", "v", "u")
v_dot_e = _binary("dot", "v", "e")
e_dot_u = _binary("dot", "e", "u")
e_dot_v = _binary("dot", "e", "v")

sum = _reduction("sum", "add")
mean = _reduction("mean", "mean")
prod = _reduction("prod", "mul")
max = _reduction("max", "amax")
min = _reduction("min", "amin")
