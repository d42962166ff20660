"""Collects operators with inputs that make sense: what PyTorch's database of operators records.

Nothing is listed here. Samples of every entry are run and differentiated in metaop, and each
composite that they record, gradients included, is kept once with the values of its inputs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import metaop
from metaop.execution import executor
from metaop.execution.refusals import value_of
from metaop.unified_graph.composite import Signature
from metaop.unified_graph.cut import Subgraph, walk
from metaop.unified_graph.evaluation import evaluate
from metaop.unified_graph.node import Node, input_node
from tests.parity.op_db import counterpart, leaves, rebound, to_metaop

_LARGEST = 3000
_SAMPLES = 2


class Case(NamedTuple):
    """An operator as a graph, and the values of its inputs."""

    inputs: list[Node]
    outputs: list[Node]
    values: list[np.ndarray]


class Collector(executor.Watcher):
    """Keeps the largest small case of every composite that programs run."""

    def __init__(self) -> None:
        self.cases: dict[str, Case] = {}
        self._seen: set[Signature] = set()

    def begun(self, subgraph: Subgraph) -> None:
        """Takes the operators of a program that is about to run."""
        signatures = {signature for _, signature in subgraph.operators}
        if signatures <= self._seen:
            return
        values = {leaf: [np.array(value_of(leaf))] for leaf in subgraph.leaves}
        for call, signature, arguments in walk(subgraph.order, values):
            values[call] = evaluate(signature.outputs, arguments)
            if signature not in self._seen:
                self._seen.add(signature)
                self._keep(signature, [source.type for source in call.inputs], arguments)

    def _keep(self, signature: Signature, types: list[Any], values: list[np.ndarray]) -> None:
        size = sum(value.size for value in values)
        known = self.cases.get(signature.composite.name)
        if size > _LARGEST or not values:
            return
        if known is None or size > sum(value.size for value in known.values):
            inputs = [input_node(k, kind.shape, kind.dtype) for k, kind in enumerate(types)]
            outputs = list(signature.instantiate(inputs))
            self.cases[signature.composite.name] = Case(inputs, outputs, values)


def collect(
    entries: list[Any], programs: Iterable[Callable[[], Any]], monkeypatch: pytest.MonkeyPatch
) -> dict[str, Case]:
    """The cases that samples of the entries, and programs, record."""
    collector = Collector()
    monkeypatch.setenv("METAOP_BACKEND", "reference")
    monkeypatch.setattr(executor, "watchers", [collector])
    for entry in entries:
        function = counterpart(entry)
        for sample in _samples(entry) if function is not None else ():
            # What an entry does not support is the business of the tests of parity.
            try:
                _run(entry, function, sample)
            except Exception:
                continue
    for program in programs:
        program().detach().numpy()
    return collector.cases


def _samples(entry: Any) -> Iterator[Any]:
    torch.manual_seed(0)
    supported = entry.supported_dtypes("cpu")
    dtype = torch.float64 if torch.float64 in supported else torch.int64
    gradients = entry.supports_autograd and dtype is torch.float64
    try:
        samples = entry.sample_inputs("cpu", dtype, requires_grad=gradients)
        yield from itertools.islice(samples, _SAMPLES)
    except Exception:
        return


def _run(entry: Any, function: Any, sample: Any) -> None:
    first, arguments, options = to_metaop((sample.input, sample.args, sample.kwargs))
    result = rebound(entry.gradcheck_wrapper)(function, first, *arguments, **options)
    found = [one for one in leaves(result) if isinstance(one, metaop.Tensor)]
    differentiable = [one for one in found if one.requires_grad]
    if differentiable:
        sources = [x for x in leaves((first, arguments, options)) if isinstance(x, metaop.Tensor)]
        wanted = [x for x in sources if x.requires_grad]
        cotangents = [metaop.randn_like(one) for one in differentiable]
        found += metaop.autograd.grad(differentiable, wanted, cotangents, allow_unused=True)
    for one in found:
        if one is not None:
            one.detach().numpy()
