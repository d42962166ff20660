"""A lean builder of LLVM IR text, on which kernels and the vector math functions are written.

    builder = Builder(target)
    x = builder.argument("ptr", "x")
    y = builder.load(x, "float", lanes=8) * 2.0
    builder.store(y, x)
    builder.finish_function("double_it", [x])
    address = compile_kernel(builder.module_text(), "double_it")

Values carry their element type and lanes; every operation works for scalars and for vectors of
any power of two, and mixes both by splatting. 16-bit floats are computed as "float" and booleans
as "i1"; callers decide how to store them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from metaop.codegen.llvm.instructions.core import BuilderTarget
from metaop.codegen.llvm.instructions.memory_access import MemoryAccess
from metaop.codegen.llvm.instructions.value import Value

if TYPE_CHECKING:
    from metaop.codegen.llvm.math import BoundMath

__all__ = ["AS_WRITTEN", "Builder", "BuilderTarget"]

# The attribute of functions whose loops and addresses the code generator should not rewrite.
AS_WRITTEN = '"metaop-as-written"'


class Builder(MemoryAccess):
    """Collects the instructions of one function at a time, and the functions of one module.

    `block` is the label of the block that is being filled. `math` has the functions of
    `codegen.llvm.math` with this builder bound: `builder.math.exp(x)`. `is_as_written` is set for
    functions around register tiles.
    """

    is_as_written = False

    @functools.cached_property
    def math(self) -> BoundMath:
        """The vector math functions, bound to this builder."""
        from metaop.codegen.llvm.math import BoundMath

        return BoundMath(self)

    # Functions and the module

    def finish_function(self, symbol: str, parameters: Sequence[Value]) -> None:
        """Ends the function; the instructions that follow start another."""
        self.line("ret void")
        listed = ", ".join(parameter.typed for parameter in parameters)
        head = f"define void @{symbol}({listed}) #0 {{\nentry:"
        self._functions.append("\n".join([head, *self.lines, "}"]))
        self.lines = []
        self.block = "entry"

    def module_text(self) -> str:
        """The module with the functions finished so far."""
        width = self.target.vector_bytes * 8
        attributes = f'nounwind "prefer-vector-width"="{width}"'
        if self.is_as_written:
            attributes += f" {AS_WRITTEN}"
        ends = [f"attributes #0 = {{ {attributes} }}", "!0 = !{i32 1}"]
        parts = [*self._functions, *self._declarations, *ends]
        return "\n".join(parts) + "\n"
