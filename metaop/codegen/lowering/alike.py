"""Kernels that are alike are lowered once.

The layers of a network and the steps of a recurrence differ in the buffers that they read and write
only. Each kernel is lowered in a canonical form, which reads inputs numbered in the order of their
first use. Nodes are interned, so kernels are alike if the roots of their forms are the same nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from metaop.codegen.lowering.base.kernel import LoweredKernel
from metaop.codegen.lowering.choice import Choice, chosen_tactic, lower_by
from metaop.codegen.lowering.contractions.prepacked import right_as_read
from metaop.codegen.lowering.machine import Machine
from metaop.codegen.lowering.request import Request
from metaop.fusion.kernel import Kernel
from metaop.fusion.storage import Part, Storage
from metaop.unified_graph.node import Node, input_node
from metaop.unified_graph.rewrite import rebuild

if TYPE_CHECKING:
    from metaop.codegen.schedule import Schedule


class AlikeKernels:
    """The launches of the kernels of one program, by canonical form, and how they were chosen."""

    def __init__(self, storage: Storage, uses: dict[Node, int], machine: Machine) -> None:
        self._storage = storage
        self._uses = uses
        self._machine = machine
        self._known: dict[Hashable, list[LoweredKernel]] = {}
        self.choices: list[Choice] = []

    def lower(self, kernel: Kernel, step: Schedule | None = None) -> list[LoweredKernel]:
        """The launches that compute a kernel; that of a loop repeats a `step`."""
        if step is not None or kernel.alone:
            return self._lower(Request(kernel, self._storage, self._uses, self._machine, step))
        form = _Form(kernel, self._storage, self._uses)
        found = self._known.get(form.key)
        if found is None:
            found = self._lower(Request(form.kernel, form.storage, form.uses, self._machine))
            self._known[form.key] = found
        return [replace(one, buffers=tuple(form.originals(one.buffers))) for one in found]

    def _lower(self, request: Request) -> list[LoweredKernel]:
        tactic = chosen_tactic(request)
        self.choices.append(Choice(request, tactic))
        return lower_by(tactic, request)


class _Form:
    """The canonical form of a kernel: the kernel, its storage, and how often nodes are used."""

    def __init__(self, kernel: Kernel, storage: Storage, uses: Mapping[Node, int]) -> None:
        self._given = storage
        self._names: dict[Node, Node] = {}
        self._inputs = 0
        for node in storage.computed(kernel.roots):
            sources = tuple([self._names.get(x) or self._read(x) for x in node.inputs])
            self._names[node] = Node(node.op, sources, node.shape, node.dtype)
        for node in tuple(self._names):
            self._add_wholes(node)
        names = self._names
        factors = kernel.contraction and replace(
            kernel.contraction,
            left=names[kernel.contraction.left],
            right=names[kernel.contraction.right],
        )
        self.kernel = replace(
            kernel,
            roots=[names[root] for root in kernel.roots],
            contraction=factors,
            private={names[root] for root in kernel.private},
        )
        parts = {
            names[node]: [Part(names[whole], place) for whole, place in storage.parts[node]]
            for node in names
            if node in storage.parts
        }
        outputs, views = (
            frozenset(names[node] for node in names if node in kept)
            for kept in (storage.outputs, storage.views)
        )
        self.storage = Storage(frozenset(self.kernel.roots), outputs, parts, views)
        self.uses = Counter(source for node in names.values() for source in node.inputs)
        if factors:
            assert kernel.contraction is not None
            self.uses[right_as_read(factors)] = uses.get(right_as_read(kernel.contraction), 0)
        self.key: Hashable = (
            tuple(self.kernel.roots),
            kernel.shape,
            kernel.reduced,
            kernel.scatter,
            factors,
            kernel.scan,
            frozenset(self.kernel.private),
            tuple((node, *places) for node, places in parts.items()),
            outputs,
            views,
            self.uses[right_as_read(factors)] if factors else 0,
        )

    def originals(self, nodes: tuple[Node, ...]) -> list[Node]:
        """The nodes of the program for those of the form, and for what was prepared of them."""
        return rebuild(nodes, {name: node for node, name in self._names.items()})

    def _read(self, node: Node) -> Node:
        """The input in place of a node that the kernel reads from memory."""
        found = self._names[node] = input_node(self._inputs, node.shape, node.dtype)
        self._inputs += 1
        return found

    def _add_wholes(self, node: Node) -> None:
        """Names the nodes of which a node is a part."""
        for whole, _ in self._given.parts.get(node, ()):
            if whole not in self._names:
                self._read(whole)
                self._add_wholes(whole)
