"""Special functions under the names of `torch.special`."""

from __future__ import annotations

from metaop.tensor.functions import special_functions as _functions
from metaop.tensor.functions.activations import log_softmax, softmax
from metaop.tensor.functions.pointwise import (
    digamma,
    erf,
    erfc,
    erfinv,
    exp2,
    expm1,
    log1p,
    logit,
    round,
    sinc,
    xlogy,
)
from metaop.tensor.functions.pointwise import lgamma as gammaln
from metaop.tensor.functions.pointwise import sigmoid as expit
from metaop.tensor.functions.reductions import logsumexp
from metaop.tensor.functions.special_functions import (
    airy_ai,
    bessel_j0,
    bessel_j1,
    bessel_y0,
    bessel_y1,
    entr,
    erfcx,
    i0,
    i0e,
    i1,
    i1e,
    log_ndtr,
    modified_bessel_i0,
    modified_bessel_i1,
    modified_bessel_k0,
    modified_bessel_k1,
    ndtr,
    ndtri,
    polygamma,
    scaled_modified_bessel_k0,
    scaled_modified_bessel_k1,
    spherical_bessel_j0,
    xlog1py,
    zeta,
)
from metaop.tensor.functions.special_functions import mvlgamma as multigammaln
from metaop.tensor.host.host_pointwise import igamma as gammainc
from metaop.tensor.host.host_pointwise import igammac as gammaincc
from metaop.tensor.out import offer

__all__ = [
    "airy_ai",
    "bessel_j0",
    "bessel_j1",
    "bessel_y0",
    "bessel_y1",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "exp2",
    "expit",
    "expm1",
    "gammainc",
    "gammaincc",
    "gammaln",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "log1p",
    "log_ndtr",
    "log_softmax",
    "logit",
    "logsumexp",
    "modified_bessel_i0",
    "modified_bessel_i1",
    "modified_bessel_k0",
    "modified_bessel_k1",
    "multigammaln",
    "ndtr",
    "ndtri",
    "polygamma",
    "psi",
    "round",
    "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1",
    "sinc",
    "softmax",
    "spherical_bessel_j0",
    "xlog1py",
    "xlogy",
    "zeta",
]

psi = digamma
globals().update({name: getattr(_functions, name) for name in _functions.POLYNOMIALS})

offer(globals(), [*__all__, *_functions.POLYNOMIALS])
