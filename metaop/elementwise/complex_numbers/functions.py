"""Powers, exponentials, logarithms and roots of complex numbers, and the functions made of these.

Branch cuts, signed zeros and infinities are those of C's Annex G, which NumPy follows. W. Kahan,
"Branch cuts for complex elementary functions" (1987), gives the inverse functions.
"""

from __future__ import annotations

import math

from metaop.elementwise.complex_numbers.parts import (
    Parts,
    add,
    angle,
    call,
    chosen,
    divide,
    modulus,
    multiply,
    negative,
    over_i,
    reciprocal,
    scale,
    subtract,
    times_i,
    truth,
)
from metaop.elementwise.meta_op import where
from metaop.unified_graph.node import Constant, Node, constant

# Powers with a whole exponent up to this are products, as in NumPy.
_MOST_FACTORS = 100


def _filled(z: Parts, number: float) -> Node:
    """A real number in the shape of a value."""
    return constant(number, z.real.dtype, z.real.shape)


def exp(z: Parts) -> Parts:
    """The exponential."""
    size = call("exp", z.real)
    real, imag = size * call("cos", z.imag), size * call("sin", z.imag)
    # An angle that is no number leaves the size of what is infinite, or 0.
    is_lost = ~call("isfinite", z.imag)
    vanishes = call("logical_and", z.real.equals(-math.inf), is_lost)
    grows = call("logical_and", z.real.equals(math.inf), is_lost)
    real = where(vanishes, 0.0, where(grows, math.inf, real))
    return Parts(real, where(z.imag.equals(0.0), z.imag, where(vanishes, 0.0, imag)))


def exp2(z: Parts) -> Parts:
    """2 to the power."""
    return exp(scale(z, math.log(2)))


def expm1(z: Parts) -> Parts:
    """The exponential less 1, exact near 0."""
    half = call("sin", z.imag * 0.5)
    real = call("expm1", z.real) * call("cos", z.imag) - half * half * 2.0
    height = where(z.imag.equals(0.0), z.imag, call("sin", z.imag))
    return Parts(where(truth(z), real, z.real), call("exp", z.real) * height)


def _log_modulus(z: Parts, less: Node, more: Node, other: Node) -> Node:
    """log|z|, near 1 by |z|**2 - 1 = less * more + other**2, where nothing cancels."""
    size = modulus(z)
    is_near = call("logical_and", size > 0.5, size < 2.0)
    excess = where(is_near, less * more + other * other, 0.0)
    return where(is_near, call("log1p", excess) * 0.5, call("log", where(is_near, 1.0, size)))


def log(z: Parts) -> Parts:
    """The logarithm, cut along the negative real axis."""
    first, second = call("abs", z.real), call("abs", z.imag)
    large, small = call("maximum", first, second), call("minimum", first, second)
    return Parts(_log_modulus(z, large - 1.0, large + 1.0, small), angle(z))


def log1p(z: Parts) -> Parts:
    """The logarithm of 1 + z, exact near 0."""
    moved = Parts(z.real + 1.0, z.imag)
    return Parts(_log_modulus(moved, z.real, z.real + 2.0, z.imag), angle(moved))


def log2(z: Parts) -> Parts:
    """The logarithm to base 2."""
    return scale(log(z), 1 / math.log(2))


def log10(z: Parts) -> Parts:
    """The logarithm to base 10."""
    return scale(log(z), 1 / math.log(10))


def sqrt(z: Parts) -> Parts:
    """The root whose real part is not negative, cut along the negative real axis."""
    size = call("sqrt", modulus(z) * 0.5 + call("abs", z.real) * 0.5)
    is_zero, is_long = size.equals(0.0), call("isinf", z.imag)
    other = where(is_zero, 0.0, call("abs", z.imag) / where(is_zero, 1.0, size * 2.0))
    other = where(is_long, math.inf, other)
    size = where(is_long, math.inf, size)
    is_left = z.real < 0.0
    imag = call("copysign", where(is_left, size, other), z.imag)
    return Parts(where(is_left, other, size), imag)


def rsqrt(z: Parts) -> Parts:
    """The reciprocal of the root."""
    return reciprocal(sqrt(z))


def log_add_exp(z: Parts, w: Parts) -> Parts:
    """log(exp(z) + exp(w)), by the difference of the exponents."""
    is_first = z.real >= w.real
    large, small = chosen(is_first, z, w), chosen(is_first, w, z)
    is_alone = small.real.equals(-math.inf)
    gap = subtract(small, large)
    gap = Parts(where(is_alone, -math.inf, gap.real), where(is_alone, 0.0, gap.imag))
    return add(large, log1p(exp(gap)))


