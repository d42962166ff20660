"""Special functions as compositions of elementary ones."""

from __future__ import annotations

import math
from collections.abc import Sequence

from metaop.elementwise.meta_op import apply, where
from metaop.operators.expressions import stop_gradient
from metaop.unified_graph.composite import composite
from metaop.unified_graph.node import Node, constant

# Chebyshev coefficients of exp(-x) I(x) on 0 … 8, and of exp(-x) sqrt(x) I(x) in 1/x beyond,
# for the modified Bessel functions I of order 0 and 1.
_SMALL_0 = (
    0.33839763720473803,
    -0.3046826723431984,
    0.17162090152220877,
    -0.09490109704804764,
    0.04930528423967071,
    -0.02373741480589947,
    0.010546460394594998,
    -0.004324309995050576,
    0.0016394756169413357,
    -0.0005763755745385824,
    0.00018850288509584165,
    -5.754195010082104e-05,
    1.6448448070728896e-05,
    -4.4167383584587505e-06,
    1.1173875391201037e-06,
    -2.670793853940612e-07,
    6.046995022541919e-08,
    -1.300025009986248e-08,
    2.6598237246823866e-09,
    -5.189795601635263e-10,
    9.675809035373237e-11,
    -1.726826291441556e-11,
    2.95505266312964e-12,
    -4.856446783111929e-13,
    7.676185498604936e-14,
    -1.1685332877993451e-14,
    1.715391285555133e-15,
    -2.4312798465479534e-16,
    3.3307945188222205e-17,
    -4.415341646479325e-18,
)
_LARGE_0 = (
    0.4022452055070544,
    0.0033691164782556943,
    6.889758346916825e-05,
    2.8913705208347567e-06,
    2.0489185894690638e-07,
    2.266668990498178e-08,
    3.3962320257083865e-09,
    4.94060238822497e-10,
    1.1889147107846439e-11,
    -3.1499165279632416e-11,
    -1.3215811840447713e-11,
    -1.7941785315068062e-12,
    7.180124451383666e-13,
    3.8527783827421426e-13,
    1.54008621752141e-14,
    -4.150569347287222e-14,
    -9.554846698828307e-15,
    3.8116806693526224e-15,
    1.7725601330565263e-15,
    -3.425485619677218e-16,
    -2.827623980516584e-16,
    3.461222867697482e-17,
    4.465621420296736e-17,
    -4.830504485944062e-18,
    -7.233180487874755e-18,
    9.921475412175326e-19,
    1.1936508908460308e-18,
)
_SMALL_1 = (
    0.1523413361715992,
    0.00479561683562528,
    -0.04815036437246971,
    0.04295629060856726,
    -0.02811433608293631,
    0.015509404371374018,
    -0.00752962291326335,
    0.003283127998437915,
    -0.0013015227082399966,
    0.00047315995118456564,
    -0.0001588053546618702,
    4.94791501431187e-05,
    -1.4379066132467248e-05,
    3.9136734611076025e-06,
    -1.0013273340941635e-06,
    2.416196603315655e-07,
    -5.514953253338913e-08,
    1.193919382241065e-08,
    -2.457533185294852e-09,
    4.820508399681241e-10,
    -9.029299807000683e-11,
    1.6181233679911144e-11,
    -2.779275159246216e-12,
    4.582726215894693e-13,
    -7.265216681108738e-14,
    1.1089707190076509e-14,
    -1.6319695366634557e-15,
    2.3182537119843557e-16,
    -3.1825084190627505e-17,
    4.2267815716383165e-18,
)
_LARGE_1 = (
    0.38928811750914005,
    -0.009761097491361469,
    -0.00011058893876262371,
    -3.882564808877691e-06,
    -2.512236237870209e-07,
    -2.6314688468895196e-08,
    -3.835380385964237e-09,
    -5.589743462196584e-10,
    -1.8974958123505413e-11,
    3.2526035830154884e-11,
    1.4125807436613782e-11,
    2.0356285441470896e-12,
    -7.198551776245908e-13,
    -4.0835511110921974e-13,
    -2.1015418427726643e-14,
    4.272440016711951e-14,
    1.0420276984128802e-14,
    -3.8144030724370075e-15,
    -1.8803547755107825e-15,
    3.3082023109209295e-16,
    2.9626289976459496e-16,
    -3.209525921993402e-17,
    -4.650305368489382e-17,
    4.414348323071811e-18,
    7.517296310842107e-18,
    -9.314178867325147e-19,
    -1.2421932751948384e-18,
)

# Terms that are summed up before the expansion of Euler and Maclaurin takes over.
_DIRECT_TERMS = 24
# B(2k) / (2k)! for k = 1, 2, …
_BERNOULLI = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000)


def chebyshev(place: Node, coefficients: Sequence[float]) -> Node:
    """The sum of Chebyshev polynomials at `place` in -1 … 1, by Clenshaw's recurrence."""
    twice = place * 2.0
    later = place * 0.0
    latest = later
    for coefficient in reversed(coefficients[1:]):
        later, latest = twice * later - latest + coefficient, later
    return place * later - latest + coefficients[0]


