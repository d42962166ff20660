"""CUDA sources of the device functions that rows of the table call by name.

They need no headers, only the mathematical functions that every CUDA compiler knows. Helpers may
call helpers that stand before them. Integers wrap, and dividing one by zero gives zero.
"""

from __future__ import annotations

import math

from metaop.elementwise.reference import DIGAMMA_SERIES, TRIGAMMA_SERIES
from metaop.elementwise.tables.random_bits import GROUPS, PARITY, ROTATIONS


def _of_floats(signature: str, body: str) -> str:
    """A function for float and one for double, with REAL for the type in signature and body."""
    text = f"static __device__ {signature}\n{body}"
    return text.replace("REAL", "float") + text.replace("REAL", "double")


def _rounding(name: str) -> str:
    return (
        f"template <typename T> static __device__ T metaop_{name}(T x) {{ return x; }}\n"
        + _of_floats(f"REAL metaop_{name}(REAL x)", f"{{ return {_ROUNDING[name]}(x); }}\n")
    )


_ROUNDING = {"floor": "floor", "ceil": "ceil", "round": "rint", "trunc": "trunc"}

# Quotients go through the magnitude of -1, whose quotient of the least integer overflows.
_TRUNC_DIVIDE = """\
template <typename T> static __device__ T metaop_trunc_divide(T x, T y)
{
    if (y == 0) return 0;
    return y == (T)-1 && (T)-1 < (T)0 ? (T)(0 - (unsigned long long)x) : (T)(x / y);
}
""" + _of_floats("REAL metaop_trunc_divide(REAL x, REAL y)", "{ return trunc(x / y); }\n")

_FMOD = """\
template <typename T> static __device__ T metaop_fmod(T x, T y)
{
    return y == 0 || (y == (T)-1 && (T)-1 < (T)0) ? 0 : x % y;
}
""" + _of_floats("REAL metaop_fmod(REAL x, REAL y)", "{ return fmod(x, y); }\n")

_REMAINDER = """\
template <typename T> static __device__ T metaop_remainder(T x, T y)
{
    const T rest = metaop_fmod(x, y);
    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}
"""

_FLOOR_DIVIDE = """\
template <typename T> static __device__ T metaop_floor_divide(T x, T y)
{
    const T quotient = metaop_trunc_divide(x, y), rest = metaop_fmod(x, y);
    return rest != 0 && (rest < 0) != (y < 0) ? quotient - 1 : quotient;
}
""" + _of_floats(
    "REAL metaop_floor_divide(REAL x, REAL y)",
    """\
{
    if (y == 0) return x / y;
    const REAL rest = fmod(x, y);
    REAL quotient = (x - rest) / y;
    if (rest != 0 && (rest < 0) != (y < 0)) quotient -= 1;
    if (quotient == 0) return copysign((REAL)0, x / y);
    // The division may have rounded the quotient of two integers away from one.
    const REAL whole = floor(quotient);
    return quotient - whole > (REAL)0.5 ? whole + 1 : whole;
}
""",
)

_POWER = """\
template <typename T> static __device__ T metaop_power(T x, T y)
{
    if (y < 0) return x == 1 ? 1 : (T)-1 < (T)0 && x == (T)-1 ? (y % 2 == 0 ? 1 : -1) : 0;
    unsigned long long result = 1, factor = x;
    for (; y > 0; y /= 2, factor *= factor) {
        if (y % 2 == 1) result *= factor;
    }
    return (T)result;
}
""" + _of_floats("REAL metaop_power(REAL x, REAL y)", "{ return pow(x, y); }\n")

_ABS = """\
template <typename T> static __device__ T metaop_abs(T x)
{
    return x < 0 ? (T)(0 - (unsigned long long)x) : x;
}
""" + _of_floats("REAL metaop_abs(REAL x)", "{ return fabs(x); }\n")

_SOFTPLUS = _of_floats(
    "REAL metaop_softplus(REAL x)",
    "{ return x != x ? x : fmax(x, (REAL)0) + log1p(exp(-fabs(x))); }\n",
)

_LOG_ADD_EXP = _of_floats(
    "REAL metaop_log_add_exp(REAL x, REAL y)",
    """\
{
    if (x == y) return x + log((REAL)2);
    return x != x || y != y ? x + y : fmax(x, y) + log1p(exp(-fabs(x - y)));
}
""",
)

_BITWISE_NOT = """\
template <typename T> static __device__ T metaop_bitwise_not(T x) { return ~x; }
static __device__ bool metaop_bitwise_not(bool x) { return !x; }
"""

_LEFT_SHIFT = """\
template <typename T> static __device__ T metaop_left_shift(T x, T amount)
{
    const bool is_legal = 0 <= amount && (unsigned long long)amount < 8 * sizeof(T);
    return is_legal ? (T)((unsigned long long)x << amount) : 0;
}
"""

