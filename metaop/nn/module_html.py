"""Notebook output of modules: a collapsible tree with parameter counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING

from metaop.nn.parameter import UninitializedTensorMixin
from metaop.tensor.core import Tensor
from metaop.tensor.html import described

if TYPE_CHECKING:
    from metaop.nn.module import Module


def html_of(module: Module) -> str:
    """The module as HTML for notebooks: its submodules with their numbers of parameters.

    Parameters that several submodules share count once in their parent.
    """
    return f"<div>{_tree(module, '', True)}</div>"


def _tree(module: Module, name: str, is_open: bool) -> str:
    label = f"({escape(name)}) " if name else ""
    kind, extra = escape(module._get_name()), escape(module.extra_repr())
    summary = f"{label}<b>{kind}</b>({extra}), {_counted(module.parameters())}"
    tables: dict[str, Mapping[str, Tensor | None]] = {
        "parameter": module._parameters,
        "buffer": module._buffers,
    }
    items = [
        f"{what} {escape(key)}: {escape(_type(tensor))}"
        for what, held in tables.items()
        for key, tensor in held.items()
        if tensor is not None
    ]
    parts = module._modules.items()
    items += [_tree(part, key, False) for key, part in parts if part is not None]
    if not items:
        return summary
    opened = " open" if is_open else ""
    listed = "".join(f"<li>{item}</li>" for item in items)
    return f"<details{opened}><summary>{summary}</summary><ul>{listed}</ul></details>"


def _counted(parameters: Iterable[Tensor]) -> str:
    found = list(parameters)
    known = [one for one in found if not isinstance(one, UninitializedTensorMixin)]
    least = "at least " if len(known) < len(found) else ""
    return f"{least}{sum(one.numel() for one in known):,} parameters"


def _type(tensor: Tensor) -> str:
    if isinstance(tensor, UninitializedTensorMixin):
        return f"{tensor.dtype.name}, of a shape that is not yet known"
    return described(tensor)
