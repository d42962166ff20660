"""A node computed by a row of the operator table."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from metaop.errors import ArgumentError, CheckpointError
from metaop.onnx.table import Node, Row, check_attributes
from metaop.onnx.values import has_tensor_type, to_host, to_tensor
from metaop.tensor.core import Tensor
from metaop.unified_graph.tensor_type import Device

Scope = dict[str, Any]


class Computed:
    """Computes a node by a row: the one for tensors, or the one for arrays on the host.

    The `graphs` among the attributes become functions of their inputs; `captured` names the values
    that they read from the surrounding graph.
    """

    def __init__(
        self,
        row: Row | None,
        host: Row | None,
        node: Node,
        attributes: Mapping[str, Any],
        graphs: Mapping[str, Any],
    ) -> None:
        for one in (row, host):
            if one is not None:
                check_attributes(one, [*attributes, *graphs], node.operator)
        self._row, self._host, self._node = row, host, node
        self._attributes, self._graphs = attributes, graphs
        self.captured = sorted({name for graph in graphs.values() for name in graph.captured})

    def __call__(self, values: list[Any], scope: Scope, device: Device | None) -> Any:
        row = self._row
        if self._host is not None and all(map(_is_on_host, values)):
            row = self._host
        elif row is None or (self._host is not None and any(map(_is_foreign, values))):
            # Only NumPy supports it: strings, and dtypes that tensors do not have.
            row = self._host
            assert row is not None
            values = [to_host(value) for value in values]
        keywords: dict[str, Any] = dict(self._attributes)
        for name, graph in self._graphs.items():
            keywords[name] = partial(_run_inside, graph, scope, device)
        if row.takes_node:
            keywords["node"] = self._node
        on = next((one.device for one in values if isinstance(one, Tensor)), device)
        taken = [_in_form(row.form(k), value, on) for k, value in enumerate(values)]
        while taken and taken[-1] is None and len(taken) <= len(row.inputs):
            taken.pop()
        if row.rest is None and len(taken) > len(row.inputs):
            raise ArgumentError(f"{self._node.operator} has {len(taken)} inputs, too many")
        try:
            return row.function(*taken, **keywords)
        except TypeError as error:
            if "argument" not in str(error) or error.__traceback__.tb_next is not None:  # type: ignore
                raise
            raise CheckpointError(
                f"{self._node.operator} {self._node.name!r}: {error}", fix="export the file again"
            ) from None


def _run_inside(graph: Any, scope: Scope, device: Device | None, *arguments: Any) -> Any:
    return graph.run(arguments, scope, device)


def _is_on_host(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_on_host, value))
    return not isinstance(value, Tensor)


def _is_foreign(value: Any) -> bool:
    return isinstance(value, np.ndarray) and not has_tensor_type(value)


def _in_form(form: str, value: Any, device: Device | None) -> Any:
    if form == "Tensor":
        return to_tensor(value, device)
    return to_host(value) if form == "Host" else value
