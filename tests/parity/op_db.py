"""Runs entries of PyTorch's operator database in metaop and compares them with PyTorch.

An entry names an operator and makes sample inputs. Its function, method, in-place method and
`out=` form are compared: values, dtypes, shapes, and the gradients of random cotangents.
"""

from __future__ import annotations

import itertools
import os
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.testing._internal import common_utils
from torch.testing._internal.opinfo import core

import metaop
from tests.parity.names import resolve

# Where metaop computes: METAOP_TEST_DEVICE=cuda asks for a GPU.
PLACE = os.environ.get("METAOP_TEST_DEVICE", "cpu")
metaop.set_default_device(PLACE)

# For each sample the database looks through the whole stack for a unittest that asks for it, and
# seeds GPUs that may be found later, for which PyTorch notes the stack: a third of all the time.
# There are neither.
for _module in (common_utils, core):
    _module.extract_test_fn = lambda: None
for _gpus in (torch.cuda, torch.mtia, torch.xpu):
    _gpus.manual_seed_all = lambda seed: None

DTYPES = (torch.float64, torch.float32, torch.int64, torch.bool)
COMPLEX = (torch.complex128, torch.complex64)
TOLERANCES = {torch.float64: 1e-7, torch.float32: 3e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
SAMPLES = {torch.float64: 4, torch.complex128: 3, torch.complex64: 1}
LARGEST_SAMPLE = 5000

# What draws random numbers gives other numbers than PyTorch: shapes and dtypes are compared.
RANDOM = {
    *("bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal"),
    *("rand_like", "randint", "randint_like", "randn", "randn_like", "uniform", "empty"),
    *("empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"),
    *("nn.functional.alpha_dropout", "nn.functional.dropout", "nn.functional.dropout2d"),
    *("nn.functional.dropout3d", "nn.functional.feature_alpha_dropout", "nn.functional.rrelu"),
    *("nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d"),
    *("svd_lowrank", "pca_lowrank", "nn.functional.multi_head_attention_forward"),
}
# Bases of spaces are unique up to signs or rotations: these are compared by their products.
BASES: dict[str, Callable[[Any], Any]] = {
    "svd": lambda r: (
        (r[0][..., : r[1].shape[-1]] * r[1].unsqueeze(-2)) @ r[2][..., : r[1].shape[-1]].mH
    ),
    "linalg.svd": lambda r: (
        (r[0][..., : r[1].shape[-1]] * r[1].unsqueeze(-2)) @ r[2][..., : r[1].shape[-1], :]
    ),
    "linalg.eigh": lambda r: (r[1] * r[0].unsqueeze(-2)) @ r[1].mH,
    "qr": lambda r: r[0] @ r[1],
    # Of equal elements any may be chosen.
    "topk": lambda r: r[0],
    "kthvalue": lambda r: r[0],
    "linalg.qr": lambda r: r[1] if r[0].numel() == 0 else r[0] @ r[1],
}


# PyTorch's approximations have errors of this size: metaop's values are those of SciPy.
APPROXIMATE = {
    **dict.fromkeys(("special.bessel_j0", "special.bessel_j1", "special.bessel_y0"), 1e-6),
    **{"special.bessel_y1": 1e-6, "special.airy_ai": 1e-6},
}


# Products of matrices round relative to the largest element; so many roundings may add up.
OF_MATRICES, _ROUNDINGS = {"matrix_exp"}, 16


class Difference(AssertionError):
    """A result of metaop that is not PyTorch's."""


class OutOfScope(Exception):
    """A sample with sparse tensors or types that metaop has not."""


def name_of(entry: Any) -> str:
    """The name of an entry, with its variant after a slash."""
    return entry.name + (f"/{entry.variant_test_name}" if entry.variant_test_name else "")


def counterpart(entry: Any) -> Callable[..., Any] | None:
    """The function of metaop that an entry's operator stands for, None when there is none."""
    function = entry.op
    if isinstance(function, types.FunctionType) and "testing" in function.__module__:
        return rebound(function)
    found = resolve(metaop, entry.name.split("."))
    return found if callable(found) else getattr(metaop.Tensor, entry.name, None)


def rebound(function: types.FunctionType) -> types.FunctionType:
    """A wrapper of the database: the same code with metaop in the place of PyTorch."""
    names = {**function.__globals__, "torch": metaop, "F": metaop.nn.functional}
    result = types.FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )
    result.__kwdefaults__ = function.__kwdefaults__
    return result


