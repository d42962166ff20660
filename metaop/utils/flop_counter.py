"""Counting floating-point operations, under the names of `torch.utils.flop_counter`."""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from functools import lru_cache
from types import TracebackType
from typing import Any

from metaop.elementwise.meta_op import Elementwise
from metaop.errors import UnsupportedError
from metaop.fusion.kernel import box_axes
from metaop.fusion.recognise import axes_used
from metaop.nn.hooks import register_module_forward_hook, register_module_forward_pre_hook
from metaop.nn.module import Module
from metaop.reduce.meta_op import Reduce
from metaop.unified_graph.composite import Signature
from metaop.unified_graph.node import Node, topological
from metaop.unified_graph.recording import Call, watched

__all__ = ["FlopCounterMode"]

_WHOLE = "Global"
_UNITS = ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "K"))


class FlopCounterMode:
    """Counts the multiplications and additions of contractions in a `with` block.

    Contractions are matrix products, convolutions and what else sums products of two factors, in
    any operator, in gradients too; elementwise work counts as none, as in PyTorch. `depth` levels
    of modules are printed at the end if `display` is on. PyTorch counts products of a matrix by a
    vector as none; here they count.
    Raises `UnsupportedError` for `custom_mapping`: operators are counted by what they compute.

    Example:
        with FlopCounterMode(display=False) as counter:
            model(images).sum().backward()
        counter.get_total_flops()
    """

    def __init__(
        self,
        mods: Module | list[Module] | None = None,
        depth: int | None = 2,
        display: bool = True,
        custom_mapping: dict[Any, Any] | None = None,
    ) -> None:
        if custom_mapping:
            raise UnsupportedError(
                "FlopCounterMode: custom_mapping",
                fix="leave it out: operators are counted by what they compute",
            )
        if mods is not None:
            warnings.warn(
                "mods argument is not needed anymore, you can stop passing it", stacklevel=2
            )
        self.depth = depth
        self.display = display
        self.flop_counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._names: dict[Module, str] = {}
        self._running: list[str] = [_WHOLE]

    def __enter__(self) -> FlopCounterMode:
        self.flop_counts.clear()
        self._handles = (
            register_module_forward_pre_hook(self._begin),
            register_module_forward_hook(self._end, always_call=True),
        )
        self._before = watched.locations, watched.on_record
        watched.locations, watched.on_record = True, self._count
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        watched.locations, watched.on_record = self._before
        for handle in self._handles:
            handle.remove()
        self._names.clear()
        self._running = [_WHOLE]
        if self.display:
            print(self.get_table())

    def get_total_flops(self) -> int:
        """All operations."""
        return sum(self.flop_counts[_WHOLE].values())

    def get_flop_counts(self) -> dict[str, dict[str, int]]:
        """The operations by module, as in `Net.layers.0`, and by operator; `Global` has all."""
        return {name: dict(counts) for name, counts in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """A table of modules down to a depth, with the share of each."""
        deepest = self.depth if depth is None else depth
        whole = self.get_total_flops()
        lines = [f"{'Module':<40} {'FLOP':>10} {'% Total':>8}"]
        for name in (_WHOLE, *sorted(self.flop_counts.keys() - {_WHOLE})):
            level = name.count(".")
            if deepest is None or level < deepest:
                count = sum(self.flop_counts[name].values())
                share = count / whole if whole else 0.0
                lines.append(f"{'  ' * level + name:<40} {_short(count):>10} {share:>8.2%}")
        return "\n".join(lines)

    def _begin(self, module: Module, arguments: object) -> None:
        if module not in self._names:
            kind = type(module).__name__
            for inner, child in module.named_modules():
                self._names.setdefault(child, f"{kind}.{inner}" if inner else kind)
        self._running.append(self._names[module])

    def _end(self, module: Module, arguments: object, output: object) -> None:
        self._running.pop()

    def _count(self, call: Call) -> None:
        signature = call.signature
        assert signature is not None
        count = _operations(signature)
        if count:
            for name in set(self._running):
                self.flop_counts[name][signature.composite.name] += count


@lru_cache(1 << 10)
def _operations(signature: Signature) -> int:
    """Twice the products that the contractions of an operator sum."""
    nodes = topological(signature.outputs[: signature.result_count])
    return sum(2 * math.prod(n.inputs[0].shape) for n in nodes if _is_contraction(n))


def _is_contraction(node: Node) -> bool:
    """Whether a node sums products of two factors that do not vary along the same axes."""
    if not (isinstance(node.op, Reduce) and node.op.reducer.name == "add"):
        return False
    product = node.inputs[0]
    if not (isinstance(product.op, Elementwise) and product.op.function.name == "mul"):
        return False
    box = box_axes(product.shape)
    left, right = (axes_used(factor, box, lambda _: False) for factor in product.inputs)
    return left != right


def _short(count: int) -> str:
    """A number with three decimals and a unit."""
    for size, unit in _UNITS:
        if count >= size:
            return f"{count / size:.3f}{unit}"
    return str(count)
