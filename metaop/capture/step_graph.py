"""A captured call as a graph, which a loop repeats."""

from __future__ import annotations

from typing import Any, NamedTuple

from metaop.tensor.core import Tensor
from metaop.trees import TreeSpec, tree_flatten
from metaop.unified_graph.cut import Subgraph
from metaop.unified_graph.node import Node
from metaop.unified_graph.tensor_type import TensorType


class StepGraph(NamedTuple):
    """The nodes of one captured call, and the outputs that it returns.

    `types` are those of the inputs. `results` has the returned structure with output numbers for
    tensors and None for None; it is None itself if the structure holds what the call did not
    compute.
    """

    inputs: list[Node]
    outputs: list[Node]
    types: list[TensorType]
    results: list[int | None] | None
    structure: TreeSpec


def step_graph(subgraph: Subgraph, result: Any) -> StepGraph:
    """The graph of a subgraph that is about to run, and of what a function returned."""
    numbers = {call: k for k, call in enumerate(subgraph.outputs)}
    leaves, structure = tree_flatten(result)
    values = [leaf._call if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    is_made = all(value is None or value in numbers for value in values)
    results = [None if value is None else numbers[value] for value in values] if is_made else None
    inputs, outputs = subgraph.expand()
    types = [leaf.type for leaf in subgraph.leaves]
    return StepGraph(inputs, outputs, types, results, structure)