def to_metaop(value: Any) -> Any:
    """Arguments of PyTorch as arguments of metaop."""
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            raise OutOfScope("sparse")
        result = _with_storage(value.detach().resolve_conj().resolve_neg())
        return result.requires_grad_() if value.requires_grad else result
    if isinstance(value, torch.dtype):
        found = getattr(metaop, str(value).removeprefix("torch."), None)
        if found is None:
            raise OutOfScope(str(value))
        return found
    if isinstance(value, (torch.device, str)):
        return PLACE if str(value) == "cpu" else str(value)
    if isinstance(value, (torch.layout, torch.memory_format)):
        return getattr(metaop, str(value).removeprefix("torch."))
    if isinstance(value, (torch.Size, list, tuple)):
        kind = tuple if isinstance(value, torch.Size) else type(value)
        return kind(to_metaop(item) for item in value)
    if isinstance(value, dict):
        return {key: to_metaop(item) for key, item in value.items()}
    if isinstance(value, torch.nn.Module):
        return getattr(metaop.nn, type(value).__name__)()
    if isinstance(value, types.FunctionType):
        return rebound(value)
    if isinstance(value, slice):
        return slice(*(to_metaop(part) for part in (value.start, value.stop, value.step)))
    return value


def _with_storage(value: torch.Tensor) -> metaop.Tensor:
    """The values of a tensor; a view of more than it shows becomes such a view."""
    extent = value.untyped_storage().nbytes() // value.itemsize
    if extent > value.numel() and value.numel():
        whole = _with_storage(value.as_strided((extent,), (1,), 0))
        return whole.as_strided(tuple(value.shape), value.stride(), value.storage_offset())
    array = value.contiguous()
    if value.dtype is torch.bfloat16:
        return metaop.tensor(array.float().numpy()).to(metaop.bfloat16)
    return metaop.tensor(array.numpy().copy())


