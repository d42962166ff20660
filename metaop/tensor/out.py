"""`out=`: results written into tensors that exist, for every function that takes it in PyTorch.

One wrapper does it for all of them. It is put on the functions of the public modules only, so
methods, operators and metaop's own calls do not pay for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any

from metaop.errors import ArgumentTypeError, GradientError
from metaop.tensor.casting import without_casts
from metaop.tensor.core import Tensor
from metaop.tensor.resizing import resize_
from metaop.tensor.writing import convert_for_write
from metaop.unified_graph.recording import modes, next_sequence

# The functions of PyTorch's main module that take `out`.
TAKING_OUT = (
    *("abs", "absolute", "acos", "acosh", "add", "addbmm", "addcdiv", "addcmul", "addmm"),
    *("addmv", "addr", "all", "amax", "amin", "aminmax", "angle", "any", "arange", "arccos"),
    *("arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "argmax", "argmin", "asin"),
    *("asinh", "atan", "atan2", "atanh", "baddbmm", "bernoulli", "bitwise_and"),
    *("bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor"),
    *("bmm", "bucketize", "cat", "ceil", "chain_matmul", "cholesky", "cholesky_inverse"),
    *("cholesky_solve", "clamp", "clamp_max", "clamp_min", "clip", "column_stack", "concat"),
    *("concatenate", "conj_physical", "copysign", "cos", "cosh", "cross", "cummax", "cummin"),
    *("cumprod", "cumsum", "deg2rad", "diag", "diff", "digamma", "div", "divide", "dot"),
    *("dstack", "empty", "eq", "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "eye", "fix"),
    *("float_power", "floor", "floor_divide", "fmax", "fmin", "fmod", "frac", "frexp", "full"),
    *("gather", "gcd", "ge", "geqrf", "ger", "greater", "greater_equal", "gt", "heaviside"),
    *("histc", "histogram", "histogramdd", "hstack", "hypot", "i0", "igamma", "igammac"),
    *("index_add", "index_copy", "index_reduce", "index_select", "inner", "inverse", "isin"),
    *("isneginf", "isposinf", "kron", "kthvalue", "lcm", "ldexp", "le", "lerp", "less"),
    *("less_equal", "lgamma", "linspace", "log", "log10", "log1p", "log2", "logaddexp"),
    *("logaddexp2", "logcumsumexp", "logical_and", "logical_not", "logical_or", "logical_xor"),
    *("logit", "logspace", "logsumexp", "lt", "lu", "lu_solve", "lu_unpack", "masked_select"),
    *("matmul", "matrix_power", "max", "maximum", "mean", "min", "minimum", "mm", "mode"),
    *("msort", "mul", "multinomial", "multiply", "mv", "mvlgamma", "nan_to_num", "nanmean"),
    *("nanmedian", "nanquantile", "nansum", "ne", "neg", "negative", "median", "nextafter"),
    *("nonzero", "norm", "normal", "not_equal", "ones", "orgqr", "ormqr", "outer", "polygamma"),
    *("pow", "prod", "qr", "quantile", "rad2deg", "rand", "randint", "randn", "randperm"),
    *("reciprocal", "remainder", "renorm", "round", "row_stack", "rsqrt", "scatter"),
    *("scatter_add", "scatter_reduce", "searchsorted", "sgn", "sigmoid", "sign", "signbit"),
    *("sin", "sinc", "sinh", "slice_scatter", "log_softmax", "softmax", "sort", "sqrt", "square"),
    *("stack", "std", "sub", "subtract", "sum", "svd", "take", "take_along_dim", "tan", "tanh"),
    *("tensordot", "topk", "triangular_solve", "tril", "triu", "true_divide", "trunc", "var"),
    *("vdot", "vstack", "where", "xlogy", "zeros"),
)

# The in-place methods that PyTorch's main module has as functions too.
IN_PLACE_FUNCTIONS = (
    *("abs_", "acos_", "acosh_", "addmv_", "arccos_", "arccosh_", "arcsin_", "arcsinh_"),
    *("arctan_", "arctanh_", "as_strided_", "asin_", "asinh_", "atan_", "atanh_", "ceil_"),
    *("clamp_", "clamp_max_", "clamp_min_", "clip_", "conj_physical_", "cos_", "cosh_"),
    *("deg2rad_", "detach_", "erf_", "erfc_", "exp2_", "exp_", "expm1_", "fill_", "fix_"),
    *("floor_", "frac_", "gcd_", "i0_", "index_put_", "lcm_", "ldexp_", "log10_", "log1p_"),
    *("log2_", "log_", "logit_", "nan_to_num_", "neg_", "negative_", "rad2deg_", "reciprocal_"),
    *("relu_", "resize_as_", "round_", "rsqrt_", "sigmoid_", "sin_", "sinc_", "sinh_", "sqrt_"),
    *("square_", "tan_", "tanh_", "trunc_", "xlogy_", "zero_"),
)


def offer_out(namespace: dict[str, Any], names: Iterable[str]) -> None:
    """Makes the functions `names` of a module take `out=`."""
    for name in names:
        if name in namespace:
            namespace[name] = takes_out(namespace[name])


def takes_out(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with a keyword argument `out`: a tensor, or one for each result."""

    @wraps(function)
    def with_out(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        if out is None:
            return function(*args, **kwargs)
        with without_casts():
            return _written(function.__name__, function(*args, **kwargs), out)

    plain = signature(function)
    parameters = list(plain.parameters.values())
    if "out" in plain.parameters:
        return function
    place = len(parameters)
    if parameters and parameters[-1].kind is Parameter.VAR_KEYWORD:
        place -= 1
    parameters.insert(place, Parameter("out", Parameter.KEYWORD_ONLY, default=None))
    with_out.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return with_out


def _written(name: str, result: Any, out: Any) -> Any:
    if isinstance(result, Tensor):
        if not isinstance(out, Tensor):
            raise ArgumentTypeError(
                f"{name}: argument 'out' must be Tensor, not {type(out).__name__}",
                fix="pass a tensor, for example metaop.empty(0)",
            )
        _write(name, result, out)
        return out
    for one, target in zip(result, out, strict=True):
        _write(name, one, target)
    make = getattr(type(result), "_make", tuple)
    return make(out)


def _write(name: str, result: Tensor, out: Tensor) -> None:
    if modes.gradients and (result.requires_grad or out.requires_grad):
        raise GradientError(
            f"{name}(): functions with out=... arguments don't support automatic "
            "differentiation, but one of the arguments requires grad.",
            fix="leave out= away, or call it inside metaop.no_grad()",
        )
    # Of complex tensors the pairs are written.
    result, out = getattr(result, "_pair", result), getattr(out, "_pair", out)
    if out.shape != result.shape:
        resize_(out, result.shape)
    call = convert_for_write(result, out.dtype, name)
    out._rebind(call, name, next_sequence())
