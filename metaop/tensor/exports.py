"""The functions of `metaop`, made as their declarations say (`surface.py`)."""

from __future__ import annotations

from metaop.tensor.core import Tensor
from metaop.tensor.operands import names_operands
from metaop.tensor.out import takes_out
from metaop.tensor.surface import DECLARED, IN_PLACE_FUNCTIONS

for _name, _declared in DECLARED.items():
    _offered = takes_out if _declared.out else names_operands
    globals()[_name] = _offered(_declared.function, "metaop")

# `metaop.relu_(x)` is `x.relu_()`.
globals().update({_name: getattr(Tensor, _name) for _name in IN_PLACE_FUNCTIONS})
__all__ = [*DECLARED, *IN_PLACE_FUNCTIONS]
