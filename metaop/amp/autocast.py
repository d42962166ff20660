"""`autocast`: contractions in low precision, what needs range in float32."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from metaop.errors import ArgumentError, ArgumentTypeError
from metaop.tensor.casting import Casts, cast_operands
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.recording import modes

_low_precision = {"cpu": dtypes.bfloat16, "cuda": dtypes.float16}


def is_autocast_available(device_type: str) -> bool:
    """Whether `autocast` takes the device type.

    An unknown device type raises no error: there are no casts for it.

    >>> metaop.amp.is_autocast_available("cpu"), metaop.amp.is_autocast_available("toaster")
    (True, False)
    """
    return device_type in _low_precision


def _check_known(device_type: str) -> None:
    if not is_autocast_available(device_type):
        raise ArgumentError(
            f"autocast does not know the device type {device_type!r}", fix='pass "cpu" or "cuda"'
        )


class autocast:
    """A context manager, and a decorator, that runs contractions in low precision.

    The low precision is bfloat16 on the CPU and float16 on GPUs unless `dtype` says otherwise.
    Other functions run in float32, or in the types that they are given, by PyTorch's lists for
    the device type. In-place methods and calls with `out=` cast nothing.
    Parameters stay float32, and so do their gradients. Blocks with `enabled=False` inside switch
    the casts off.

    Raises ArgumentError for a device type that has no casts.

    >>> with metaop.amp.autocast("cpu"):
    ...     product = metaop.ones(2, 3) @ metaop.ones(3, 2)
    >>> product.dtype, product.shape
    (metaop.bfloat16, metaop.Size([2, 2]))
    """

    def __init__(
        self,
        device_type: str,
        dtype: DType | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if not isinstance(device_type, str):
            raise ArgumentTypeError(
                f"Expected `device_type` of type `str`, got: `{type(device_type)}`",
                fix='pass "cpu" or "cuda"',
            )
        _check_known(device_type)
        self.device = device_type
        self.fast_dtype = dtype or _low_precision[device_type]
        self._enabled = enabled
        self._previous: list[Casts | None] = []

    def __enter__(self) -> autocast:
        self._previous.append(modes.casts)
        modes.casts = Casts(self.device, self.fast_dtype) if self._enabled else None
        return self

    def __exit__(self, *error: object) -> None:
        modes.casts = self._previous.pop()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return inside


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """Whether the program runs inside `autocast` (for the device type).

    >>> with metaop.autocast("cpu"):
    ...     metaop.is_autocast_enabled("cpu"), metaop.is_autocast_enabled("cuda")
    (True, False)
    """
    casts = modes.casts
    return casts is not None and device_type in (None, casts.device_type)


def get_autocast_dtype(device_type: str) -> DType:
    """The low precision of a device type.

    >>> metaop.get_autocast_dtype("cpu"), metaop.get_autocast_dtype("cuda")
    (metaop.bfloat16, metaop.float16)
    """
    casts = modes.casts
    if casts is not None and casts.device_type == device_type:
        return casts.low
    _check_known(device_type)
    return _low_precision[device_type]


def is_autocast_cpu_enabled() -> bool:
    """Whether the program runs inside `autocast("cpu")`.

    >>> metaop.is_autocast_cpu_enabled()
    False
    """
    return is_autocast_enabled("cpu")


def get_autocast_cpu_dtype() -> DType:
    """The low precision of the CPU.

    >>> metaop.get_autocast_cpu_dtype()
    metaop.bfloat16
    """
    return get_autocast_dtype("cpu")


def get_autocast_gpu_dtype() -> DType:
    """The low precision of GPUs.

    >>> metaop.get_autocast_gpu_dtype()
    metaop.float16
    """
    return get_autocast_dtype("cuda")


def set_autocast_dtype(device_type: str, dtype: DType) -> None:
    """Sets the low precision that `autocast` takes for a device type by default.

    >>> metaop.set_autocast_dtype("cpu", metaop.float16)
    >>> metaop.get_autocast_dtype("cpu")
    metaop.float16
    >>> metaop.set_autocast_dtype("cpu", metaop.bfloat16)
    """
    _check_known(device_type)
    _low_precision[device_type] = dtype


def custom_fwd(
    fwd: Callable[..., Any] | None = None,
    *,
    device_type: str = "cuda",
    cast_inputs: DType | None = None,
) -> Callable[..., Any]:
    """Decorates `Function.forward`: with `cast_inputs`, it runs on cast operands without casts.

    Operands keep their shapes; those that are no floats stay as they are.

    >>> @metaop.amp.custom_fwd(device_type="cpu", cast_inputs=metaop.float32)
    ... def forward(context, x):
    ...     return x.dtype
    >>> with metaop.amp.autocast("cpu"):
    ...     forward(None, metaop.ones(2).bfloat16())
    metaop.float32
    """
    if fwd is None:
        return lambda function: custom_fwd(
            function, device_type=device_type, cast_inputs=cast_inputs
        )
    forward = fwd

    @wraps(forward)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if cast_inputs is None or not is_autocast_enabled(device_type):
            return forward(*args, **kwargs)
        with autocast(device_type, enabled=False):
            cast, named = cast_operands((args, kwargs), device_type, cast_inputs)
            return forward(*cast, **named)

    return wrapped


def custom_bwd(
    bwd: Callable[..., Any] | None = None, *, device_type: str = "cuda"
) -> Callable[..., Any]:
    """Decorates `Function.backward`; gradients have the types of what they belong to anyway.

    Gradients keep their shapes. `device_type` changes nothing.

    >>> class Double(metaop.autograd.Function):
    ...     @staticmethod
    ...     def forward(context, x):
    ...         return 2 * x
    ...     @staticmethod
    ...     @metaop.amp.custom_bwd(device_type="cpu")
    ...     def backward(context, slope):
    ...         return 2 * slope
    >>> x = metaop.ones(3, requires_grad=True)
    >>> Double.apply(x).sum().backward()
    >>> x.grad.tolist()
    [2.0, 2.0, 2.0]
    """
    return (lambda function: function) if bwd is None else bwd
