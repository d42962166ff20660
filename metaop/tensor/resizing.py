"""Changing the size of a tensor in place."""

from __future__ import annotations

from typing import Any

from metaop.errors import GradientError, UnsupportedError
from metaop.operators import shaping as operators
from metaop.tensor.core import Tensor
from metaop.tensor.options import shape_of
from metaop.tensor.surface import method, public
from metaop.unified_graph.recording import record


@method()
def resize_(input: Tensor, *sizes: Any, memory_format: Any = None) -> Tensor:
    """Gives the tensor another shape: elements keep their row-major order, new ones are 0.

    Raises UnsupportedError for views, whose base would have to change too.
    """
    shape = shape_of(sizes)
    call = input.call
    if shape == call.type.shape:
        return input
    if call.requires_grad:
        raise GradientError(
            "cannot resize variables that require grad", fix="detach the tensor first"
        )
    if input._base is not None:
        raise UnsupportedError("resize_ of a view", fix="clone() the tensor first")
    count = 1
    for extent in shape:
        count *= extent
    call = record(operators.reshape, (call,), ((call.type.size,),))
    if count < call.type.size:
        call = record(operators.narrow, (call,), (0, 0, count))
    elif count > call.type.size:
        call = record(operators.pad, (call,), ((0,), (count - call.type.size,), 0))
    input._cell = None
    input._bind(record(operators.reshape, (call,), (shape,)))
    return input


@public(method=True)
def resize_as_(input: Tensor, the_template: Tensor, *, memory_format: Any = None) -> Tensor:
    """`resize_` to the shape of another tensor.

    >>> metaop.resize_as_(metaop.arange(4), metaop.zeros(2, 1))
    tensor([[0],
            [1]])
    """
    return resize_(input, the_template.shape)