def square(z: Parts) -> Parts:
    """The product of a number with itself."""
    return multiply(z, z)


def power(z: Parts, w: Parts) -> Parts:
    """z to the power w, by products for whole numbers that are known; 0 to the power 0 is 1."""
    known = _known(w)
    if known is not None and known.imag == 0:
        if known.real == 0.5:
            return sqrt(z)
        if known.real == int(known.real) and abs(known.real) <= _MOST_FACTORS:
            return _whole_power(z, int(known.real))
    is_zero = ~truth(z)
    safe = Parts(where(is_zero, 1.0, z.real), z.imag)
    found = exp(multiply(log(safe), w))
    vanishes = call("logical_and", w.imag.equals(0.0), w.real > 0.0)
    at_zero = where(vanishes, 0.0, math.nan)
    found = chosen(is_zero, Parts(at_zero, at_zero), found)
    is_one = ~truth(w)
    return Parts(where(is_one, 1.0, found.real), where(is_one, 0.0, found.imag))


def _known(z: Parts) -> complex | None:
    """The number, where it is a constant."""
    numbers = [x.op.value(x.dtype) for x in z if isinstance(x.op, Constant)]
    return complex(*map(float, numbers)) if len(numbers) == 2 else None


def _whole_power(z: Parts, exponent: int) -> Parts:
    """The power by squaring."""
    found: Parts | None = None
    factor, rest = z, abs(exponent)
    while rest:
        if rest % 2:
            found = factor if found is None else multiply(found, factor)
        rest //= 2
        factor = multiply(factor, factor) if rest else factor
    if found is None:
        one = _filled(z, 1)
        return Parts(one, _filled(z, 0))
    return reciprocal(found) if exponent < 0 else found


def sinh(z: Parts) -> Parts:
    """The hyperbolic sine."""
    real = call("sinh", z.real) * call("cos", z.imag)
    imag = call("cosh", z.real) * call("sin", z.imag)
    # An angle that is no number leaves what is infinite, or 0.
    is_lost = ~call("isfinite", z.imag)
    keeps = call("logical_and", is_lost, z.real.equals(0.0) | call("isinf", z.real))
    return Parts(where(keeps, z.real, real), where(z.imag.equals(0.0), z.imag, imag))


def cosh(z: Parts) -> Parts:
    """The hyperbolic cosine."""
    real = call("cosh", z.real) * call("cos", z.imag)
    imag = call("sinh", z.real) * call("sin", z.imag)
    grows = call("logical_and", call("isinf", z.real), ~call("isfinite", z.imag))
    on_axis = call("logical_or", z.real.equals(0.0), z.imag.equals(0.0))
    sign = call("copysign", _filled(z, 1), z.real)
    zero = sign * call("copysign", _filled(z, 0), z.imag)
    return Parts(where(grows, math.inf, real), where(on_axis, zero, imag))


def tanh(z: Parts) -> Parts:
    """The hyperbolic tangent; far from the imaginary axis it is 1 but for exp(-2 |x|)."""
    size = call("abs", z.real)
    is_far = size > (11.0 if z.real.dtype.itemsize == 4 else 22.0)
    tangent = call("tan", z.imag)
    stretch = tangent * tangent + 1.0
    sine = call("sinh", where(is_far, 0.0, z.real))
    divisor = stretch * sine * sine + 1.0
    real = stretch * call("sqrt", sine * sine + 1.0) * sine / divisor
    falling = call("exp", size * -2.0)
    is_lost = call("logical_and", falling.equals(0.0), ~call("isfinite", z.imag))
    far = where(is_lost, 0.0, falling * call("sin", z.imag * 2.0) * 2.0)
    real = where(is_far, call("copysign", _filled(z, 1), z.real), real)
    imag = where(is_far, far, tangent / divisor)
    return Parts(_odd(z.real, real), _odd(z.imag, imag))


def _odd(part: Node, found: Node) -> Node:
    """What was found, but 0 of 0, with its sign."""
    return where(part.equals(0.0), part, found)


def sin(z: Parts) -> Parts:
    """The sine."""
    return over_i(sinh(times_i(z)))


def cos(z: Parts) -> Parts:
    """The cosine."""
    return cosh(times_i(z))


def tan(z: Parts) -> Parts:
    """The tangent."""
    return over_i(tanh(times_i(z)))


def _far(z: Parts) -> Node:
    """Whether 1 is nothing beside the square of a number."""
    return modulus(z) > (1e4 if z.real.dtype.itemsize == 4 else 1e9)


