"""Grouping: which nodes get a buffer, and which of them share a kernel.

Every reduction gets a buffer or a place in its kernel; elementwise and reindex nodes are inlined
into their readers unless that would repeat dear work. A root joins a kernel when it iterates over
the same box, reads the kernel's values only in its own row, and closes no cycle of kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from metaop.elementwise.meta_op import Elementwise
from metaop.fusion.explain import explain
from metaop.fusion.inline import DEAR, function_cost, is_dear, reads
from metaop.fusion.kernel import Kernel, box_axes, reduced_axes
from metaop.fusion.recognise import recognise
from metaop.reduce.meta_op import Reduce
from metaop.reindex.meta_op import Reindex
from metaop.unified_graph.access import IndexMap
from metaop.unified_graph.index_expr import Axis
from metaop.unified_graph.node import Input, Node, topological

# An inlined body beyond this many operations is cut in two, so that kernels stay small and long
# chains share one kernel.
_LONGEST_BODY = 100
# Roots stop joining a kernel when its bodies have this many operations together.
_LARGEST_KERNEL = 250
# A kernel with reductions needs this many rows, or fewer elements than _SMALL, to be parallel.
_ENOUGH_ROWS = 16
_SMALL = 1 << 15


def group(outputs: Sequence[Node]) -> list[Kernel]:
    """The kernels that compute `outputs`, in an order in which they can run."""
    order = topological(outputs)
    stored = _stored(order, outputs)
    kernels = _Grouping(order, stored, outputs).run()
    repeated = _repeated(kernels, stored)
    if repeated:
        kernels = _Grouping(order, stored | repeated, outputs).run()
    return kernels


def _stored(order: Sequence[Node], outputs: Sequence[Node]) -> set[Node]:
    """The nodes that certainly get a buffer."""
    stored = {node for node in outputs if not isinstance(node.op, Input)}
    cost: dict[Node, int] = {}
    size: dict[Node, int] = {}
    for node in order:
        op = node.op
        if isinstance(op, Reduce):
            stored.add(node)
        if isinstance(op, Reindex):
            source = node.inputs[0]
            repeats = node.size >= 2 * source.size and not _is_injective(op.map)
            if cost[source] >= 2 and repeats and source.size < node.size:
                stored.add(source)
                cost[source] = size[source] = 0
            # Index operands are read once per element; what computes them is kept apart.
            for operand in node.inputs[1:]:
                if cost[operand] >= DEAR:
                    stored.add(operand)
                    cost[operand] = size[operand] = 0
        if node in stored or isinstance(op, Input):
            cost[node] = size[node] = 0
            continue
        own = function_cost(op.function.name) if isinstance(op, Elementwise) else 0
        cost[node] = own + sum(cost[source] for source in node.inputs)
        size[node] = 1 + sum(size[source] for source in node.inputs)
        if size[node] > _LONGEST_BODY:
            stored.add(node)
            cost[node] = size[node] = 0
    return stored


def _is_injective(index_map: IndexMap) -> bool:
    """Whether no element is read twice: every axis moves one index of its own."""
    terms = [expr.terms for expr in index_map.indices if not expr.is_constant]
    moved = {found[0][0] for found in terms if len(found) == 1}
    axes = [Axis(k, extent) for k, extent in enumerate(index_map.domain) if extent != 1]
    return len(moved) == len(terms) and moved == set(axes)


def _repeated(kernels: Sequence[Kernel], stored: set[Node]) -> set[Node]:
    """Dear values without a buffer that several kernels would compute, each for itself.

    Of a chain that they share only the end is taken: the rest is needed nowhere else.
    """
    computed_by: dict[Node, Kernel] = {}
    shared: set[Node] = set()
    readers: dict[Node, list[Node]] = {}
    for kernel in kernels:
        inlined = list(_inlined(kernel, stored))
        for node in inlined:
            if computed_by.setdefault(node, kernel) is not kernel:
                shared.add(node)
        for node in (*kernel.roots, *inlined):
            for source in node.inputs:
                readers.setdefault(source, []).append(node)
    found: set[Node] = set()
    for node in shared:
        if all(reader in shared for reader in readers[node]) or not _contains_dear(node, stored):
            continue
        while isinstance(node.op, Reindex):
            node = node.inputs[0]
        if node.size > 1 and isinstance(node.op, Elementwise):
            found.add(node)
    return found


def _contains_dear(node: Node, stored: set[Node]) -> bool:
    """Whether computing `node` from what is stored takes dear work."""
    stack = [node]
    while stack:
        current = stack.pop()
        if current in stored:
            continue
        if is_dear(current):
            return True
        stack.extend(current.inputs)
    return False


def _inlined(kernel: Kernel, stored: set[Node]) -> Iterator[Node]:
    seen: set[Node] = set()
    stack = [source for root in kernel.roots for source in root.inputs]
    while stack:
        node = stack.pop()
        if node in seen or node in stored:
            continue
        seen.add(node)
        yield node
        stack.extend(node.inputs)


class _Grouping:
    """One run of the greedy grouping over the nodes with buffers, in topological order."""

    def __init__(self, order: Sequence[Node], stored: set[Node], outputs: Sequence[Node]) -> None:
        self.roots = [node for node in order if node in stored and node.size]
        self.stored = stored
        self.outputs = set(outputs)
        self.kernels: list[Kernel] = []
        self.number: dict[Kernel, int] = {}
        self.home: dict[Node, Kernel] = {}
        self.readers: dict[Node, list[Kernel]] = {}
        # Bit j of before[i]: kernel i depends on kernel j, directly or not.
        self.before: list[int] = []
        self.operations: dict[Kernel, int] = {}

    def run(self) -> list[Kernel]:
        for root in self.roots:
            self._place(root)
        for root, kernel in self.home.items():
            if root not in self.outputs and self.readers.get(root) == [kernel]:
                kernel.private.add(root)
        return self._sorted()

    def _has_buffer(self, node: Node) -> bool:
        return node in self.stored or isinstance(node.op, Input)

    def _sources(self, root: Node) -> tuple[set[Node], int]:
        """The nodes with buffers that a root reads, and how many nodes are inlined into it."""
        found: set[Node] = set()
        seen: set[Node] = set()
        stack = list(root.inputs)
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            if self._has_buffer(node):
                found.add(node)
            else:
                stack.extend(node.inputs)
        return found, len(seen) - len(found) + 1

    def _place(self, root: Node) -> None:
        sources, operations = self._sources(root)
        needed = {self.home[source] for source in sources if source in self.home}
        new = self._kernel_for(root)
        if not (new.scatter or new.contraction):
            for kernel in self._candidates(sources):
                if self.operations[kernel] + operations > _LARGEST_KERNEL:
                    continue
                if self._closes_cycle(kernel, needed):
                    continue
                if self._join(kernel, root, new):
                    explain("fused", root, kernel)
                    self.operations[kernel] += operations
                    self._record(kernel, root, sources, needed)
                    return
        elif new.contraction:
            explain("contraction", root, new)
        new.roots.append(root)
        self.operations[new] = operations
        self.number[new] = len(self.kernels)
        self.kernels.append(new)
        self.before.append(0)
        self._record(new, root, sources, needed)

    def _kernel_for(self, root: Node) -> Kernel:
        if not isinstance(root.op, Reduce):
            return Kernel(root.shape, frozenset())
        shape = root.inputs[0].shape
        reduced = reduced_axes(root)
        if reduced is None:
            return Kernel(shape, frozenset(), scatter=True)
        return Kernel(shape, reduced, contraction=recognise(root, self._has_buffer))

    def _candidates(self, sources: set[Node]) -> list[Kernel]:
        found: dict[Kernel, None] = {}
        for source in sorted(sources, key=lambda node: -node.size):
            if source in self.home:
                found[self.home[source]] = None
            for kernel in self.readers.get(source, ())[-3:]:
                found[kernel] = None
        return list(found)

    def _closes_cycle(self, kernel: Kernel, needed: set[Kernel]) -> bool:
        bit = 1 << self.number[kernel]
        return any(k is not kernel and self.before[self.number[k]] & bit for k in needed)

    def _join(self, kernel: Kernel, root: Node, new: Kernel) -> bool:
        """Adds `root` to `kernel` if it fits; a kernel of maps may become one with reductions."""
        if kernel.scatter:
            return False
        reduced = kernel.reduced
        if new.reduced and not reduced and not kernel.contraction:
            if new.shape != kernel.shape or not _is_parallel(new):
                return False
            if any(member.shape != kernel.shape for member in kernel.roots):
                return False
            kernel.reduced = new.reduced
        elif new.reduced and (new.shape != kernel.shape or new.reduced != reduced):
            return False
        fits = self._fits(kernel, root)
        if not fits:
            kernel.reduced = reduced
        else:
            kernel.roots.append(root)
        return fits

    def _fits(self, kernel: Kernel, root: Node) -> bool:
        at = kernel.indices_of(root)
        if at is None:
            return False
        if kernel.contraction and (root.shape != kernel.roots[0].shape or reduced_axes(root)):
            return False
        box = box_axes(kernel.shape)
        element_level = root.shape == kernel.shape and not isinstance(root.op, Reduce)
        if element_level and kernel.reduced and not _is_parallel(kernel):
            return False
        places = {member: kernel.indices_of(member) for member in kernel.roots}
        for node, place in reads(root, box, at, self._has_buffer):
            if node in places and places[node] != place:
                return False
        return True

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
            for number, before in enumerate(self.before):
                if before >> own & 1:
                    self.before[number] |= self.before[own]
        for source in sources:
            readers = self.readers.setdefault(source, [])
            if kernel not in readers:
                readers.append(kernel)

    def _sorted(self) -> list[Kernel]:
        """The kernels after all that they depend on, otherwise as they were made."""
        done = 0
        waiting = list(range(len(self.kernels)))
        result: list[Kernel] = []
        while waiting:
            left = []
            for number in waiting:
                if self.before[number] & ~done:
                    left.append(number)
                else:
                    result.append(self.kernels[number])
                    done |= 1 << number
            waiting = left
        return result


def _is_parallel(kernel: Kernel) -> bool:
    total = 1
    for extent in kernel.shape:
        total *= extent
    return kernel.rows >= _ENOUGH_ROWS or total <= _SMALL
