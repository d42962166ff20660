"""Pooling over windows of one, two and three dimensions."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any

from metaop.errors import ArgumentError
from metaop.nn.functional.arguments import Sizes, spread
from metaop.operators import fractional_pooling
from metaop.operators import pooling as operators
from metaop.tensor.arguments import is_empty
from metaop.tensor.casting import casts_on_cpu, in_float32
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.functions.random import rand
from metaop.unified_graph.recording import record, results

Pooled = Tensor | tuple[Tensor, Tensor]
OutputSizes = int | None | Sequence[int | None]


def _stride(stride: Sizes | None, kernel: tuple[int, ...]) -> tuple[int, ...]:
    """The stride, which defaults to the kernel's size (for None or an empty sequence)."""
    if stride is None or is_empty(stride):
        return kernel
    return spread(stride, len(kernel), "stride")


def _maxima(input: Tensor, attributes: tuple[Any, ...]) -> Tensor:
    return wrap(record(operators.max_pool, (input.call,), attributes))


_maxima_in_float32 = casts_on_cpu(in_float32)(_maxima)


def _max_pool(spatial: int) -> Callable[..., Pooled]:
    def max_pool(
        input: Tensor,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Pooled:
        kernel = spread(kernel_size, spatial, "kernel_size")
        attributes = (
            kernel,
            _stride(stride, kernel),
            spread(padding, spatial, "padding"),
            spread(dilation, spatial, "dilation"),
            ceil_mode,
        )
        if not return_indices:
            # PyTorch's CPU autocast lists only this three-dimensional form.
            pool = _maxima_in_float32 if spatial == 3 else _maxima
            return pool(input, attributes)
        call = record(operators.max_pool_with_indices, (input.call,), attributes)
        values, indices = results(call)
        return wrap(values), wrap(indices)

    return _named(max_pool, f"max_pool{spatial}d", spatial, _MAX_POOL)


# The input of the examples: one row of four elements in any number of dimensions.
_ROW = ">>> x = metaop.tensor([1.0, 3.0, 7.0, 5.0]).reshape({row})\n"

_MAX_POOL = f"""The maximum of each window of {{shape}}; padding is never chosen.

stride defaults to kernel_size; with `ceil_mode` a last partial window counts too. With
`return_indices` the second result is the indices of the maxima, for `max_unpool`.

{_ROW}>>> F.{{name}}(x, {{window}}).flatten()
tensor([3., 7.])
"""


def _named(function: Callable, name: str, spatial: int, doc: str, **words: str) -> Callable:
    """The function with its name and docstring, whose placeholders fit the dimensions."""
    function.__name__ = function.__qualname__ = name
    extents = ("L", "H, W", "D, H, W")[spatial - 1]
    function.__doc__ = doc.format(
        name=name,
        spatial=spatial,
        shape=f"(N, C, {extents}) or (C, {extents})",
        flat=f"({extents})",
        row=(1,) * (spatial + 1) + (4,),
        window=2 if spatial == 1 else (1,) * (spatial - 1) + (2,),
        **words,
    )
    return function


max_pool1d, max_pool2d, max_pool3d = (_max_pool(spatial) for spatial in (1, 2, 3))


def _with_indices(
    pool: Callable[..., Pooled], spatial: int, given: str = "{window}"
) -> Callable[..., Pooled]:
    """A pool that also returns the indices of the maxima; `given` halves a row in the example."""

    shown = inspect.signature(pool)

    def pool_with_indices(*args: Any, **kwargs: Any) -> Pooled:
        bound = shown.bind(*args, **kwargs).arguments
        return pool(**{**bound, "return_indices": True})

    pool_with_indices.__signature__ = shown  # type: ignore[attr-defined]
    doc = f"`{pool.__name__}` that also returns the indices of the maxima.\n\n" + (
        "An index is that of an element in the flattened {flat} of its channel; the result\n"
        "is two tensors of one shape.\n\n"
        f"{_ROW}>>> F.{{name}}(x, {given})[1].flatten()\ntensor([1, 2])\n"
    )
    return _named(pool_with_indices, pool.__name__ + "_with_indices", spatial, doc)


max_pool1d_with_indices, max_pool2d_with_indices, max_pool3d_with_indices = map(
    _with_indices, (max_pool1d, max_pool2d, max_pool3d), (1, 2, 3)
)


def _average_pool(
    spatial: int,
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    if divisor_override == 0:
        raise ArgumentError("avg_pool: divisor must be not zero", fix="omit it, or pass n > 0")
    kernel = spread(kernel_size, spatial, "kernel_size")
    attributes = (
        kernel,
        _stride(stride, kernel),
        spread(padding, spatial, "padding"),
        ceil_mode,
        count_include_pad,
        divisor_override,
    )
    return wrap(record(operators.average_pool, (input.call,), attributes))


def avg_pool1d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window of (N, C, L) or (C, L); see `avg_pool2d` for the arguments.

    >>> F.avg_pool1d(metaop.tensor([[1.0, 3.0, 7.0, 5.0]]), 2)
    tensor([[2., 6.]])
    """
    return _average_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


def avg_pool2d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window of (N, C, H, W) or (C, H, W).

    stride defaults to kernel_size. Padding counts as zeros unless `count_include_pad` is False;
    `divisor_override` replaces the divisor, the number of elements. Raises ArgumentError if it is
    0.

    >>> F.avg_pool2d(metaop.arange(8.0).reshape(1, 2, 4), 2)
    tensor([[[2.5000, 4.5000]]])
    """
    return _average_pool(
        2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


@casts_on_cpu(in_float32)
def avg_pool3d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window of (N, C, D, H, W) or (C, D, H, W); see `avg_pool2d`.

    >>> F.avg_pool3d(metaop.arange(8.0).reshape(1, 2, 2, 2), 2)
    tensor([[[[3.5000]]]])
    """
    return _average_pool(
        3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


def _power_pool(spatial: int) -> Callable[..., Tensor]:
    def lp_pool(
        input: Tensor,
        norm_type: float,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        ceil_mode: bool = False,
    ) -> Tensor:
        kernel = spread(kernel_size, spatial, "kernel_size")
        steps = _stride(stride, kernel)
        attributes = (float(norm_type), kernel, steps, ceil_mode)
        return wrap(record(operators.power_pool, (input.call,), attributes))

    return _named(lp_pool, f"lp_pool{spatial}d", spatial, _POWER_POOL)


_POWER_POOL = f"""The norm of order `norm_type` of each window of {{shape}}.

It is (sum of x ** norm_type) ** (1 / norm_type); stride defaults to kernel_size.

{_ROW}>>> F.{{name}}(x, 1, {{window}}).flatten()
tensor([ 4., 12.])
"""


lp_pool1d, lp_pool2d = _power_pool(1), _power_pool(2)
lp_pool3d = casts_on_cpu(in_float32)(_power_pool(3))


def _output_size(output_size: OutputSizes, input: Tensor, spatial: int) -> tuple[int, ...]:
    """The output's extents; None keeps the input's."""
    sizes = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * spatial
    if len(sizes) == 1:
        sizes = tuple(sizes) * spatial
    if len(sizes) != spatial:
        raise ArgumentError(
            f"output_size {output_size!r} must have {spatial} elements", fix="or pass one int"
        )
    extents = input.shape[-spatial:]
    return tuple(n if size is None else operator.index(size) for size, n in zip(sizes, extents))


_ADAPTIVE = f"""The {{word}} over windows that divide the extents of {{shape}} into parts.

`output_size` is the number of parts, one for all extents or one for each; None keeps an extent.
Windows overlap where an extent is not a multiple of its number of parts.

{_ROW}>>> F.{{name}}(x, {{window}}).flatten()
tensor([{{halves}}])
"""


def _adaptive_average(spatial: int) -> Callable[..., Tensor]:
    def adaptive_avg_pool(input: Tensor, output_size: OutputSizes) -> Tensor:
        attributes = (_output_size(output_size, input, spatial),)
        return wrap(record(operators.adaptive_average_pool, (input.call,), attributes))

    words = {"word": "mean", "halves": "2., 6."}
    return _named(adaptive_avg_pool, f"adaptive_avg_pool{spatial}d", spatial, _ADAPTIVE, **words)


adaptive_avg_pool1d, adaptive_avg_pool2d = _adaptive_average(1), _adaptive_average(2)
adaptive_avg_pool3d = casts_on_cpu(in_float32)(_adaptive_average(3))


def _adaptive_max(spatial: int) -> Callable[..., Pooled]:
    def adaptive_max_pool(
        input: Tensor, output_size: OutputSizes, return_indices: bool = False
    ) -> Pooled:
        attributes = (_output_size(output_size, input, spatial),)
        call = record(operators.adaptive_max_pool, (input.call,), attributes)
        if not return_indices:
            return wrap(call)
        values, indices = results(call)
        return wrap(values), wrap(indices)

    words = {"word": "maximum", "halves": "3., 7."}
    return _named(adaptive_max_pool, f"adaptive_max_pool{spatial}d", spatial, _ADAPTIVE, **words)


adaptive_max_pool1d, adaptive_max_pool2d = _adaptive_max(1), _adaptive_max(2)
adaptive_max_pool3d = casts_on_cpu(in_float32)(_adaptive_max(3))


(
    adaptive_max_pool1d_with_indices,
    adaptive_max_pool2d_with_indices,
    adaptive_max_pool3d_with_indices,
) = map(_with_indices, (adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d), (1, 2, 3))


def _fractional_max(spatial: int) -> Callable[..., Pooled]:
    def fractional_max_pool(
        input: Tensor,
        kernel_size: Sizes,
        output_size: Sizes | None = None,
        output_ratio: float | Sequence[float] | None = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> Pooled:
        if (output_size is None) == (output_ratio is None):
            raise ArgumentError(
                f"fractional_max_pool{spatial}d needs either output_size or output_ratio",
                fix="pass one of them",
            )
        batched = input if input.ndim == spatial + 2 else input.unsqueeze(0)  # type: ignore
        if output_size is None:
            ratios: Any = output_ratio
            listed = ratios if isinstance(ratios, (tuple, list)) else (ratios,) * spatial
            output = tuple(int(n * r) for n, r in zip(input.shape[-spatial:], listed))
        else:
            output = spread(output_size, spatial, "output_size")
        if _random_samples is None:
            shape = (*batched.shape[:2], spatial)
            _random_samples = rand(*shape, dtype=input.dtype, device=input.device)
        kernel = spread(kernel_size, spatial, "kernel_size")
        calls = (batched.call, _random_samples.call)
        call = record(fractional_pooling.fractional_max_pool, calls, (kernel, output))
        values, indices = (wrap(one) for one in results(call))
        if batched is not input:
            values, indices = values.squeeze(0), indices.squeeze(0)  # type: ignore
        return (values, indices) if return_indices else values

    return _named(fractional_max_pool, f"fractional_max_pool{spatial}d", spatial, _FRACTIONAL)


_FRACTIONAL = f"""The maxima over windows of {{shape}} with random starts.

`output_size` is the number of windows along each extent, `output_ratio` a fraction of it. Raises
ArgumentError unless one of the two is given. From Graham, "Fractional max-pooling" (2014).

{_ROW}>>> F.{{name}}(x, {{window}}, output_size={{window}}).flatten()
tensor([3., 7.])
"""


fractional_max_pool2d, fractional_max_pool3d = (_fractional_max(spatial) for spatial in (2, 3))
fractional_max_pool2d_with_indices, fractional_max_pool3d_with_indices = (
    _with_indices(pool, spatial, "{window}, {window}")
    for spatial, pool in ((2, fractional_max_pool2d), (3, fractional_max_pool3d))
)


def _max_unpool(spatial: int) -> Callable[..., Tensor]:
    def max_unpool(
        input: Tensor,
        indices: Tensor,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        output_size: Sequence[int] | None = None,
    ) -> Tensor:
        kernel = spread(kernel_size, spatial, "kernel_size")
        steps = _stride(stride, kernel)
        pads = spread(padding, spatial, "padding")
        natural = tuple(
            (n - 1) * s - 2 * p + k
            for n, s, p, k in zip(input.shape[-spatial:], steps, pads, kernel)
        )
        output = natural
        if output_size is not None:
            output = tuple(output_size)[-spatial:]
            if any(abs(o - n) >= s for o, n, s in zip(output, natural, steps)):
                raise ArgumentError(
                    f"max_unpool{spatial}d: output_size {list(output)} does not fit the natural "
                    f"size {list(natural)}",
                    fix="it may differ by less than the stride",
                )
        calls = (input.call, indices.call)
        return wrap(record(operators.max_unpool, calls, (output,)))

    return _named(max_unpool, f"max_unpool{spatial}d", spatial, _MAX_UNPOOL)


_MAX_UNPOOL = f"""Writes maxima back to where `max_pool` found them, zeros elsewhere, in {{shape}}.

`output_size` chooses among the extents that pool to the input's. Raises ArgumentError if it
differs from the default by the stride or more.

{_ROW}>>> values, places = F.max_pool{{spatial}}d(x, {{window}}, return_indices=True)
>>> F.{{name}}(values, places, {{window}}).flatten()
tensor([0., 3., 7., 0.])
"""


max_unpool1d, max_unpool2d, max_unpool3d = (_max_unpool(spatial) for spatial in (1, 2, 3))