def leaves(value: Any) -> Iterator[Any]:
    """All tensors and numbers in nested results, in order."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (list, tuple)) and not isinstance(value, (torch.Size, metaop.Size)):
        for item in value:
            yield from leaves(item)
    elif value is not None:
        yield value


def compare(
    actual: Any, expected: Any, random: bool, scale: float = 1.0, of_matrices: bool = False
) -> None:
    """Raises `Difference` unless two results agree in everything that is defined."""
    mine, theirs = list(leaves(actual)), list(leaves(expected))
    if len(mine) != len(theirs):
        raise Difference(f"{len(mine)} results instead of {len(theirs)}")
    for one, other in zip(mine, theirs):
        if not isinstance(other, torch.Tensor):
            plain = getattr(one, "name", None) or one
            if str(plain) != str(other).removeprefix("torch.") and plain != other:
                if not random and not np.isclose(plain, other):
                    raise Difference(f"{one!r} instead of {other!r}")
            continue
        if other.layout is not torch.strided:
            raise OutOfScope("sparse result")
        dtype = str(other.dtype).removeprefix("torch.")
        if one.dtype.name != dtype:
            raise Difference(f"dtype {one.dtype.name} instead of {dtype}")
        if tuple(one.shape) != tuple(other.shape):
            raise Difference(f"shape {tuple(one.shape)} instead of {tuple(other.shape)}")
        if other.dtype.is_complex:
            one, other = metaop.view_as_real(one), torch.view_as_real(other.resolve_conj())
        if not random:
            compare_values(one, other.resolve_neg(), scale, of_matrices)


def compare_values(one: Any, other: torch.Tensor, scale: float, of_matrices: bool) -> None:
    got = one.detach().numpy(force=True).astype(np.float64)
    # PyTorch keeps gradients of zero without memory.
    want = other.detach().to(torch.float64).numpy(force=True)
    tolerance = scale * TOLERANCES.get(other.dtype, 0.0)
    least = tolerance
    if of_matrices and other.dtype.is_floating_point:
        rounding = torch.finfo(other.dtype).eps * np.abs(want).max(initial=0)
        least = max(tolerance, _ROUNDINGS * rounding)
    if not np.allclose(got, want, rtol=tolerance, atol=least, equal_nan=True):
        with np.errstate(all="ignore"):
            error = np.nanmax(np.abs(got - want))
        raise Difference(f"values differ by up to {error:.2g}")


def samples_of(entry: Any, dtype: torch.dtype, requires_grad: bool) -> list[Any]:
    """A few small samples, spread over those that the entry makes."""
    torch.manual_seed(0)
    np.random.seed(0)
    made = list(
        itertools.islice(entry.sample_inputs("cpu", dtype, requires_grad=requires_grad), 40)
    )
    small = [sample for sample in made if _size(sample) <= LARGEST_SAMPLE] or made[:1]
    count = SAMPLES.get(dtype, 2)
    return small[:: max(1, -(-len(small) // count))]


def _size(sample: Any) -> int:
    values = (sample.input, sample.args, sample.kwargs)
    tensors = (x for x in leaves(values) if isinstance(x, torch.Tensor))
    return sum(x.numel() for x in tensors)


class Comparison:
    """Everything that is compared for one entry; `failures` says what went wrong."""

    def __init__(self, entry: Any) -> None:
        self.entry = entry
        self.function = counterpart(entry)
        self.failures: list[str] = []
        self.compared = 0
        self.out_of_scope: set[str] = set()
        self._bounds = APPROXIMATE.get(entry.name, 1e-7) / 1e-7, entry.name in OF_MATRICES

    def run(self, dtypes: Sequence[torch.dtype] = DTYPES) -> Comparison:
        """Compares samples of some dtypes."""
        if self.function is None:
            self.failures.append("missing")
            return self
        supported = self.entry.supported_dtypes("cpu")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for dtype in dtypes if supported & set(dtypes) else COMPLEX:
                if dtype in supported:
                    self._run_dtype(dtype)
        if not self.compared and not self.failures:
            self.failures.append("nothing was compared")
        return self

    def _run_dtype(self, dtype: torch.dtype) -> None:
        exact = dtype in (torch.float64, torch.complex128)
        differentiable = exact and self.entry.supports_autograd
        for number, sample in enumerate(samples_of(self.entry, dtype, differentiable)):
            for form, function in self._forms(number, dtype):
                try:
                    function(sample)
                    self.compared += 1
                except OutOfScope as reason:
                    self.out_of_scope.add(str(reason))
                except Exception as error:
                    text = str(error).split("\n")[0][:150]
                    kind = "" if isinstance(error, Difference) else type(error).__name__ + ": "
                    self.failures.append(f"{form} {str(dtype)[6:]} sample {number}: {kind}{text}")

    def _forms(self, number: int, dtype: torch.dtype) -> Iterator[tuple[str, Callable]]:
        entry, method = self.entry, getattr(metaop.Tensor, self.entry.name, None)
        yield "function", self.compare_function
        if number or dtype not in (torch.float64, torch.int64, torch.complex128):
            return
        if _is_real(entry.method_variant):
            yield "method", lambda sample: self.compare_method(sample, method)
        if _is_real(entry.inplace_variant) and dtype is torch.float64:
            yield "in-place", self.compare_in_place
        # The functions of nn.functional take `out` in PyTorch by accident only.
        documented = not entry.name.startswith("nn.functional.")
        if entry.supports_out and documented and dtype is torch.float64:
            yield "out", self.compare_out

    def compare_function(self, sample: Any) -> None:
        """Values and gradients of the plain function."""
        mine = to_metaop((sample.input, sample.args, sample.kwargs))
        theirs = (sample.input, sample.args, sample.kwargs)
        # Makes the input symmetric, or triangular, where an operator takes only such matrices.
        around = self.entry.gradcheck_wrapper
        with_torch = around(self.entry.op, theirs[0], *theirs[1], **theirs[2])
        if "masked" in around.__name__:
            with_metaop = self._unmasked(sample, self.function(mine[0], *mine[1], **mine[2]))
        else:
            with_metaop = rebound(around)(self.function, mine[0], *mine[1], **mine[2])
        expected = self._prepared(sample, with_torch)
        actual = self._prepared(sample, with_metaop)
        gradients = _gradients(mine, theirs, actual, expected, self.entry.name in RANDOM)
        random = self.entry.name in RANDOM or sample.kwargs.get("dropout_p", 0) > 0
        compare(actual, expected, random, *self._bounds)
        if not random:
            self._compare_gradients(*gradients)

    def _unmasked(self, sample: Any, result: Any) -> Any:
        """Zeros where no element was let through: what PyTorch gives there is not defined."""
        options = sample.kwargs
        if options.get("input_mask") is not None and options.get("other_mask") is not None:
            mask = options["input_mask"] & options["other_mask"]
        elif options.get("mask") is not None:
            mask = torch.masked._output_mask(self.entry.op, sample.input, *sample.args, **options)
        else:
            return result
        return metaop.where(to_metaop(mask), result, result.new_zeros(()))

    def _compare_gradients(self, actual: list[Any], expected: list[Any]) -> None:
        for one, other in zip(actual, expected):
            if one is None or other is None:
                rest = other if one is None else one
                if rest is not None and bool((rest != 0).any()):
                    raise Difference("a gradient is missing or superfluous")
                continue
            try:
                compare(one, other, False, 10.0)
            except Difference as difference:
                raise Difference(f"gradient: {difference}") from None

    def compare_method(self, sample: Any, method: Any) -> None:
        """The method of tensors beside PyTorch's function."""
        if method is None:
            raise Difference("missing")
        first, args, options = to_metaop((sample.input, sample.args, sample.kwargs))
        expected = self.entry.method_variant(sample.input, *sample.args, **sample.kwargs)
        actual = getattr(first, self.entry.name)(*args, **options)
        prepared = (self._prepared(sample, actual), self._prepared(sample, expected))
        compare(*prepared, self.entry.name in RANDOM)

    def compare_in_place(self, sample: Any) -> None:
        """The in-place method on a copy of the input."""
        name = self.entry.name + "_"
        if not hasattr(torch.Tensor, name):
            return
        theirs = sample.input.detach().clone()
        try:
            self.entry.inplace_variant(theirs, *sample.args, **sample.kwargs)
        except RuntimeError:
            return
        mine, args, options = to_metaop((sample.input.detach(), sample.args, sample.kwargs))
        if not hasattr(mine, name):
            raise Difference(f"{name} is missing")
        result = getattr(mine, name)(*args, **options)
        if result is not mine:
            raise Difference("the result is not the tensor itself")
        compare(mine, theirs, self.entry.name in RANDOM)

    def compare_out(self, sample: Any) -> None:
        """`out=` with tensors of the right type and shape."""
        with torch.no_grad(), metaop.no_grad():
            expected = self.entry.op(sample.input, *sample.args, **sample.kwargs)
            mine, args, options = to_metaop((sample.input, sample.args, sample.kwargs))
            if isinstance(expected, bool):
                return
            if isinstance(expected, torch.Tensor):
                out = to_metaop(torch.zeros_like(expected))
            elif all(isinstance(item, torch.Tensor) for item in expected):
                out = tuple(to_metaop(torch.zeros_like(item)) for item in expected)
            else:
                return
            self.function(mine, *args, **options, out=out)
            prepared = (self._prepared(sample, out), self._prepared(sample, expected))
            compare(*prepared, self.entry.name in RANDOM, *self._bounds)

    def _prepared(self, sample: Any, result: Any) -> Any:
        """The part of a result that is unique."""
        prepare = sample.output_process_fn_grad
        if self.entry.name in BASES and isinstance(result, tuple):
            return BASES[self.entry.name](result)
        try:
            return prepare(result)
        except (AttributeError, TypeError):
            return result


