"""Fingerprints of subgraphs and kernels, which are the same in every process: keys on disk.

Within a process, a number identifies a signature, and the order of requests by gradients identifies
its further outputs. Neither means anything elsewhere, so a fingerprint hashes the content: the
meta-operators of the templates with their maps, and how the calls are connected.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from weakref import WeakKeyDictionary

from metaop.elementwise.meta_op import Elementwise
from metaop.fusion.kernel import Kernel
from metaop.fusion.storage import Storage
from metaop.reduce.meta_op import Reduce
from metaop.reduce.replacement import Replacement
from metaop.reindex.meta_op import Reindex
from metaop.reindex.order import Order
from metaop.reindex.reinterpret import Reinterpret
from metaop.unified_graph.access import IndexMap
from metaop.unified_graph.code import Code
from metaop.unified_graph.cut import Subgraph
from metaop.unified_graph.index_expr import Atom, Axis, IndexExpr, Lookup, Quotient, Remainder
from metaop.unified_graph.loop import Loop
from metaop.unified_graph.node import Constant, Index, Input, Node, topological
from metaop.unified_graph.recording import Call
from metaop.unified_graph.symbolic import is_symbolic

_DIGEST_BYTES = 16

_digests: WeakKeyDictionary[Node, str] = WeakKeyDictionary()


class NotCanonicalError(Exception):
    """A node's content has no canonical text, so its programs stay in this process."""


def subgraph_fingerprint(subgraph: Subgraph) -> str | None:
    """A hash that equal subgraphs have in every process; None if there is none."""
    numbers: dict[Call, int] = {}
    words: list[str] = []
    for call in subgraph.leaves:
        numbers[call] = len(numbers)
        words.append(f"{call.type}{'' if call.scalar is None else ' number'}")
    try:
        for call in subgraph.order:
            signature = call.maker.signature
            assert signature is not None
            words += _digests_of([signature.outputs[call.index]])
            words.extend(str(numbers[source]) for source in subgraph.inputs_of(call))
            numbers[call] = len(numbers)
    except NotCanonicalError:
        return None
    words.append("outputs")
    words.extend(str(numbers[call]) for call in subgraph.outputs)
    return blake2b("\n".join(words).encode(), digest_size=_DIGEST_BYTES).hexdigest()


def graph_fingerprint(inputs: Sequence[Node], outputs: Sequence[Node]) -> str | None:
    """A hash that equal graphs have in every process; symbols count by their names."""
    words = [f"{node.dtype.name}{node.shape}" for node in inputs]
    try:
        words += _digests_of(outputs)
    except NotCanonicalError:
        return None
    return blake2b("\n".join(words).encode(), digest_size=_DIGEST_BYTES).hexdigest()


def kernel_fingerprint(kernel: Kernel, storage: Storage) -> str | None:
    """A hash of what a kernel computes from its buffers, independent of what wrote them.

    It is the same in every process; None if there is none, as of kernels for any size.
    """
    numbers: dict[Node, int] = {}
    words = [f"{kernel.shape} {sorted(kernel.reduced)}"]
    roots = set(kernel.roots)
    stack = list(reversed(kernel.roots))
    try:
        while stack:
            node = stack[-1]
            is_read = node not in roots and storage.has_buffer(node)
            sources = () if is_read else node.inputs
            missing = [source for source in sources if source not in numbers]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            if any(map(is_symbolic, node.shape)):
                return None
            if node not in numbers:
                numbers[node] = len(numbers)
                operator = "buffer" if is_read else _operator_text(node)
                inputs = " ".join(str(numbers[source]) for source in sources)
                words.append(f"{operator}|{node.dtype.name}{node.shape}|{inputs}")
    except NotCanonicalError:
        return None
    words.extend(str(numbers[root]) for root in kernel.roots)
    return blake2b("\n".join(words).encode(), digest_size=_DIGEST_BYTES).hexdigest()


def _digests_of(outputs: Sequence[Node]) -> list[str]:
    missing = [output for output in outputs if output not in _digests]
    for node in topological(missing):
        if node in _digests:
            continue
        inputs = " ".join(_digests[source] for source in node.inputs)
        text = f"{_operator_text(node)}|{node.dtype.name}{node.shape}|{inputs}"
        _digests[node] = blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return [_digests[output] for output in outputs]


def _operator_text(node: Node) -> str:
    op = node.op
    if isinstance(op, Elementwise):
        return op.function.name
    if isinstance(op, Reindex):
        return f"reindex {_map_text(op.map)} {op.fill!r}"
    if isinstance(op, Reduce):
        return f"reduce {op.reducer.name} {_map_text(op.map)} {op.is_sorted}"
    if isinstance(op, Constant):
        return f"constant {op.bits.hex() if isinstance(op.bits, bytes) else op.bits}"
    if isinstance(op, Index):
        return f"index {_expression_text(op.expr)}"
    if isinstance(op, Input):
        return f"input {op.slot}"
    if isinstance(op, Code) and op.definition.digest:
        return f"code {op.definition.digest} {op.result}"
    if isinstance(op, Loop):
        stacked = "" if op.stacked is None else _digests_of([op.stacked])[0]
        digests = ",".join(_digests_of(op.definition.carried))
        return f"loop {digests} {op.definition[1:]} {stacked} {op.number}"
    if isinstance(op, (Order, Replacement, Reinterpret)):
        return op.name
    raise NotCanonicalError


def _map_text(index_map: IndexMap) -> str:
    indices = ";".join(map(_expression_text, index_map.indices))
    guards = ";".join(
        f"{type(guard).__name__} {_expression_text(guard.expr)} {guard[1]}"
        for guard in index_map.guards
    )
    return f"{index_map.domain}->{indices}|{guards}|{index_map.never}"


def _expression_text(expr: IndexExpr) -> str:
    """The terms stand in the order of their text: atoms are numbered as they come."""
    terms = sorted(f"{factor}*{_atom_text(atom)}" for atom, factor in expr.terms)
    return "+".join([str(expr.constant), *terms])


def _atom_text(atom: Atom) -> str:
    if isinstance(atom, Axis):
        return f"axis {atom.name} {atom.extent}"
    if isinstance(atom, Quotient):
        return f"({_expression_text(atom.dividend)})//{atom.divisor}"
    if isinstance(atom, Remainder):
        return f"({_expression_text(atom.dividend)})%{atom.divisor}"
    if isinstance(atom, Lookup):
        indices = ",".join(map(_expression_text, atom.indices))
        return f"operand {atom.operand}[{indices}]<{atom.bound}"
    raise NotCanonicalError
