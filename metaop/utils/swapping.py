"""`swap_tensors`: exchanging two tensors where everything that holds them stays as it is."""

from __future__ import annotations

from metaop.differentiation.tape import origin
from metaop.errors import ArgumentTypeError
from metaop.tensor.attributes import fields
from metaop.tensor.core import Tensor
from metaop.tensor.history import accumulator
from metaop.unified_graph.cut import recorder


def swap_tensors(t1: Tensor, t2: Tensor) -> None:
    """Makes each of two tensors what the other was: value, gradient, class and attributes.

    Results that depend on a leaf send their gradient to the tensor that has become this leaf. Views
    do not follow, so swap no tensor that has any. Raises ArgumentTypeError for anything else than
    tensors.

    >>> parameter, values = nn.Parameter(metaop.ones(2)), metaop.zeros(3)
    >>> metaop.utils.swap_tensors(parameter, values)
    >>> parameter, type(values).__name__
    (tensor([0., 0., 0.]), 'Parameter')
    """
    for tensor in (t1, t2):
        if not isinstance(tensor, Tensor):
            raise ArgumentTypeError(f"swap_tensors: {type(tensor).__name__} is no tensor")
    first, second = dict(fields(t1)), dict(fields(t2))
    t1.__class__, t2.__class__ = t2.__class__, t1.__class__
    _become(t1, second)
    _become(t2, first)


def _become(tensor: Tensor, contents: dict) -> None:
    own = fields(tensor)
    own.clear()
    own.update(contents)
    for tape in (origin(tensor.call).tape, tensor._frozen_tape):
        if tape is not None and tape.accumulate is not None:
            tape.accumulate = accumulator(tensor)
        if tape is not None and tape.retains:
            tape.retains[:] = [accumulator(tensor)]
    if tensor.call.buffer is None:
        recorder.watch(tensor)
