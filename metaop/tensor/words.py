"""What elementwise functions say of themselves: their meaning, and an example with its result.

These functions are made of rows of tables, and their docstrings are made here. Tests run them.
"""

from __future__ import annotations

# Two lines for a function: its meaning for an element x, or for elements of `input` and `other`;
# the operands of an example, with ";" between them, and what it prints.
_TABLE = """
abs: The distance from 0.
    [-1.5, 2.0] -> [1.5000, 2.0000]
acos: The angle in 0 … pi, in radians, whose cosine is x; NaN outside -1 … 1.
    [-1.0, 0.0, 1.0] -> [3.1416, 1.5708, 0.0000]
acosh: The number from 0 on whose hyperbolic cosine is x; NaN below 1.
    [1.0, 2.0] -> [0.0000, 1.3170]
asin: The angle in -pi/2 … pi/2, in radians, whose sine is x; NaN outside -1 … 1.
    [-1.0, 0.0, 1.0] -> [-1.5708,  0.0000,  1.5708]
asinh: The number whose hyperbolic sine is x.
    [-1.0, 0.0, 1.0] -> [-0.8814,  0.0000,  0.8814]
atan: The angle between -pi/2 and pi/2, in radians, whose tangent is x.
    [-1.0, 0.0, 1.0] -> [-0.7854,  0.0000,  0.7854]
atanh: The number whose hyperbolic tangent is x; infinite at ±1, NaN beyond.
    [-0.5, 0.0, 0.5] -> [-0.5493,  0.0000,  0.5493]
bitwise_not: The integer with all bits inverted, -x - 1; of truth values the opposite.
    [0, 5, -1] -> [-1, -6,  0]
ceil: The smallest whole number that is not below x.
    [-1.5, 0.2, 2.0] -> [-1.,  1.,  2.]
cos: The cosine of x in radians.
    [0.0, 1.5, 3.0] -> [ 1.0000,  0.0707, -0.9900]
cosh: The hyperbolic cosine, (exp(x) + exp(-x)) / 2.
    [-1.0, 0.0, 1.0] -> [1.5431, 1.0000, 1.5431]
digamma: The derivative of the logarithm of the gamma function.
    [1.0, 2.0] -> [-0.5772,  0.4228]
erf: The error function: 2 / sqrt(pi) times the integral of exp(-t²) from 0 to x.
    [-1.0, 0.0, 1.0] -> [-0.8427,  0.0000,  0.8427]
erfc: 1 - erf(x), exact where erf(x) is close to 1.
    [0.0, 1.0, 5.0] -> [1.0000e+00, 1.5730e-01, 1.5375e-12]
erfinv: The inverse of `erf`: infinite at ±1, NaN beyond.
    [-0.5, 0.0, 0.5] -> [-0.4769,  0.0000,  0.4769]
exp: e to the power of x.
    [-1.0, 0.0, 1.0] -> [0.3679, 1.0000, 2.7183]
exp2: 2 to the power of x.
    [-1.0, 0.0, 3.0] -> [0.5000, 1.0000, 8.0000]
expm1: exp(x) - 1, exact where x is close to 0.
    [0.0, 1e-6, 1.0] -> [0.0000e+00, 1.0000e-06, 1.7183e+00]
floor: The largest whole number that is not above x.
    [-1.5, 0.2, 2.0] -> [-2.,  0.,  2.]
frac: What remains of x when its whole part is cut off; it has the sign of x.
    [-1.5, 0.25, 2.0] -> [-0.5000,  0.2500,  0.0000]
lgamma: The logarithm of the magnitude of the gamma function.
    [1.0, 3.0, 4.5] -> [0.0000, 0.6931, 2.4537]
log: The natural logarithm: -inf at 0, NaN below.
    [0.0, 1.0, 10.0] -> [  -inf, 0.0000, 2.3026]
log10: The logarithm to base 10: -inf at 0, NaN below.
    [0.1, 1.0, 1000.0] -> [-1.0000,  0.0000,  3.0000]
log1p: log(1 + x), exact where x is close to 0.
    [0.0, 1e-6, 1.0] -> [0.0000e+00, 1.0000e-06, 6.9315e-01]
log2: The logarithm to base 2: -inf at 0, NaN below.
    [0.5, 1.0, 8.0] -> [-1.,  0.,  3.]
neg: The number with the opposite sign.
    [-1.5, 2.0] -> [ 1.5000, -2.0000]
reciprocal: 1 / x; infinite at 0.
    [-2.0, 4.0] -> [-0.5000,  0.2500]
relu: max(0, x); NaN stays NaN.
    [-1.5, 2.0] -> [0., 2.]
rsqrt: 1 / sqrt(x): infinite at 0, NaN below.
    [0.25, 4.0] -> [2.0000, 0.5000]
sgn: The sign of x, -1, 0 or 1; of complex numbers x / abs(x).
    [-1.5, 0.0, 2.0] -> [-1.,  0.,  1.]
sigmoid: 1 / (1 + exp(-x)), which lies between 0 and 1.
    [-1.0, 0.0, 1.0] -> [0.2689, 0.5000, 0.7311]
sign: The sign of x: -1, 0 or 1.
    [-1.5, 0.0, 2.0] -> [-1.,  0.,  1.]
sin: The sine of x in radians.
    [0.0, 1.5, 3.0] -> [0.0000, 0.9975, 0.1411]
sinh: The hyperbolic sine, (exp(x) - exp(-x)) / 2.
    [-1.0, 0.0, 1.0] -> [-1.1752,  0.0000,  1.1752]
sqrt: The square root; NaN below 0.
    [0.0, 2.25, 9.0] -> [0.0000, 1.5000, 3.0000]
tan: The tangent of x in radians.
    [-1.0, 0.0, 1.0] -> [-1.5574,  0.0000,  1.5574]
tanh: The hyperbolic tangent, which lies between -1 and 1.
    [-1.0, 0.0, 1.0] -> [-0.7616,  0.0000,  0.7616]
trunc: x without its fractional part: the nearest whole number towards 0.
    [-1.5, 0.2, 2.0] -> [-1.,  0.,  2.]
isnan: Whether x is NaN.
    [1.0, float("nan")] -> [False,  True]
isinf: Whether x is inf or -inf.
    [1.0, float("-inf")] -> [False,  True]
isfinite: Whether x is neither infinite nor NaN.
    [1.0, float("inf"), float("nan")] -> [ True, False, False]
signbit: Whether the sign bit of x is set; -0.0 has it too.
    [-1.0, -0.0, 2.0] -> [ True,  True, False]
logical_not: Whether x is 0 or False.
    [0, 1, 5] -> [ True, False, False]
bitwise_and: The bits that both integers have set; of truth values whether both hold.
    [6, 5]; [3, 4] -> [2, 4]
bitwise_or: The bits that either integer has set; of truth values whether either holds.
    [6, 5]; [3, 4] -> [7, 5]
bitwise_xor: The bits that only one of both integers has set.
    [6, 5]; [3, 4] -> [5, 1]
bitwise_left_shift: The integer with its bits moved up by `other` places: x * 2 ** other.
    [1, 3]; [2, 1] -> [4, 6]
bitwise_right_shift: The integer with its bits moved down by `other` places; its sign stays.
    [8, -8]; [2, 1] -> [ 2, -4]
fmod: The remainder of a division that is rounded towards 0: it has the sign of `input`.
    [5.0, -5.0]; 3 -> [ 2., -2.]
hypot: sqrt(input² + other²) without overflow.
    [3.0, 5.0]; [4.0, 12.0] -> [ 5., 13.]
logaddexp: log(exp(input) + exp(other)) without overflow.
    [0.0, 1000.0]; [0.0, 1000.0] -> [6.9315e-01, 1.0007e+03]
maximum: The larger of two numbers, NaN if one is.
    [1.0, float("nan")]; [2.0, 2.0] -> [2., nan]
minimum: The smaller of two numbers, NaN if one is.
    [1.0, float("nan")]; [2.0, 2.0] -> [1., nan]
fmax: The larger of two numbers; NaN only if both are.
    [1.0, float("nan")]; [2.0, 2.0] -> [2., 2.]
fmin: The smaller of two numbers; NaN only if both are.
    [1.0, float("nan")]; [2.0, 2.0] -> [1., 2.]
mul: The product.
    [1.0, 2.0]; [3.0, 4.0] -> [3., 8.]
nextafter: The next number of the type from `input` towards `other`.
    [0.0, 1.0]; 1.0 -> [1.4013e-45, 1.0000e+00]
remainder: The remainder of a division that is rounded down: it has the sign of `other`.
    [5.0, -5.0]; 3 -> [2., 1.]
floor_divide: The quotient rounded down; integers raise DivisionError for the divisor 0.
    [7, -7]; 2 -> [ 3, -4]
eq: Whether the elements are equal; NaN equals nothing.
    [1, 2]; [1, 3] -> [ True, False]
ne: Whether the elements differ; NaN differs from all.
    [1, 2]; [1, 3] -> [False,  True]
lt: Whether `input` is less than `other`.
    [1, 2, 3]; 2 -> [ True, False, False]
le: Whether `input` is at most `other`.
    [1, 2, 3]; 2 -> [ True,  True, False]
gt: Whether `input` is greater than `other`.
    [1, 2, 3]; 2 -> [False, False,  True]
ge: Whether `input` is at least `other`.
    [1, 2, 3]; 2 -> [False,  True,  True]
gcd: The greatest common divisor of two integers; 0 of two zeros.
    [12, 7]; [18, 21] -> [6, 7]
lcm: The least common multiple of two integers; 0 if one is 0.
    [4, 6]; [6, 8] -> [12, 24]
i0: The modified Bessel function of the first kind of order 0.
    [0.0, 1.0, 2.0] -> [1.0000, 1.2661, 2.2796]
i0e: exp(-abs(x)) times `i0`, without overflow.
    [0.0, 1.0, 200.0] -> [1.0000, 0.4658, 0.0282]
i1: The modified Bessel function of the first kind of order 1.
    [-1.0, 1.0, 2.0] -> [-0.5652,  0.5652,  1.5906]
i1e: exp(-abs(x)) times `i1`, without overflow.
    [-1.0, 1.0, 200.0] -> [-0.2079,  0.2079,  0.0282]
erfcx: exp(x²) erfc(x) without overflow for large x.
    [0.0, 1.0, 50.0] -> [1.0000, 0.4276, 0.0113]
ndtr: The standard normal distribution function: how likely a draw is at most x.
    [-1.0, 0.0, 1.0] -> [0.1587, 0.5000, 0.8413]
ndtri: The inverse of `ndtr`: infinite at 0 and 1, NaN beyond.
    [0.25, 0.975] -> [-0.6745,  1.9600]
log_ndtr: The logarithm of the standard normal distribution function, exact for small x.
    [-20.0, 0.0, 1.0] -> [-2.0392e+02, -6.9315e-01, -1.7275e-01]
entr: -x log(x), a term of the entropy: 0 at 0 and -inf below.
    [0.0, 0.5, 0.75] -> [0.0000, 0.3466, 0.2158]
airy_ai: Airy's function Ai, the solution of y'' = x y that falls to 0.
    [-1.0, 0.0, 1.0] -> [0.5356, 0.3550, 0.1353]
bessel_j0: The Bessel function of the first kind of order 0.
    [0.0, 1.0, 2.0] -> [1.0000, 0.7652, 0.2239]
bessel_j1: The Bessel function of the first kind of order 1.
    [0.0, 1.0, 2.0] -> [0.0000, 0.4401, 0.5767]
bessel_y0: The Bessel function of the second kind of order 0: -inf at 0, NaN below.
    [0.0, 1.0, 2.0] -> [  -inf, 0.0883, 0.5104]
bessel_y1: The Bessel function of the second kind of order 1: -inf at 0, NaN below.
    [0.0, 1.0, 2.0] -> [   -inf, -0.7812, -0.1070]
modified_bessel_i0: The modified Bessel function of the first kind of order 0.
    [0.0, 1.0, 2.0] -> [1.0000, 1.2661, 2.2796]
modified_bessel_i1: The modified Bessel function of the first kind of order 1.
    [-1.0, 1.0, 2.0] -> [-0.5652,  0.5652,  1.5906]
modified_bessel_k0: The modified Bessel function of the second kind of order 0: infinite at 0.
    [0.0, 1.0, 2.0] -> [   inf, 0.4210, 0.1139]
modified_bessel_k1: The modified Bessel function of the second kind of order 1: infinite at 0.
    [0.0, 1.0, 2.0] -> [   inf, 0.6019, 0.1399]
scaled_modified_bessel_k0: exp(x) times `modified_bessel_k0`, which does not fall to 0 early.
    [1.0, 2.0, 200.0] -> [1.1445, 0.8416, 0.0886]
scaled_modified_bessel_k1: exp(x) times `modified_bessel_k1`, which does not fall to 0 early.
    [1.0, 2.0, 200.0] -> [1.6362, 1.0335, 0.0888]
spherical_bessel_j0: sin(x) / x, 1 at 0: the spherical Bessel function of order 0.
    [0.0, 1.0, 2.0] -> [1.0000, 0.8415, 0.4546]
chebyshev_polynomial_t: The Chebyshev polynomial T of degree `n`: cos(n arccos(x)).
    [-0.5, 0.5]; 2 -> [-0.5000, -0.5000]
chebyshev_polynomial_u: The Chebyshev polynomial U of degree `n`, which begins 1, 2x.
    [-0.5, 0.5]; 2 -> [0., 0.]
chebyshev_polynomial_v: The Chebyshev polynomial V of degree `n`, which begins 1, 2x - 1.
    [-0.5, 0.5]; 2 -> [ 1., -1.]
chebyshev_polynomial_w: The Chebyshev polynomial W of degree `n`, which begins 1, 2x + 1.
    [-0.5, 0.5]; 2 -> [-1.,  1.]
shifted_chebyshev_polynomial_t: The Chebyshev polynomial T of degree `n` at 2x - 1.
    [0.25, 0.75]; 2 -> [-0.5000, -0.5000]
shifted_chebyshev_polynomial_u: The Chebyshev polynomial U of degree `n` at 2x - 1.
    [0.25, 0.75]; 2 -> [0., 0.]
shifted_chebyshev_polynomial_v: The Chebyshev polynomial V of degree `n` at 2x - 1.
    [0.25, 0.75]; 2 -> [ 1., -1.]
shifted_chebyshev_polynomial_w: The Chebyshev polynomial W of degree `n` at 2x - 1.
    [0.25, 0.75]; 2 -> [-1.,  1.]
hermite_polynomial_h: The physicists' Hermite polynomial of degree `n`, which begins 1, 2x.
    [0.0, 1.0]; 2 -> [-2.,  2.]
hermite_polynomial_he: The probabilists' Hermite polynomial of degree `n`, which begins 1, x.
    [0.0, 1.0]; 2 -> [-1.,  0.]
laguerre_polynomial_l: The Laguerre polynomial of degree `n`, which begins 1, 1 - x.
    [0.0, 1.0]; 2 -> [ 1.0000, -0.5000]
legendre_polynomial_p: The Legendre polynomial of degree `n`, which begins 1, x.
    [0.0, 1.0]; 2 -> [-0.5000,  1.0000]
"""
_LINES = _TABLE.strip().splitlines()
WORDS = {
    name: (meaning, *example.strip().split(" -> "))
    for (name, meaning), example in zip((line.split(": ", 1) for line in _LINES[::2]), _LINES[1::2])
}


def elementwise_words(name: str, *remarks: str, place: str = "metaop") -> str:
    """The docstring of the elementwise function `name` of a module, with `remarks` on its limits.

    Raises KeyError for a function without words.

    >>> print(elementwise_words("neg"))
    The number with the opposite sign.
    <BLANKLINE>
    The shape stays.
    <BLANKLINE>
    >>> metaop.neg(metaop.tensor([-1.5, 2.0]))
    tensor([ 1.5000, -2.0000])
    """
    meaning, operands, result = WORDS[name]
    given = [f"metaop.tensor({one})" if one[0] == "[" else one for one in operands.split("; ")]
    shapes = "The shape stays." if len(given) == 1 else "The operands broadcast to one shape."
    limits = " ".join((shapes, *remarks))
    call = f"{place}.{name}({', '.join(given)})"
    return f"{meaning}\n\n{limits}\n\n>>> {call}\ntensor({result})"
