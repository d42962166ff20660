"""Grouping: which of the nodes that have a buffer (`buffered`) share a kernel.

A root joins a kernel when it iterates over the same box, reads the kernel's values only in its own
row, and closes no cycle of kernels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from metaop.fusion.buffered import certainly_stored, choosing, long_selects, repeated
from metaop.fusion.explain import Decision
from metaop.fusion.index_splitting import as_part, as_reshaped, pieces_of
from metaop.fusion.inline import reads
from metaop.fusion.kernel import Kernel, box_axes, reduced_axes
from metaop.fusion.masks import Masks
from metaop.fusion.recognise import recognise
from metaop.fusion.recompute import Recomputed
from metaop.fusion.storage import Part, Storage
from metaop.fusion.triangles import triangle_of
from metaop.reduce.meta_op import Reduce
from metaop.reduce.replacement import Replacement
from metaop.unified_graph.code import Code, Definition
from metaop.unified_graph.loop import Body, Loop
from metaop.unified_graph.node import Input, Node
from metaop.unified_graph.symbolic import hint_of

# The number of operations in a kernel from which on no more roots join it.
_LARGEST_KERNEL = 250
# A source that is read more often per element than this is small beside what reads it.
_LARGEST_REPETITION = 8
# A kernel with reductions needs this many rows to be parallel, unless one thread is enough for it.
_ENOUGH_ROWS = 16
# Reasons why a node does not join a kernel.
_OTHER_BOX = "it iterates over another box, or reduces other axes"
_FEW_ROWS = "it would have too few rows to be parallel"


class Groups(NamedTuple):
    """The kernels that compute a graph, in an order in which they can run, and the buffers.

    `decisions` say why nodes share kernels or do not, in the order in which they were taken.
    """

    kernels: list[Kernel]
    storage: Storage
    decisions: list[Decision]


def group(graph: Recomputed, small: int) -> Groups:
    """The kernels that compute a graph; one of at most `small` elements needs a single thread.

    It groups a second time if the first shows expensive values that several kernels would repeat,
    which it then stores, or a node with its own kernel that selects by position, which it splits.
    """
    order = graph.order
    split = long_selects(order)
    stored = certainly_stored(graph, split)
    grouping = _Grouping(graph, stored, split, small)
    kernels = grouping.run()
    stored = stored | repeated(kernels, grouping.storage.stored)
    while True:
        # A piece that itself selects by position does so lane by lane.
        alone = choosing(kernels, grouping.storage) - split
        if not alone and stored <= grouping.storage.stored | grouping.storage.views:
            return Groups(kernels, grouping.storage, grouping.decisions)
        split = split | alone
        grouping = _Grouping(graph, stored, split, small)
        kernels = grouping.run()


class _Grouping:
    """One run of the greedy grouping over the nodes with buffers, in topological order."""

    def __init__(self, graph: Recomputed, stored: set[Node], split: set[Node], small: int) -> None:
        self.small = small
        self.late = graph.late
        self.outputs = set(graph.outputs)
        self.pieces: dict[Node, list[Node]] = {}
        self.masks = Masks(graph.order, graph.outputs)
        self.storage = self._storage(graph.order, stored, split)
        self.roots = self._ordered_roots(graph.order)
        self.kernels: list[Kernel] = []
        self.decisions: list[Decision] = []
        self.number: dict[Kernel, int] = {}
        self.home: dict[Node, Kernel] = {}
        self.readers: dict[Node, list[Kernel]] = {}
        # Bit j of before[i]: kernel i depends on kernel j, directly or not.
        self.before: list[int] = []
        self.operations: dict[Kernel, int] = {}
        self.launched: dict[tuple[Definition | Body, tuple[Node, ...]], Kernel] = {}

    def _storage(self, order: Sequence[Node], stored: set[Node], split: set[Node]) -> Storage:
        """The nodes with a buffer, including the pieces of split nodes."""
        every = set(stored)
        parts: dict[Node, list[Part]] = {}
        views: set[Node] = set()
        operands = {x for node in order if node.op.is_alone for x in node.inputs}
        storage = Storage(every, self.outputs | operands, parts, views)
        for whole in order:
            reshaped = as_reshaped(whole, storage.has_buffer) if whole in stored else None
            if reshaped is not None:
                source, part = reshaped
                parts.setdefault(source, []).append(part)
                every.discard(whole)
                views.add(whole)
                continue
            if whole not in split or not whole.size:
                continue
            nodes = []
            for stretch, piece in pieces_of(whole, storage.has_buffer):
                node, part = as_part(piece, stretch, whole, storage.has_buffer)
                parts.setdefault(node, []).append(part)
                nodes.append(node)
            every.update(nodes)
            if nodes:
                self.pieces[whole] = list(dict.fromkeys(nodes))
        return storage

    def _ordered_roots(self, order: Sequence[Node]) -> list[Node]:
        """The nodes to compute, each after what it reads; pieces replace a split node."""
        roots: dict[Node, None] = {}
        for node in order:
            if node in self.pieces:
                self._add_pieces(node, roots)
            elif node in self.storage.stored and node.size:
                roots[node] = None
        return list(roots)

    def _add_pieces(self, node: Node, roots: dict[Node, None]) -> None:
        """Adds a node, or its pieces, after what they read.

        What they read may itself be a piece of a node later in the graph: the copy that makes a
        piece of one node can be the same node that another one reads.
        """
        if node in roots or isinstance(node.op, Input):
            return
        for piece in self.pieces.get(node, ()):
            self._add_pieces(piece, roots)
        if node not in self.pieces:
            for source in self._sources(node)[0]:
                self._add_pieces(source, roots)
            roots[node] = None

    def run(self) -> list[Kernel]:
        for root in self.roots:
            self._place(root)
        for root, kernel in self.home.items():
            if root in self.outputs or root in self.storage.parts:
                continue
            if self.readers.get(root) == [kernel]:
                kernel.private.add(root)
        return self._sorted()

    def _sources(self, root: Node) -> tuple[dict[Node, None], int]:
        """The nodes with buffers that a root reads, and how many nodes are inlined into it.

        Their order is the same in every run.
        """
        found: dict[Node, None] = {}
        seen: set[Node] = set()
        stack = list(root.inputs)
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            if self.storage.has_buffer(node):
                found[node] = None
            else:
                stack.extend(node.inputs)
        return found, len(seen) - len(found) + 1

    def _pieces_of(self, nodes: Iterable[Node]) -> set[Node]:
        """The pieces, and pieces of pieces, of the nodes that are split."""
        found: set[Node] = set()
        stack = [node for node in nodes if node in self.pieces]
        while stack:
            pieces = self.pieces[stack.pop()]
            stack.extend(x for x in pieces if x not in found and x in self.pieces)
            found.update(pieces)
        return found

    def _place(self, root: Node) -> None:
        read, operations = self._sources(root)
        pieces = self._pieces_of(read)
        sources = pieces.union(read)
        # A kernel that computes one piece of what the root reads has not computed the others. The
        # root reads a piece as part of the whole, even if it also reads the piece itself.
        unfinished = {self.home[x] for x in pieces if x in self.home}
        needed = {self.home[source] for source in sources if source in self.home}
        if isinstance(root.op, (Code, Loop)):
            launched = self.launched.get((root.op.definition, root.inputs))
            if launched is not None:
                launched.roots.append(root)
                self._record(launched, root, sources, needed)
                return
        new = self._kernel_for(root)
        if not (new.scatter or new.takes_maps_alone or new.alone):
            for kernel in self._candidates(read, hint_of(math.prod(new.shape))):
                if kernel in unfinished:
                    refused: str | None = "it makes a part of what the node reads, not all"
                elif self.operations[kernel] + operations > _LARGEST_KERNEL:
                    refused = f"together they have more than {_LARGEST_KERNEL} operations"
                elif self._closes_cycle(kernel, needed):
                    refused = "the node needs a kernel that needs this one"
                else:
                    refused = self._join(kernel, root, new)
                self.decisions.append(Decision(root, kernel, refused))
                if refused is None:
                    self.operations[kernel] += operations
                    self._record(kernel, root, sources, needed)
                    return
        self.decisions.append(Decision(root, new))
        new.roots.append(root)
        self.operations[new] = operations
        self.number[new] = len(self.kernels)
        self.kernels.append(new)
        self.before.append(0)
        self._record(new, root, sources, needed)

    def _kernel_for(self, root: Node) -> Kernel:
        if root.op.is_alone:
            kernel = Kernel(root.shape, frozenset(), alone=True)
            if isinstance(root.op, (Code, Loop)):
                self.launched[root.op.definition, root.inputs] = kernel
            return kernel
        if not isinstance(root.op, Reduce):
            return Kernel(root.shape, frozenset())
        shape = root.inputs[0].shape
        reduced = reduced_axes(root)
        if reduced is None:
            return Kernel(shape, frozenset(), scatter=True)
        has_buffer = self.storage.has_buffer
        contraction, scan = recognise(root, has_buffer), triangle_of(root, has_buffer)
        if contraction is not None:
            contraction = replace(contraction, regions=self.masks.of_contraction(root))
        return Kernel(shape, reduced, contraction=contraction, scan=scan)

    def _candidates(self, sources: Iterable[Node], iterations: int) -> list[Kernel]:
        """The kernels that compute the sources, and those whose reads a root can share.

        Kernels with nothing but small sources in common, such as a learning rate, are apart: walked
        together, many large arrays displace each other in the caches.
        """
        found: dict[Kernel, None] = {}
        for source in sorted(sources, key=lambda node: -hint_of(node.size)):
            if source in self.home:
                found[self.home[source]] = None
            shared = max(hint_of(source.size) * _LARGEST_REPETITION, self.small)
            for kernel in self.readers.get(source, ())[-3:] if shared >= iterations else ():
                found[kernel] = None
        return list(found)

    def _closes_cycle(self, kernel: Kernel, needed: set[Kernel]) -> bool:
        bit = 1 << self.number[kernel]
        return any(k is not kernel and self.before[self.number[k]] & bit for k in needed)

    def _join(self, kernel: Kernel, root: Node, new: Kernel) -> str | None:
        """Adds `root` to `kernel`, or returns why it does not fit.

        A kernel of maps may become one with reductions.
        """
        if kernel.scatter or kernel.alone:
            return f"nothing joins a kernel of {kernel.kind}"
        if (root in self.late) != (kernel.roots[0] in self.late):
            return "the peak of memory lies between"
        reduced = kernel.reduced
        if new.reduced and not reduced and not kernel.takes_maps_alone:
            shapes = [new.shape, *(member.shape for member in kernel.roots)]
            if any(shape != kernel.shape for shape in shapes):
                return _OTHER_BOX
            if not self._is_parallel(new):
                return _FEW_ROWS
            kernel.reduced = new.reduced
        elif new.reduced and (new.shape != kernel.shape or new.reduced != reduced):
            return _OTHER_BOX
        refused = self._misfit(kernel, root)
        if refused is not None:
            kernel.reduced = reduced
        else:
            kernel.roots.append(root)
        return refused

    def _misfit(self, kernel: Kernel, root: Node) -> str | None:
        """Why a root does not fit the loops of a kernel; None if it does."""
        at = kernel.indices_of(root)
        if at is None:
            return _OTHER_BOX
        first = kernel.roots[0]
        if kernel.takes_maps_alone and (root.shape != first.shape or reduced_axes(root)):
            return (
                f"only maps of its whole result join a {'scan' if kernel.scan else 'contraction'}"
            )
        box = box_axes(kernel.shape)
        element_level = root.shape == kernel.shape and not isinstance(root.op, Reduce)
        if element_level and kernel.reduced and not self._is_parallel(kernel):
            return _FEW_ROWS
        members = set(kernel.roots)
        for node, place in reads(root, box, at, self.storage.has_buffer):
            if node in members and kernel.indices_of(node) != place:
                return "the node reads a result of other rows"
        return None

    def _record(self, kernel: Kernel, root: Node, sources: set[Node], needed: set[Kernel]) -> None:
        self.home[root] = kernel
        own = self.number[kernel]
        added = 0
        for other in needed:
            if other is not kernel:
                number = self.number[other]
                added |= self.before[number] | 1 << number
        if added & ~self.before[own]:
            self.before[own] |= added
            # Nothing depends on a new kernel yet.
            for number, before in enumerate(self.before):
                if before >> own & 1:
                    self.before[number] |= self.before[own]
        for source in sources:
            readers = self.readers.setdefault(source, [])
            if kernel not in readers:
                readers.append(kernel)

    def _sorted(self) -> list[Kernel]:
        """The kernels in the order of their creation, each after all that it depends on.

        Kernels that replace rows of a table come last unless a kernel reads the table. By then all
        indices have been checked, so a run that fails has not overwritten a table.
        """
        done = 0
        result: list[Kernel] = []
        for number in range(len(self.kernels)):
            missing = self.before[number] & ~done | 1 << number & ~done
            found = [k for k in range(missing.bit_length()) if missing >> k & 1]
            # A kernel has more dependencies than each of them has, so this order is topological.
            found.sort(key=lambda k: (self.before[k].bit_count(), k))
            result.extend(self.kernels[k] for k in found)
            done |= missing
        return sorted(result, key=self._is_table)

    def _is_table(self, kernel: Kernel) -> bool:
        (root, *_) = kernel.roots
        return isinstance(root.op, Replacement) and root not in self.readers

    def _is_parallel(self, kernel: Kernel) -> bool:
        """Whether a kernel with reductions feeds all threads, or is too small for a second one."""
        total = math.prod(kernel.shape)
        return hint_of(kernel.rows) >= _ENOUGH_ROWS or hint_of(total) <= self.small