def _log_double(z: Parts) -> Node:
    """log(2 |z|) of what is far, and of nothing else."""
    is_far = _far(z)
    return call("log", where(is_far, modulus(z), 1.0)) + math.log(2)


def _near(z: Parts) -> tuple[Parts, Parts, Parts]:
    """A number where it is near, else 0, and the roots of 1 - z and 1 + z."""
    is_far = _far(z)
    near = Parts(where(is_far, 0.0, z.real), where(is_far, 0.0, z.imag))
    return near, sqrt(Parts(1.0 - near.real, -near.imag)), sqrt(Parts(near.real + 1.0, near.imag))


def asin(z: Parts) -> Parts:
    """The inverse sine, cut along the real axis outside of -1 … 1."""
    near, below, above = _near(z)
    real = call("atan2", near.real, below.real * above.real - below.imag * above.imag)
    imag = call("asinh", below.real * above.imag - below.imag * above.real)
    far = Parts(
        call("atan2", z.real, call("abs", z.imag)), call("copysign", _log_double(z), z.imag)
    )
    return chosen(_far(z), far, Parts(_odd(z.real, real), imag))


def acos(z: Parts) -> Parts:
    """The inverse cosine, cut along the real axis outside of -1 … 1."""
    _, below, above = _near(z)
    real = call("atan2", below.real, above.real) * 2.0
    real = where(z.real.equals(0.0), math.pi / 2, real)
    imag = call("asinh", above.real * below.imag - above.imag * below.real)
    far = Parts(
        call("atan2", call("abs", z.imag), z.real), -call("copysign", _log_double(z), z.imag)
    )
    return chosen(_far(z), far, Parts(real, imag))


def acosh(z: Parts) -> Parts:
    """The inverse hyperbolic cosine, cut along the real axis below 1."""
    is_far = _far(z)
    near = Parts(where(is_far, 0.0, z.real), where(is_far, 0.0, z.imag))
    below, above = sqrt(Parts(near.real - 1.0, near.imag)), sqrt(Parts(near.real + 1.0, near.imag))
    real = call("asinh", below.real * above.real + below.imag * above.imag)
    imag = call("atan2", below.imag, above.real) * 2.0
    imag = where(z.real.equals(0.0), _quarter(z), imag)
    return chosen(is_far, Parts(_log_double(z), angle(z)), Parts(real, imag))


def _quarter(z: Parts) -> Node:
    """A quarter of a turn towards the number."""
    return call("copysign", _filled(z, math.pi / 2), z.imag)


def atanh(z: Parts) -> Parts:
    """The inverse hyperbolic tangent, cut along the real axis outside of -1 … 1."""
    is_far = _far(z)
    size, height = where(is_far, 0.0, call("abs", z.real)), where(is_far, 0.0, z.imag)
    less = 1.0 - size
    real = call("log1p", size * 4.0 / (less * less + height * height)) * 0.25
    real = _odd(z.real, call("copysign", real, z.real))
    imag = call("atan2", height * 2.0, less * (size + 1.0) - height * height) * 0.5
    inverse = reciprocal(chosen(is_far, z, Parts(_filled(z, 1), _filled(z, 0))))
    is_infinite = call("isinf", modulus(z))
    far = where(is_infinite, call("copysign", _filled(z, 0), z.real), inverse.real)
    quarter = where(call("isnan", z.imag), z.imag, _quarter(z))
    return chosen(is_far, Parts(far, quarter), Parts(real, imag))


def asinh(z: Parts) -> Parts:
    """The inverse hyperbolic sine, cut along the imaginary axis outside of -i … i."""
    return over_i(asin(times_i(z)))


def atan(z: Parts) -> Parts:
    """The inverse tangent, cut along the imaginary axis outside of -i … i."""
    return over_i(atanh(times_i(z)))


def sigmoid(z: Parts) -> Parts:
    """The logistic function, by the exponential that does not overflow."""
    is_right = z.real >= 0.0
    falling = exp(chosen(is_right, negative(z), z))
    one = Parts(_filled(z, 1), _filled(z, 0))
    return divide(chosen(is_right, one, falling), Parts(falling.real + 1.0, falling.imag))


def sgn(z: Parts) -> Parts:
    """The number over its modulus, 0 of 0."""
    size = modulus(z)
    is_zero = size.equals(0.0)
    divisor = where(is_zero, 1.0, size)
    return Parts(where(is_zero, 0.0, z.real / divisor), where(is_zero, 0.0, z.imag / divisor))
