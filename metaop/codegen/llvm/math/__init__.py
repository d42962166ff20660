"""Vector implementations of the mathematical functions, on the builder of LLVM IR.

Every function takes the builder and values of type "float" or "double" with any number of lanes.
There are no calls of the C library and no loops over lanes: pieces of the range are blended.
Floats are good to about 4 units in the last place and doubles to 1e-13 in relative terms; NaN,
infinities, over- and underflow are those of C. The sign of a result that is zero may differ.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from metaop.codegen.llvm.math import exponential, integer, special, trigonometric

if TYPE_CHECKING:
    from metaop.codegen.llvm.builder import Builder

_MODULES = (exponential, trigonometric, special, integer)


class BoundMath:
    """The functions of this package with a builder in place: `builder.math.exp(x)`."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder

    def __getattr__(self, name: str) -> Any:
        for module in _MODULES:
            function = getattr(module, name, None)
            if function is not None:
                bound = partial(function, self._builder)
                setattr(self, name, bound)
                return bound
        raise AttributeError(f"no math function is called {name}")
