"""Helpers of PyTorch's layers that programs import (`torch.nn.modules.utils`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from metaop.tensor.arguments import WHOLE

__all__ = ["consume_prefix_in_state_dict_if_present"]


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Removes a prefix such as "module." from the names of a state_dict, and from its metadata."""
    metadata = getattr(state_dict, "_metadata", {})
    for names in (state_dict, metadata):
        for name in [name for name in names if name.startswith(prefix)]:
            names[name[len(prefix) :]] = names.pop(name)
    metadata.pop(prefix.removesuffix("."), None)


def _ntuple(n: int, name: str = "parse") -> Callable[[Any], tuple[Any, ...]]:
    """A function that makes an iterable a tuple, and repeats any other value `n` times."""

    def parse(x: Any) -> tuple[Any, ...]:
        return tuple(x) if isinstance(x, Iterable) else (x,) * n

    parse.__name__ = name
    return parse


_single = _ntuple(1, "_single")
_pair = _ntuple(2, "_pair")
_triple = _ntuple(3, "_triple")
_quadruple = _ntuple(4, "_quadruple")


def _reverse_repeat_tuple(t: Sequence[Any], n: int) -> tuple[Any, ...]:
    """The elements in reverse order, each `n` times."""
    return tuple(x for x in reversed(t) for _ in range(n))


def _list_with_default(out_size: Any, defaults: Sequence[int]) -> Any:
    """A size whose None entries are replaced by the input's size."""
    if isinstance(out_size, WHOLE):
        return out_size
    return [d if v is None else v for v, d in zip(out_size, defaults[-len(out_size) :])]
