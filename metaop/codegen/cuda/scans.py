"""Loops in which each lane needs what is accumulated up to it, as C++."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from metaop.codegen.cuda.prelude import combined, identity, scan_function
from metaop.codegen.cuda.types import compute_type
from metaop.codegen.nest import ir
from metaop.codegen.nest.neighbours import Access

if TYPE_CHECKING:
    from metaop.codegen.cuda.statements import Statements


def print_scan(to: Statements, loop: ir.For, width: int, parted: Sequence[Access]) -> None:
    """Prints a vector loop with a running accumulator; `parted` access `width` elements at once.

    A lane combines a few neighbours, all lanes tell each other what they have, and the result of
    all so far is carried on. Lanes past the end take part with the identity. What follows the
    accumulation uses the index and the result alone.
    """
    (one,) = loop.accumulators
    position = next(k for k, s in enumerate(loop.body) if isinstance(s, ir.Accumulate))
    accumulate = loop.body[position]
    assert isinstance(accumulate, ir.Accumulate)
    axis, ctype, start = loop.axis, compute_type(one.dtype), identity(one.reducer, one.dtype)
    name, to.functions[name] = scan_function(one.reducer, one.dtype, to.layout.lanes)
    local, before, own = (f"{one.name}_{part}" for part in ("sum", "before", "own"))
    lane = "lane" if width == 1 else f"lane * {width}"
    chunks = loop._replace(axis=f"{axis}_chunk", kind="serial")
    with to.looping(chunks, step=str(to.layout.lanes * width)), to.alone():
        to.line(f"const index_t {axis}_lane = {axis}_chunk + {lane};")
        to.line(f"const bool {axis}_inside = {axis}_lane < {to.extent(loop)};")
        to.line(f"const index_t {axis}_first = {axis}_inside ? {axis}_lane : 0;")
        for access in parted:
            if isinstance(access, ir.Load):
                to.part(access, axis, f"{axis}_first", width)
        to.line(f"{ctype} {local} = {start}, {own}[{width}];")
        with to.each(width, f"{axis} = {axis}_first + e"):
            to.body(loop.body[:position])
            so_far = ir.Name(local, one.dtype)
            value = to.combined_with(one.reducer, so_far, accumulate.value, one.dtype)
            to.line(f"{own}[e] = {local} = {value};")
        to.line(f"if (!{axis}_inside) {local} = {start};")
        to.line(f"{ctype} {before} = {name}({local});")
        to.line(f"{before} = {combined(one.reducer, one.name, before)};")
        with to.block(f"if ({axis}_inside) "):
            stores = [access for access in parted if isinstance(access, ir.Store)]
            behind = [to.part(access, axis, f"{axis}_first", width) for access in stores]
            with to.each(width, f"{axis} = {axis}_first + e"):
                result = combined(one.reducer, before, f"{own}[e]")
                to.line(f"const {ctype} {one.name} = {result};")
                to.body(loop.body[position + 1 :])
            for text in behind:
                to.line(text)
        to.line(f"{one.name} = {combined(one.reducer, one.name, local)};")
    to.forget_parts()
    if to.layout.lanes > 32:
        to.hazards.clear()