_RIGHT_SHIFT = """\
template <typename T> static __device__ T metaop_right_shift(T x, T amount)
{
    const bool is_legal = 0 <= amount && (unsigned long long)amount < 8 * sizeof(T);
    return is_legal ? x >> amount : x < 0 ? (T)-1 : 0;
}
"""

_SIGNBIT = """\
template <typename T> static __device__ bool metaop_signbit(T x) { return x < 0; }
static __device__ bool metaop_signbit(float x) { return __float_as_int(x) < 0; }
static __device__ bool metaop_signbit(double x) { return __double_as_longlong(x) < 0; }
"""

_SORT_KEY = """\
static __device__ int metaop_sort_key(float x)
{
    const int bits = __float_as_int(x);
    return x != x ? 0x7fffffff : x == 0 ? 0 : bits < 0 ? bits ^ 0x7fffffff : bits;
}
static __device__ long long metaop_sort_key(double x)
{
    const long long bits = __double_as_longlong(x), greatest = 0x7fffffffffffffffll;
    return x != x ? greatest : x == 0 ? 0 : bits < 0 ? bits ^ greatest : bits;
}
"""


def _threefry() -> str:
    lines = [
        "static __device__ long long metaop_threefry(long long key, long long counter)",
        "{",
        "    const unsigned low = (unsigned)key, high = (unsigned)((unsigned long long)key >> 32);",
        f"    const unsigned keys[3] = {{low, high, low ^ high ^ {PARITY:#x}u}};",
        "    unsigned first = (unsigned)counter + keys[0];",
        "    unsigned second = (unsigned)((unsigned long long)counter >> 32) + keys[1];",
    ]
    for group in range(GROUPS):
        for rotation in ROTATIONS[group % 2]:
            lines.append("    first += second;")
            rotated = f"(second << {rotation}) | (second >> {32 - rotation})"
            lines.append(f"    second = ({rotated}) ^ first;")
        lines.append(f"    first += keys[{(group + 1) % 3}];")
        lines.append(f"    second += keys[{(group + 2) % 3}] + {group + 1}u;")
    lines.append("    return (long long)(first | (unsigned long long)second << 32);")
    return "\n".join([*lines, "}", ""])


def _horner(coefficients: tuple[float, ...]) -> str:
    text = "0.0"
    for coefficient in reversed(coefficients):
        text = f"({text} + {coefficient!r}) * square"
    return text


_DIGAMMA = f"""\
// Reflection to the right half plane, recurrence to 10, asymptotic series; in double precision.
static __device__ double metaop_digamma(double x)
{{
    if (x == 0) return copysign(1.0 / 0.0, -x);
    if (x < 0 && x == floor(x)) return 0.0 / 0.0;
    double result = 0;
    if (x < 0) {{
        result = -{math.pi!r} / tan({math.pi!r} * (x - rint(x)));
        x = 1 - x;
    }}
    for (; x < 10; x += 1) result -= 1 / x;
    const double square = 1 / (x * x);
    return result + log(x) - 0.5 / x - {_horner(DIGAMMA_SERIES)};
}}
static __device__ float metaop_digamma(float x) {{ return (float)metaop_digamma((double)x); }}
"""

_TRIGAMMA = f"""\
// The derivative of digamma, by the same three steps.
static __device__ double metaop_trigamma(double x)
{{
    if (x <= 0 && x == floor(x)) return x - x == 0 ? 1.0 / 0.0 : 0.0 / 0.0;
    double result = 0, sign = 1;
    if (x < 0) {{
        const double sine = sin({math.pi!r} * (x - rint(x)));
        result = {math.pi**2!r} / (sine * sine);
        sign = -1;
        x = 1 - x;
    }}
    double sum = 0;
    for (; x < 10; x += 1) sum += 1 / (x * x);
    const double square = 1 / (x * x);
    sum += 1 / x + 0.5 * square + ({_horner(TRIGAMMA_SERIES)}) / x;
    return result + sign * sum;
}}
static __device__ float metaop_trigamma(float x) {{ return (float)metaop_trigamma((double)x); }}
"""

CUDA_HELPERS: dict[str, str] = {
    **{f"metaop_{name}": _rounding(name) for name in _ROUNDING},
    "metaop_trunc_divide": _TRUNC_DIVIDE,
    "metaop_fmod": _FMOD,
    "metaop_remainder": _REMAINDER,
    "metaop_floor_divide": _FLOOR_DIVIDE,
    "metaop_power": _POWER,
    "metaop_abs": _ABS,
    "metaop_softplus": _SOFTPLUS,
    "metaop_log_add_exp": _LOG_ADD_EXP,
    "metaop_bitwise_not": _BITWISE_NOT,
    "metaop_left_shift": _LEFT_SHIFT,
    "metaop_right_shift": _RIGHT_SHIFT,
    "metaop_signbit": _SIGNBIT,
    "metaop_sort_key": _SORT_KEY,
    "metaop_threefry": _threefry(),
    "metaop_digamma": _DIGAMMA,
    "metaop_trigamma": _TRIGAMMA,
}
