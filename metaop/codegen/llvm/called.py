"""The functions that kernels call and that are compiled once, not written into every kernel."""

from __future__ import annotations

import re
from collections.abc import Iterable

from metaop.codegen.llvm import micro_kernel, scratch_blocks, transposition
from metaop.codegen.llvm.builder import BuilderTarget

_CALL = re.compile(r"call void @(metaop_\w+)")


def called_in(ir_texts: Iterable[str]) -> list[str]:
    """The names of such functions that modules call, each once."""
    return list(dict.fromkeys(name for text in ir_texts for name in _CALL.findall(text)))


def text_of(symbol: str, target: BuilderTarget) -> str | None:
    """The module that defines the function of a name, or None for another name."""
    return (
        transposition.text_of(symbol, target)
        or micro_kernel.text_of(symbol, target)
        or scratch_blocks.text_of(symbol)
    )
