"""What the steps of a loop need not compute one by one: it is computed for all of them at once.

A gradient by a weight that all steps read is a sum over the steps, and each term is a product of
few rows. Outside of the loop the terms are one product of many rows. The same holds for products of
what the steps are given with a weight, which no step waits for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from metaop.batching.rules import batched, summed
from metaop.elementwise.meta_op import Elementwise
from metaop.fusion.sums import is_product
from metaop.reduce.meta_op import Reduce
from metaop.reindex.meta_op import Reindex
from metaop.unified_graph import index_expr
from metaop.unified_graph.loop import Body, Loop, body_inputs, last, stack
from metaop.unified_graph.node import Constant, Node, index_node, input_node, topological
from metaop.unified_graph.rewrite import rebuild
from metaop.unified_graph.symbolic import hint_of

# Fewer steps are not worth further kernels.
_FEW_STEPS = 2


def lift(outputs: Sequence[Node]) -> list[Node]:
    """The outputs, with sums and products of loops computed for all steps at once."""
    order = topological(outputs)
    loops: dict[tuple[Body, tuple[Node, ...]], list[Node]] = {}
    for node in order:
        if isinstance(node.op, Loop):
            loops.setdefault((node.op.definition, node.inputs), []).append(node)
    if not loops:
        return list(outputs)
    done: dict[Node, Node] = {}
    for node in order:
        inputs = [done[source] for source in node.inputs]
        if node in done:
            continue
        if isinstance(node.op, Loop):
            results = loops[node.op.definition, node.inputs]
            done.update(zip(results, _lifted(results, inputs)))
        else:
            done[node] = Node(node.op, inputs, node.shape, node.dtype)
    return [done[output] for output in outputs]


def _lifted(results: Sequence[Node], operands: Sequence[Node]) -> list[Node]:
    """The results of a loop on new operands."""
    op = results[0].op
    assert isinstance(op, Loop)
    if op.definition.guarded or op.definition.length < _FEW_STEPS:
        return [Node(x.op, operands, x.shape, x.dtype) for x in results]
    return _Lift(op.definition, results, operands).results()


class _Lift:
    """A loop that is taken apart.

    `sums` has, by the number of a carried value, the terms that steps add to it and that are summed
    outside; what these read of the steps is in `kept`. `given` are products that steps do not wait
    for; in place of such a node they get its value.
    """

    def __init__(self, body: Body, results: Sequence[Node], operands: Sequence[Node]) -> None:
        self.body, self.roots, self.operands = body, results, operands
        count = len(body.carried)
        self.inputs = body_inputs(operands, count, body.sliced)
        self.carries, self.rest = self.inputs[1 : 1 + count], self.inputs[1 + count :]
        self.stacked = [x.op.stacked for x in results if x.op.stacked is not None]  # type: ignore
        nodes = topological([*body.carried, *self.stacked])
        self.varying = _depending(nodes, self.carries)
        apart = [x for x, flag in zip(self.rest, body.sliced) if flag]
        self.apart = _depending(nodes, [self.inputs[0], *apart])
        self.kept: dict[Node, None] = dict.fromkeys(self.stacked)
        self.sums = self._sums(nodes)
        self.given = self._given(nodes)

    def _sums(self, nodes: Sequence[Node]) -> dict[int, list[Node]]:
        readers = Counter(x for node in nodes for x in node.inputs)
        readers.update([*self.body.carried, *self.stacked])
        terms = []
        for number, (own, new) in enumerate(zip(self.carries, self.body.carried)):
            found = _terms(new)
            # Only the sum itself reads what it was, and nobody what it becomes on the way or then.
            if found.count(own) == 1 and all(readers[x] == 1 for x in _way(new, own)):
                terms += [(number, x) for x in found if x is not own]
        lifted: dict[int, list[Node]] = {}
        for number, term in sorted(terms, key=lambda one: -hint_of(one[1].nbytes)):
            if not (isinstance(term.op, Reduce) and term.op.reducer.name == "add"):
                continue
            more = [x for x in self._read_of_steps(term) if x not in self.kept]
            if sum(hint_of(x.nbytes) for x in more) <= hint_of(term.nbytes):
                self.kept.update(dict.fromkeys(more))
                lifted.setdefault(number, []).append(term)
        return lifted

    def _given(self, nodes: Sequence[Node]) -> list[Node]:
        """Products of what steps are given that something reads which waits for earlier steps."""
        found: dict[Node, None] = {}
        inside = [node for node in nodes if node in self.varying]
        read = [x for node in inside for x in node.inputs] + [*self.body.carried]
        while read:
            node = read.pop()
            if node in self.varying or node not in self.apart or node in found:
                continue
            if isinstance(node.op, Reduce) and is_product(node.inputs[0]):
                found[node] = None
            elif not isinstance(node.op, Reduce):
                read.extend(node.inputs)
        return self._computed_once(found)

    def _computed_once(self, given: Iterable[Node]) -> list[Node]:
        """Those of the nodes that need no reduction which steps compute too.

        Another kernel may round it differently, and the gradient of a maximum looks for it among
        the values of which it is one.
        """
        found, roots = dict.fromkeys(given), [*self.body.carried, *self.kept]
        while True:
            inside = {x for x in topological(roots, found) if isinstance(x.op, Reduce)}
            twice = [x for x in found if not inside.isdisjoint(topological(x.inputs))]
            if not twice:
                return list(found)
            for node in twice:
                del found[node]

    def _read_of_steps(self, term: Node) -> list[Node]:
        """What a term reads of its step, past maps and products of what maps have spread."""
        found: dict[Node, None] = {}
        pending = list(term.inputs)
        while pending:
            node = pending.pop()
            if node not in self.varying:
                continue
            spread = is_product(node) and all(isinstance(x.op, Reindex) for x in node.inputs)
            if node not in self.kept and (spread or isinstance(node.op, Reindex)):
                pending.extend(node.inputs)
            else:
                found[node] = None
        return list(found)

    def results(self) -> list[Node]:
        if not self.sums and not self.given:
            return [Node(x.op, self.operands, x.shape, x.dtype) for x in self.roots]
        self._build()
        return [self._result(root.op) for root in self.roots]  # type: ignore[arg-type]

    def _build(self) -> None:
        """The loop without what is lifted, and its operands."""
        body = self.body
        remaining: dict[int, Node] = {}
        for number, (own, new) in enumerate(zip(self.carries, body.carried)):
            rest = [x for x in _terms(new) if x not in self.sums.get(number, ())]
            if number not in self.sums:
                remaining[number] = new
            elif rest != [own]:
                remaining[number] = sum(rest[1:], rest[0])
        self.positions = {number: k for k, number in enumerate(remaining)}
        outside = {x: batched([x], *self._read(()), body.length)[0] for x in self.given}
        carried = [(self.carries[k], self.operands[k]) for k in remaining]
        further = list(zip(self.rest, self.operands[len(self.carries) :]))
        sources = [*carried, *further, *outside.items()]
        self.moved = {self.inputs[0]: self.inputs[0]}
        for slot, (node, _) in enumerate(sources, 1):
            self.moved[node] = input_node(slot, node.shape, node.dtype)
        self.rebuilt = [x for _, x in sources]
        flags = (*body.sliced, *(True for _ in outside))
        steps = rebuild(list(remaining.values()), self.moved)
        self.new_body = body._replace(carried=tuple(steps), sliced=flags)

    def _result(self, op: Loop) -> Node:
        if op.stacked is not None:
            return self._stack(op.stacked)
        terms = []
        if op.number in self.positions:
            terms.append(last(self.new_body, self.rebuilt, self.positions[op.number]))
        elif not _is_zero(self.operands[op.number]):
            terms.append(self.operands[op.number])
        for term in self.sums.get(op.number, ()):
            terms.append(summed(term, *self._read(self._read_of_steps(term)), self.body.length))
        return sum(terms[1:], terms[0])

    def _stack(self, node: Node) -> Node:
        return stack(self.new_body, self.rebuilt, rebuild([node], self.moved)[0])

    def _read(self, kept: Iterable[Node]) -> tuple[dict[Node, Node], frozenset[Node]]:
        """What stands outside, for all steps at once, for what a step is given and for what is
        `kept` of it; and which of that has the steps as its first dimension."""
        length = self.body.length
        known = {x: self._stack(x) for x in kept}
        varies = {*known, self.inputs[0]}
        known[self.inputs[0]] = index_node(index_expr.axis(0, length), (length,))
        operands = self.operands[len(self.carries) :]
        for x, flag, operand in zip(self.rest, self.body.sliced, operands):
            known[x] = operand
            if flag:
                varies.add(x)
        return known, frozenset(varies)


def _depending(nodes: Sequence[Node], inputs: Sequence[Node]) -> set[Node]:
    found = set(inputs)
    for node in nodes:
        if not found.isdisjoint(node.inputs):
            found.add(node)
    return found


def _is_zero(node: Node) -> bool:
    return isinstance(node.op, Constant) and not node.op.value(node.dtype)


def _way(total: Node, term: Node) -> list[Node]:
    """The sums from one of the terms of a sum to that sum, both included."""
    if total is term:
        return [total]
    return [total, *_way(next(x for x in total.inputs if term in _terms(x)), term)]


def _terms(node: Node) -> list[Node]:
    """The terms of a sum."""
    if isinstance(node.op, Elementwise) and node.op.function.name == "add":
        return [term for source in node.inputs for term in _terms(source)]
    return [node]
