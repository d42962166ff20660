"""The header of a library, for C and C++ programs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from metaop.export.driver import ALIGNMENT, MISALIGNED, NO_SCRATCH, OTHER_SIZES, REFUSED_VALUE
from metaop.unified_graph.dtype import DType

_TYPES = {"bool": "uint8_t", "float16": "uint16_t", "bfloat16": "uint16_t", "float32": "float"}
_TYPES["float64"] = "double"

_FRAME = """/* {title} */
#ifndef {guard}
#define {guard}
#include <stdint.h>
#ifdef __cplusplus
extern "C" {{
#endif

{body}

#ifdef __cplusplus
}}
#endif
#endif
"""
_COMMENT = f"""/* Computes the results. The arena is working memory of the bytes above; its
   content means nothing between calls. Arrays are contiguous, and results overlap nothing. Calls on
   arenas of their own may run at the same time. Nothing is allocated. Returns
     0
     {REFUSED_VALUE} for a refused value, such as an index out of range
     {NO_SCRATCH} where a kernel needs more memory than was planned: a fault of metaop
     {MISALIGNED} for an arena that is not aligned
     {OTHER_SIZES} for sizes that the program has no form for */"""


class Array(NamedTuple):
    """An argument of the function: its shape as text, with the names of sizes."""

    name: str
    dtype: DType
    shape: Sequence[str]

    @property
    def type(self) -> str:
        """The type of an element in C."""
        return _TYPES.get(self.dtype.name, f"{self.dtype.name}_t")


class Signature(NamedTuple):
    """The interface of a library.

    `conditions` describe the allowed sizes. `arena_bytes` is None if it depends on sizes,
    `weight_bytes` if the weights are in the library.
    """

    name: str
    target: str
    sizes: Sequence[str]
    conditions: Sequence[str]
    arena_bytes: int | None
    weight_bytes: int | None
    inputs: Sequence[Array]
    results: Sequence[Array]


def header_text(signature: Signature) -> str:
    """The text of a header."""
    name, upper = signature.name, signature.name.upper()
    sizes = [f"int64_t {_identifier(size)}" for size in signature.sizes]
    parameters = list(sizes)
    lines: list[str] = []
    if signature.weight_bytes is not None:
        lines += [
            "/* The content of the file of weights, anywhere in memory. */",
            f"#define {upper}_WEIGHT_BYTES {signature.weight_bytes}",
        ]
        parameters.append("const void *weights")
    lines += [f"#define {upper}_ARENA_ALIGNMENT {ALIGNMENT}"]
    if signature.arena_bytes is None:
        lines += [
            f"/* The bytes of an arena for sizes: {'; '.join(signature.conditions)}. */",
            f"int64_t {name}_arena_bytes({', '.join(sizes)});",
        ]
    else:
        lines.append(f"#define {upper}_ARENA_BYTES {max(signature.arena_bytes, ALIGNMENT)}")
    parameters.append("void *arena")
    taken: set[str] = set(signature.sizes) | {"arena", "weights"}
    for arrays, qualifier in ((signature.inputs, "const "), (signature.results, "")):
        for array in arrays:
            own = _unlike(_identifier(array.name), taken)
            shape = ", ".join(array.shape)
            parameters.append(f"{qualifier}{array.type} *{own} /* [{shape}] */")
    body = "\n".join([*lines, "", _COMMENT, f"int32_t {name}_run("])
    return _FRAME.format(
        title=f"{name}, for {signature.target}. Made by metaop.",
        guard=f"{upper}_H",
        body=body + "\n    " + ",\n    ".join(parameters) + ");",
    )


def _identifier(name: str) -> str:
    found = re.sub(r"\W", "_", name)
    return f"_{found}" if not found or found[0].isdigit() else found


def _unlike(name: str, taken: set[str]) -> str:
    """A name that differs from those of all other parameters."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name
