"""A subgraph with symbols for the numbers in which two subgraphs of one structure differ."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import chain

from metaop.unified_graph.cut import Subgraph, walk
from metaop.unified_graph.node import input_node
from metaop.unified_graph.structure import parted, with_numbers
from metaop.unified_graph.symbolic import NotGeneralError
from metaop.unified_graph.symbolic_signature import Symbols


def structure_key(subgraph: Subgraph) -> Hashable:
    """The key of a subgraph without its numbers."""
    words: list[Hashable] = [parted(leaf.type)[0] for leaf in subgraph.leaves]
    makers = {call.maker for call in subgraph.order if call.is_projection}
    for call in subgraph.order:
        signature = call.signature
        if signature is None:
            words.append(None)
        elif call in makers:
            # Further outputs are numbered in the order in which gradients requested them.
            words.append((signature.structure, *signature.gradients))
        else:
            words.append(signature.structure)
    return (*words, *subgraph.wiring)


def numbers_of(subgraph: Subgraph) -> tuple[float, ...]:
    """The numbers of the leaves' types and of all calls, in order."""
    numbers = [parted(leaf.type)[1] for leaf in subgraph.leaves]
    numbers += [signature.numbers for _, signature in subgraph.operators]
    return tuple(chain.from_iterable(numbers))


class SymbolicCut:
    """A subgraph in meta-operators on symbolic sizes.

    `inputs` and `outputs` are its nodes. `expected` is the required value of every number of the
    subgraph, in the order of `numbers`.
    """

    def __init__(self, subgraph: Subgraph, *others: Sequence[float]) -> None:
        """Replaces the numbers in which the subgraph differs from any of `others` by symbols.

        Raises NotGeneralError if the structure of the subgraph depends on its numbers.
        """
        symbols = Symbols(*others)
        self.env, self.expected = symbols.env, symbols.expected
        self.numbers = numbers_of(subgraph)
        self.inputs = [
            input_node(slot, with_numbers(leaf.type.shape, symbols.number), leaf.type.dtype)
            for slot, leaf in enumerate(subgraph.leaves)
        ]
        nodes = {leaf: [node] for leaf, node in zip(subgraph.leaves, self.inputs)}
        for call, signature, arguments in walk(subgraph.order, nodes, subgraph.inputs_of):
            general = symbols.on(signature, arguments)
            nodes[call] = general.instantiate(arguments)
            if len(nodes[call]) != len(signature.types):
                raise NotGeneralError(f"{general} has other outputs than {signature}")
        self.outputs = [nodes[call][0] for call in subgraph.outputs]