def _is_real(variant: Any) -> bool:
    """Whether a variant is PyTorch's own, not a helper of the database."""
    return variant is not None and not (
        isinstance(variant, types.FunctionType) and "testing" in variant.__module__
    )


def _gradients(
    mine: Any, theirs: Any, actual: Any, expected: Any, random: bool
) -> tuple[list, list]:
    if random:
        return [], []
    pairs = [
        (a, e)
        for a, e in zip(leaves(actual), leaves(expected))
        if isinstance(e, torch.Tensor) and e.requires_grad
    ]
    inputs = [
        (m, t)
        for m, t in zip(leaves(mine), leaves(theirs))
        if isinstance(t, torch.Tensor) and t.requires_grad
    ]
    if not pairs or not inputs:
        return [], []
    if not all(a.requires_grad for a, _ in pairs):
        raise Difference("the result does not require grad")
    draw = np.random.default_rng(0).uniform
    cotangents = [_cotangent(e, draw) for _, e in pairs]
    expected_gradients = torch.autograd.grad(
        [e for _, e in pairs], [t for _, t in inputs], cotangents, allow_unused=True
    )
    found = metaop.autograd.grad(
        [a for a, _ in pairs],
        [m for m, _ in inputs],
        [to_metaop(g) for g in cotangents],
        allow_unused=True,
    )
    return list(found), list(expected_gradients)


def _cotangent(expected: torch.Tensor, draw: Callable[..., Any]) -> torch.Tensor:
    shape = (*expected.shape, 2) if expected.dtype.is_complex else tuple(expected.shape)
    numbers = torch.from_numpy(np.asarray(draw(0.5, 1.5, shape)))
    if expected.dtype.is_complex:
        numbers = torch.complex(numbers[..., 0], numbers[..., 1])
    return numbers.to(expected.device, expected.dtype)


def is_public(entry: Any) -> bool:
    """Whether the operator is part of PyTorch's documented interface.

    Private kernels (`_softmax_backward_data`, `ops.aten…`, `unsafe_chunk`, the `_copy` variants
    of views for tracers) and the CUDA jiterator are not.
    """
    name = entry.name
    last = name.rsplit(".", 1)[-1]
    private = name.startswith(("_", "torch._", "torch.ops.", "jiterator_", "native_", "unsafe_"))
    if name.startswith("__") and name.endswith("__"):
        return True
    return not (private or last.endswith(("_copy", "_backward")) or name in _UNDOCUMENTED)


_UNDOCUMENTED = {
    *("constant_pad_nd", "empty_permuted", "fill", "grid_sampler_2d", "grid_sampler_3d"),
    *("hash_tensor", "max_pool2d_with_indices_backward", "nonzero_static", "slice"),
    *("nn.functional.linear_cross_entropy", "zero_", "resize_", "resize_as_"),
}