def _scaled(size: Node, small: Sequence[float], large: Sequence[float]) -> Node:
    inside = size <= 8.0
    near = where(inside, size, 8.0)
    far = where(inside, 8.0, size)
    outer = chebyshev(16.0 / far - 1.0, large) * apply("rsqrt", far)
    return where(inside, chebyshev(near * 0.25 - 1.0, small), outer)


@composite
def bessel_i0e(source: Node) -> Node:
    """`exp(-|x|) I0(x)`."""
    return _scaled(apply("abs", source), _SMALL_0, _LARGE_0)


@composite
def bessel_i0(source: Node) -> Node:
    """The modified Bessel function of the first kind of order 0."""
    return apply("exp", apply("abs", source)) * bessel_i0e(source)


@composite
def bessel_i1e(source: Node) -> Node:
    """`exp(-|x|) I1(x)`."""
    # Not abs: its slope of 0 at 0 would hide the slope of this function.
    size = _scaled(where(source < 0.0, -source, source), _SMALL_1, _LARGE_1)
    return where(source < 0.0, -size, size)


@composite
def bessel_i1(source: Node) -> Node:
    """The modified Bessel function of the first kind of order 1."""
    return apply("exp", apply("abs", source)) * bessel_i1e(source)


@composite
def erfcx(source: Node) -> Node:
    """`exp(x²) erfc(x)` without overflow for large x."""
    inside = source < 5.0
    near = where(inside, source, 5.0)
    far = where(inside, 5.0, source)
    fraction = far
    for k in range(24, 0, -1):
        fraction = far + (k / 2) / fraction
    outer = (1 / math.sqrt(math.pi)) / fraction
    return where(inside, apply("exp", near * near) * apply("erfc", near), outer)


@composite
def ndtr(source: Node) -> Node:
    """The standard normal distribution function."""
    return apply("erfc", source * -math.sqrt(0.5)) * 0.5


@composite
def log_ndtr(source: Node) -> Node:
    """The logarithm of the standard normal distribution function."""
    low = source < -1.0
    left = where(low, source, -1.0)
    right = where(low, -1.0, source)
    outer = apply("log", erfcx(left * -math.sqrt(0.5)) * 0.5) - left * left * 0.5
    return where(low, outer, apply("log1p", apply("erfc", right * math.sqrt(0.5)) * -0.5))


@composite
def ndtri(source: Node) -> Node:
    """The inverse of the standard normal distribution function."""
    low = source < 0.5
    tail = where(low, source, 1.0 - source)
    guess = apply("erfinv", tail * 2.0 - 1.0) * math.sqrt(2)
    # A step of Newton's method, since erfinv has lost the digits of small probabilities.
    finite = apply("isfinite", guess)
    start = where(finite, guess, 0.0)
    density = apply("exp", start * start * -0.5) / math.sqrt(2 * math.pi)
    refined = where(finite, start - (ndtr(start) - tail) / density, guess)
    return where(low, refined, -refined)


@composite
def xlog1py(left: Node, right: Node) -> Node:
    """`x log(1 + y)`, 0 where x is 0 and y is a number."""
    vanishes = left.equals(0) & ~apply("isnan", right)
    inner = where(vanishes, 0.0, right)
    return where(vanishes, 0.0, left * apply("log1p", inner))


@composite
def entropy_term(source: Node) -> Node:
    """`-x log(x)`, 0 at 0 and -inf below."""
    positive = source > 0.0
    inner = where(positive, source, 1.0)
    result = where(positive, -(inner * apply("log", inner)), -math.inf)
    result = where(source.equals(0), 0.0, result)
    return where(apply("isnan", source), source, result)


@composite
def zeta(exponent: Node, start: Node) -> Node:
    """Hurwitz' zeta function: the sum of `(start + k) ** -exponent` over k = 0, 1, …"""
    exponent = stop_gradient(exponent)
    total = apply("pow", start, -exponent)
    for k in range(1, _DIRECT_TERMS):
        total = total + apply("pow", start + float(k), -exponent)
    last = start + float(_DIRECT_TERMS)
    power = apply("pow", last, -exponent)
    total = total + power * (last / (exponent - 1.0) + 0.5)
    factor = exponent
    for k, number in enumerate(_BERNOULLI):
        power = power / last
        total = total + factor * power * number
        power = power / last
        factor = factor * (exponent + float(2 * k + 1)) * (exponent + float(2 * k + 2))
    total = where(exponent.equals(1), math.inf, total)
    return where(exponent < 1.0, math.nan, total)


@composite
def polygamma(source: Node, order: int) -> Node:
    """The derivative of order `order` ≥ 1 of digamma."""
    sign = 1.0 if order % 2 else -1.0
    exponent = constant(float(order + 1), source.dtype, source.shape)
    return zeta(exponent, source) * (sign * math.factorial(order))
