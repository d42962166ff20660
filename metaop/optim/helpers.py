"""What optimizers of other people import from beside PyTorch's own: most are copies of those.

They sort tensors for kernels over many tensors at once, or choose between such kernels and others.
One composite updates all tensors here, so nothing is to be chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

from metaop.tensor.core import Tensor
from metaop.tensor.functions.complex_numbers import view_as_real
from metaop.tensor.functions.conversion import get_default_dtype
from metaop.tensor.grad_mode import set_grad_enabled
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType

TensorLists = Sequence[Sequence[Tensor | None]]
Grouped = dict[tuple[Any, Any], tuple[list[list[Tensor | None]], list[int]]]


def group_tensors(tensorlistlist: TensorLists, with_indices: bool = False) -> Grouped:
    """The columns of lists of equal length, by device and dtype of the first list.

    The values are the lists of these columns and, `with_indices`, the numbers of the columns.

    >>> x, y = metaop.ones(2), metaop.ones(2, dtype=metaop.int64)
    >>> groups = metaop.optim.helpers.group_tensors([[x, y, x]], with_indices=True)
    >>> [indices for _, indices in groups.values()]
    [[0, 2], [1]]
    """
    groups: Grouped = {}
    for index, (first, *others) in enumerate(zip(*tensorlistlist, strict=True)):
        assert first is not None, "only the first list decides, so it has a tensor everywhere"
        key = (first.device, first.dtype)
        lists, indices = groups.setdefault(key, ([[] for _ in tensorlistlist], []))
        for column, tensor in zip(lists, (first, *others), strict=True):
            column.append(tensor)
        if with_indices:
            indices.append(index)
    return groups


def supported_devices() -> list[str]:
    """The devices on which a call may update many tensors."""
    return ["cpu", "cuda"]


def choose_kernels(
    params: Iterable[Tensor], differentiable: bool, use_fused: bool = False
) -> tuple[bool, bool]:
    """Neither fused nor over lists: the loop over parameters is recorded as one program."""
    return False, False


def use_grad_if_differentiable(step: Callable[..., Any]) -> Callable[..., Any]:
    """A step that records gradients only if the optimizer's settings say `differentiable`."""

    @wraps(step)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        with set_grad_enabled(self.defaults["differentiable"]):
            return step(self, *args, **kwargs)

    return wrapped


def no_compilation(single_tensor_fn: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """A decorator that changes nothing."""
    return lambda function: function


def number_of(x: Any) -> Any:
    """A step or setting as a Python number."""
    return x.item() if isinstance(x, Tensor) else x


def square_root(x: Any) -> Any:
    """The root of a number or a tensor.

    >>> metaop.optim.helpers.square_root(4), metaop.optim.helpers.square_root(metaop.tensor(4.0))
    (2.0, tensor(2.))
    """
    return x.sqrt() if isinstance(x, Tensor) else math.sqrt(x)


def unchanged(x: Any) -> Any:
    """What is done only while PyTorch compiles."""
    return x


def without_axes(x: Any) -> Any:
    """A tensor of one element without its axes."""
    return x.squeeze() if isinstance(x, Tensor) and x.ndim else x


def as_real(params: list[Tensor], *state_and_grads: list[Tensor]) -> None:
    """Replaces complex tensors in lists by real views of them, where the parameter is complex."""
    for i, parameter in enumerate(params):
        if parameter.is_complex():
            for tensors in (params, *state_and_grads):
                tensors[i] = view_as_real(tensors[i])


def dtype_of_steps(is_fused: bool | None = None) -> DType:
    """The dtype of a count of steps that is a tensor."""
    if is_fused:
        return dtypes.float32
    return dtypes.float64 if get_default_dtype() == dtypes.float64 else dtypes.float32
