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
    0.12629359322181682,
    -0.17641651835783406,
    0.1026436586898471,
    -0.05294598120809499,
    0.024726449030626516,
    -0.010564084894626197,
    0.004156422944312888,
    -0.0015135724506312532,
    0.0005122859561685758,
    -0.00016176081582589674,
    4.781565107550054e-05,
    -1.3273163656039436e-05,
    3.4702513081376785e-06,
    -8.568720264695455e-07,
    2.0032947535521353e-07,
    -4.445059128796328e-08,
    9.381537386495773e-09,
    -1.8872497517228294e-09,
    3.625590281552117e-10,
    -6.663489723502027e-11,
    1.1736186298890901e-11,
    -1.9839743977649436e-12,
    3.223793365945575e-13,
    -5.042185504727912e-14,
    7.600684294735408e-15,
    -1.1055969477353862e-15,
    1.5536319577362005e-16,
    -2.111421214358166e-17,
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

# Wichura, Algorithm AS 241 (1988): numerators and denominators of the inverse normal distribution,
# from the constant on: in the middle, in the tails, and far out.
_NORMAL_MIDDLE, _NORMAL_TAIL, _NORMAL_FAR = (
    (
        (
            3.3871328727963665,
            133.14166789178438,
            1971.5909503065513,
            13731.69376550946,
            45921.95393154987,
            67265.7709270087,
            33430.57558358813,
            2509.0809287301227,
        ),
        (
            1.0,
            42.31333070160091,
            687.1870074920579,
            5394.196021424751,
            21213.794301586597,
            39307.89580009271,
            28729.085735721943,
            5226.495278852854,
        ),
    ),
    (
        (
            1.4234371107496835,
            4.630337846156546,
            5.769497221460691,
            3.6478483247632045,
            1.2704582524523684,
            0.2417807251774506,
            0.022723844989269184,
            0.0007745450142783414,
        ),
        (
            1.0,
            2.053191626637759,
            1.6763848301838038,
            0.6897673349851,
            0.14810397642748008,
            0.015198666563616457,
            0.0005475938084995345,
            1.0507500716444169e-09,
        ),
    ),
    (
        (
            6.657904643501103,
            5.463784911164114,
            1.7848265399172913,
            0.29656057182850487,
            0.026532189526576124,
            0.0012426609473880784,
            2.7115555687434876e-05,
            2.0103343992922881e-07,
        ),
        (
            1.0,
            0.599832206555888,
            0.1369298809227358,
            0.014875361290850615,
            0.0007868691311456133,
            1.8463183175100548e-05,
            1.421511758316446e-07,
            2.0442631033899397e-15,
        ),
    ),
)

# The number of terms that are summed directly before the Euler-Maclaurin expansion.
_DIRECT_TERMS = 24
# From this exponent on, only the first term of a sum is not 0 beside it, or all are.
_ONE_TERM = 1e6
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


def _scaled(order: int, size: Node, small: Sequence[float], large: Sequence[float]) -> Node:
    inside = size <= 8.0
    near = where(inside, size, 8.0)
    far = where(inside, 8.0, size)
    outer = chebyshev(16.0 / far - 1.0, large) * apply("rsqrt", far)
    inner = chebyshev(near * 0.25 - 1.0, small)
    # The series of order 1 is that of its quotient by x, so it is exact to the last digits near 0.
    return where(inside, inner if order == 0 else near * inner, outer)


@composite
def bessel_i0e(source: Node) -> Node:
    """`exp(-|x|) I0(x)`."""
    return _scaled(0, apply("abs", source), _SMALL_0, _LARGE_0)


@composite
def bessel_i0(source: Node) -> Node:
    """The modified Bessel function of the first kind of order 0."""
    return apply("exp", apply("abs", source)) * bessel_i0e(source)


@composite
def bessel_i1e(source: Node) -> Node:
    """`exp(-|x|) I1(x)`."""
    # Not abs, whose gradient of 0 at 0 would hide the gradient of this function.
    size = _scaled(1, where(source < 0.0, -source, source), _SMALL_1, _LARGE_1)
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
    """The inverse of the standard normal distribution function, to the last digits in its tails."""
    low = source < 0.5
    tail = where(low, source, 1.0 - source)
    offset = tail - 0.5
    is_middle = offset >= -0.425
    square = 0.180625 - offset * offset
    middle = offset * _quotient(where(is_middle, square, 0.0), *_NORMAL_MIDDLE)
    is_tail = tail > 0.0
    depth = apply("sqrt", -apply("log", where(is_tail & ~is_middle, tail, 0.05)))
    is_near = depth <= 5.0
    near = _quotient(where(is_near, depth, 5.0) - 1.6, *_NORMAL_TAIL)
    far = _quotient(where(is_near, 5.0, depth) - 5.0, *_NORMAL_FAR)
    # -inf at 0 and NaN below, and so are the gradients.
    outside = apply("log", apply("sqrt", tail))
    found = where(is_middle, middle, where(is_tail, -where(is_near, near, far), outside))
    return where(low, found, -found)


def _quotient(place: Node, above: Sequence[float], below: Sequence[float]) -> Node:
    return _polynomial(place, above) / _polynomial(place, below)


def _polynomial(place: Node, coefficients: Sequence[float]) -> Node:
    """A polynomial whose constant comes first."""
    value = place * coefficients[-1]
    for coefficient in reversed(coefficients[1:-1]):
        value = (value + coefficient) * place
    return value + coefficients[0]


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
    first = total = apply("pow", start, -exponent)
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
    # The factors of the asymptotic series overflow where its terms have vanished long ago.
    total = where((exponent > _ONE_TERM) | start.equals(math.inf), first, total)
    pole = (start <= 0.0) & start.equals(apply("floor", start))
    total = where(pole | exponent.equals(1), math.inf, total)
    return where(exponent < 1.0, math.nan, total)


@composite
def polygamma(source: Node, order: int) -> Node:
    """The derivative of order `order` ≥ 1 of digamma."""
    if order == 1:
        return apply("trigamma", source)
    sign = 1.0 if order % 2 else -1.0
    exponent = constant(float(order + 1), source.dtype, source.shape)
    return zeta(exponent, source) * (sign * math.factorial(order))
