"""How tensors print: PyTorch's layout, number formats and summaries."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from metaop.errors import ArgumentError
from metaop.tensor.core import Tensor
from metaop.tensor.gradient_names import gradient_name
from metaop.tensor.promotion import defaults
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.tensor_type import META


@dataclass
class PrintOptions:
    """What `set_printoptions` sets."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


options = PrintOptions()


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Sets how tensors print; `profile` is "default", "short" or "full".

    `precision` is the number of digits behind the point, `linewidth` that of characters in a line;
    tensors of more than `threshold` elements show `edgeitems` at each end of a dimension.

    >>> metaop.set_printoptions(precision=2)
    >>> metaop.tensor([1 / 3])
    tensor([0.33])
    >>> metaop.set_printoptions(profile="default")
    """
    if profile not in (None, "default", "short", "full"):
        raise ArgumentError(
            f"there is no profile {profile!r} of printing", fix='pass "default", "short" or "full"'
        )
    if profile == "default":
        options.__init__()  # type: ignore[misc]
    elif profile == "short":
        options.__init__(precision=2, edgeitems=2)  # type: ignore[misc]
    elif profile == "full":
        options.__init__(threshold=math.inf)  # type: ignore[misc]
    given = {
        "precision": precision,
        "threshold": threshold,
        "edgeitems": edgeitems,
        "linewidth": linewidth,
    }
    for name, value in given.items():
        if value is not None:
            setattr(options, name, value)
    options.sci_mode = sci_mode


class Formatter:
    """One number format for all elements of a tensor."""

    def __init__(self, values: np.ndarray) -> None:
        self.is_float = values.dtype.kind == "f"
        self.whole = False
        self.scientific = False
        self.width = 1
        values = values.reshape(-1)
        if not self.is_float:
            self.width = max((len(str(value)) for value in values.tolist()), default=1)
            return
        # Like PyTorch, zeros and infinities have no say in the width.
        finite = values[np.isfinite(values) & (values != 0)].astype(np.float64)
        self.whole = True
        if finite.size:
            self._choose(np.abs(finite))
        if options.sci_mode is not None:
            self.scientific = options.sci_mode
        self.width = max((len(self._text(value)) for value in finite.tolist()), default=1)

    def _choose(self, finite: np.ndarray) -> None:
        smallest, largest = float(finite.min()), float(finite.max())
        self.whole = bool((finite == np.ceil(finite)).all())
        if self.whole:
            self.scientific = largest / smallest > 1000.0 or largest > 1.0e8
        else:
            wide = largest / smallest > 1000.0
            self.scientific = wide or largest > 1.0e8 or smallest < 1.0e-4

    def _text(self, value: float) -> str:
        if self.scientific:
            return f"{value:.{options.precision}e}"
        if self.whole:
            return f"{value:.0f}" + ("." if math.isfinite(value) else "")
        return f"{value:.{options.precision}f}"

    def format(self, value: Any) -> str:
        """The text of one element, padded to the common width."""
        text = self._text(float(value)) if self.is_float else str(value)
        return text.rjust(self.width)


class ComplexFormatter:
    """One number format for all real parts of a tensor, and one for all imaginary parts."""

    def __init__(self, values: np.ndarray) -> None:
        self._parts = Formatter(values.real), Formatter(values.imag)
        self.width = sum(part.width for part in self._parts) + 1

    def format(self, value: Any) -> str:
        """The text of one element."""
        real, imag = (x.format(y) for x, y in zip(self._parts, (value.real, value.imag)))
        imag = imag.lstrip()
        return f"{real}{'' if imag.startswith('-') else '+'}{imag}j"


def formatter_of(values: np.ndarray) -> Formatter | ComplexFormatter:
    """The number format of an array."""
    return ComplexFormatter(values) if values.dtype.kind == "c" else Formatter(values)


def _edges(values: np.ndarray) -> np.ndarray:
    """The elements that a summary shows."""
    for axis, extent in enumerate(values.shape):
        if extent > 2 * options.edgeitems:
            kept = [*range(options.edgeitems), *range(extent - options.edgeitems, extent)]
            values = np.take(values, kept, axis)
    return values


def _row(
    values: np.ndarray, indent: int, formatter: Formatter | ComplexFormatter, summarize: bool
) -> str:
    per_line = max(1, (options.linewidth - indent) // (formatter.width + 2))
    texts = [formatter.format(value) for value in _ends(values, summarize)]
    if summarize and len(values) > 2 * options.edgeitems:
        texts.insert(options.edgeitems, " ...")
    lines = [texts[k : k + per_line] for k in range(0, len(texts), per_line)] or [[]]
    return "[" + (",\n" + " " * (indent + 1)).join(", ".join(line) for line in lines) + "]"


def _ends(values: np.ndarray, summarize: bool) -> list[Any]:
    edge = options.edgeitems
    if summarize and len(values) > 2 * edge:
        return [*values[:edge].tolist(), *values[-edge:].tolist()]
    return values.tolist()


def _block(
    values: np.ndarray, indent: int, formatter: Formatter | ComplexFormatter, summarize: bool
) -> str:
    if values.ndim == 0:
        return formatter.format(values.item())
    if values.ndim == 1:
        return _row(values, indent, formatter, summarize)
    edge = options.edgeitems
    if summarize and len(values) > 2 * edge:
        shown = [*range(edge), *range(len(values) - edge, len(values))]
    else:
        shown = list(range(len(values)))
    blocks = [_block(values[k], indent + 1, formatter, summarize) for k in shown]
    if len(shown) < len(values):
        blocks.insert(edge, "...")
    return "[" + ("," + "\n" * (values.ndim - 1) + " " * (indent + 1)).join(blocks) + "]"


def text_of(input: Tensor, prefix: str = "tensor(") -> str:
    """The tensor as `repr` shows it."""
    suffixes = []
    placement = input.device.placement
    if placement is not None:
        if not placement.world.owned:
            # This rank has nothing of the value.
            return with_suffixes(f"{prefix}...", [f"size={tuple(input.shape)}", str(placement)], 0)
        suffixes += [str(placement), f"sbp={input.sbp}"]
    elif input.device.type != "cpu":
        suffixes.append(f"device='{input.device}'")
    size = input.numel()
    if input.device is META:
        suffixes.append(f"size={tuple(input.shape)}")
        if input.dtype is not defaults.dtype:
            suffixes.append(f"dtype={input.dtype}")
        body = "..."
    elif size == 0:
        if input.ndim != 1:
            suffixes.append(f"size={tuple(input.shape)}")
        if input.dtype is not defaults.dtype:
            suffixes.append(f"dtype={input.dtype}")
        body = "[]"
    else:
        if not _goes_without_saying(input.dtype):
            suffixes.append(f"dtype={input.dtype}")
        body = elements_text(input, len(prefix))
    if input.requires_grad:
        name = gradient_function_name(input)
        suffixes.append(f"grad_fn=<{name}>" if name else "requires_grad=True")
    return with_suffixes(prefix + body, suffixes, len(prefix))


def _goes_without_saying(dtype: DType) -> bool:
    return dtype in (defaults.dtype, defaults.dtype.whole, dtypes.int64, dtypes.bool_)


def elements_text(input: Tensor, indent: int) -> str:
    """The elements in brackets; lines after the first begin with `indent` spaces."""
    if input.numel() == 0:
        return "[]"
    values = input._array()
    if input.dtype.itemsize == 2 and input.dtype.kind == "float":
        values = values.astype(np.float32)
    summarize = values.size > options.threshold
    formatter = formatter_of(_edges(values) if summarize else values)
    return _block(values, indent, formatter, summarize)


def sparse_text_of(input: Any, parts: dict[str, Tensor]) -> str:
    """A sparse tensor as `repr` shows it: the dense tensors that it consists of, and their form."""
    texts = []
    for name, part in parts.items():
        start = f"{name}=tensor("
        extent = f", size={tuple(part.shape)}" if part.numel() == 0 else ""
        texts.append(start + elements_text(part, len("tensor(" + start)) + extent + ")")
    indent = len("tensor(")
    suffixes = [f"size={tuple(input.shape)}", f"nnz={input._nnz()}"]
    if not _goes_without_saying(input.dtype):
        suffixes.append(f"dtype={input.dtype}")
    suffixes.append(f"layout={input.layout}")
    values = parts["values"]
    if values.requires_grad:
        name = gradient_function_name(values)
        suffixes.append(f"grad_fn=<{name}>" if name else "requires_grad=True")
    text = "tensor(" + (",\n" + " " * indent).join(texts)
    return with_suffixes(text, suffixes, indent, own_line="indices" in parts)


def gradient_function_name(input: Tensor) -> str:
    """The name that `grad_fn` prints: of the operator that made a tensor; empty for a leaf."""
    return "" if input.is_leaf else gradient_name(input.call)


def with_suffixes(text: str, suffixes: list[str], indent: int, own_line: bool = False) -> str:
    """The text with suffixes in lines of the set width, and the bracket that closes it."""
    length = options.linewidth if own_line else len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if length + len(suffix) + 2 > options.linewidth:
            text += ",\n" + " " * indent + suffix
            length = indent + len(suffix)
        else:
            text += ", " + suffix
            length += len(suffix) + 2
    return text + ")"
