"""The functions of `metaop`, made as their declarations say (`surface.py`)."""

from __future__ import annotations

from metaop.tensor.core import Tensor
from metaop.tensor.out import takes_out
from metaop.tensor.surface import DECLARED, IN_PLACE_FUNCTIONS

for _name, _declared in DECLARED.items():
    _function = takes_out(_declared.function) if _declared.out else _declared.function
    globals()[_name] = _function

# `metaop.relu_(x)` is `x.relu_()`.
globals().update({_name: getattr(Tensor, _name) for _name in IN_PLACE_FUNCTIONS})
__all__ = [*DECLARED, *IN_PLACE_FUNCTIONS]
