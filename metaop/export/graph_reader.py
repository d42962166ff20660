"""Converts plain data to nodes; every field is checked.

Kernels access memory as the maps say. So each index must provably be within its tensor, by its
range or by a guard of the map; unproved accesses are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from metaop.elementwise.functions import FUNCTIONS
from metaop.elementwise.meta_op import Elementwise
from metaop.export.numbers import LARGEST, Numbers
from metaop.reduce.meta_op import Reduce
from metaop.reduce.reducers import REDUCERS
from metaop.reindex.meta_op import Reindex
from metaop.reindex.order import KEY_TYPES, LONGEST_ROW, Order
from metaop.serialization.damage import Damage
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import NEVER, Divisible, Guard, IndexMap, Within
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.index_atoms import Lookup
from metaop.unified_graph.index_expr import IndexExpr
from metaop.unified_graph.loop import ENDLESS, Body, body_inputs, last, stack
from metaop.unified_graph.node import Constant, Index, Node, Shape, constant
from metaop.unified_graph.symbolic import is_symbolic

_DEEPEST = 48
_MOST_AXES = 64
_MOST_TERMS = 1 << 10
_MOST_NESTED_LOOPS = 8
_LOGICAL = ("and", "or")
_OF_TRUTHS = (*_LOGICAL, "max", "min", "amax", "amin")


class _Repeated(NamedTuple):
    """A loop: the body, what it runs on, and the values of which it keeps those of all steps."""

    body: Body
    operands: tuple[Node, ...]
    stacked: list[Node]


class GraphReader:
    """Makes nodes from records, for plain or for symbolic sizes.

    `inputs` and `weights` are nodes with the types that the program gives them. Symbolic sizes
    replace plain ones that have been read, and so checked, before. The graph of a step lies within
    so many loops as `depth` says.
    """

    def __init__(
        self,
        numbers: Numbers,
        inputs: Sequence[Node],
        weights: Sequence[Node],
        depth: int = 0,
    ) -> None:
        self._numbers, self._depth = numbers, depth
        self._sources = {"input": inputs, "weight": weights}
        self._nodes: list[Node | _Repeated] = []

    def read(self, records: Sequence[Any], outputs: Sequence[Any]) -> list[Node]:
        """The output nodes of a graph."""
        for position, record in enumerate(records):
            if not isinstance(record, dict):
                raise Damage(f"its node {position} is not a record")
            try:
                self._nodes.append(self._node(record))
            except (KeyError, TypeError, ValueError) as error:
                reason = f"{type(error).__name__}: {error}"
                raise Damage(f"its node {position} is damaged ({reason})") from None
            except Damage as damage:
                raise Damage(f"its node {position} is damaged: {damage}") from None
        return [self._at(one) for one in outputs]

    def _at(self, position: Any) -> Node:
        if type(position) is not int or not 0 <= position < len(self._nodes):
            raise Damage(f"it needs node {position!r}, which does not exist yet")
        found = self._nodes[position]
        if not isinstance(found, Node):
            raise Damage(f"it needs node {position}, which is a loop and no value")
        return found

    def _node(self, record: dict[str, Any]) -> Node | _Repeated:
        kind = record["op"]
        if kind == "loop":
            return self._loop(record)
        if kind in ("input", "weight"):
            sources, number = self._sources[kind], record["number"]
            if type(number) is not int or not 0 <= number < len(sources):
                raise Damage(f"there is no {kind} {number!r}")
            return sources[number]
        dtype, shape = dtype_named(record["dtype"]), self._shape(record["shape"])
        inputs = [self._at(one) for one in record.get("in", ())]
        make = _READERS.get(kind)
        if make is None:
            raise Damage(f"its operator {kind!r} is unknown")
        return make(self, record, inputs, shape, dtype)

    def _shape(self, references: Any) -> Shape:
        shape = self._numbers.integers(references)
        if len(shape) > _MOST_AXES:
            raise Damage(f"a tensor has {len(shape)} axes")
        if not any(map(is_symbolic, shape)) and prod(shape) > LARGEST:
            raise Damage(f"a tensor of shape {list(shape)} is too large")
        return shape

    # --- operators --------------------------------------------------------------------------

    def _constant(self, record: Any, inputs: list[Node], shape: Shape, dtype: DType) -> Node:
        bits = bytes.fromhex(record["bits"])
        if len(bits) != dtype.itemsize or (dtype.kind == "bool" and bits > b"\1"):
            raise Damage(f"{record['bits']!r} is not a {dtype.name}")
        _expect(inputs, 0)
        return Node(Constant(bits), (), shape, dtype)

    def _number(self, record: Any, inputs: list[Node], shape: Shape, dtype: DType) -> Node:
        _expect(inputs, 0)
        take = self._numbers.signed if dtype.kind == "int" else self._numbers.real
        return constant(take(record["value"]), dtype, shape)

    def _index(self, record: Any, inputs: list[Node], shape: Shape, dtype: DType) -> Node:
        _expect(inputs, 0)
        if dtype is not dtypes.int64:
            raise Damage("an index must be an int64")
        expr = self._expression(record["value"], shape, [])
        if not expr.terms and not is_symbolic(expr.constant):
            # A size, where it is no symbol: what reads it is simplified as with any constant.
            return constant(expr.constant, dtype, shape)
        return Node(Index(expr), (), shape, dtype)

    def _elementwise(self, record: Any, inputs: list[Node], shape: Shape, dtype: DType) -> Node:
        function = FUNCTIONS.get(record["function"])
        if function is None:
            raise Damage(f"the function {record['function']!r} is unknown")
        _expect(inputs, function.arity)
        for source in inputs:
            _check_shape(source.shape, shape)
        kinds = [source.dtype for source in inputs]
        if function.name == "where":
            is_legal = kinds[0] is dtypes.bool_ and kinds[1] is kinds[2] is dtype
        elif function.name == "cast":
            is_legal = True
        else:
            first = kinds[0]
            is_legal = all(kind is first for kind in kinds) and first.kind in function.accepts
            is_legal = is_legal and function.operand(first) is first
            is_legal = is_legal and function.result(first) is dtype
        if not is_legal:
            names = ", ".join(kind.name for kind in kinds)
            raise Damage(f"{function.name} makes no {dtype.name} of {names}")
        return Node(Elementwise(function), inputs, shape, dtype)

    def _reindex(self, record: Any, inputs: list[Node], shape: Shape, dtype: DType) -> Node:
        source, *operands = inputs
        index_map = self._map(record, shape, operands, source.shape)
        _check_dtype(source, dtype)
        fill = _scalar(record.get("fill", 0), dtype)
        if index_map.never:
            return constant(fill, dtype, shape)
        return Node(Reindex(index_map, fill), inputs, shape, dtype)

    def _reduce(self, record: Any, inputs: list[Node], shape: Shape, dtype: DType) -> Node:
        source, *operands = inputs
        reducer = REDUCERS.get(record["reducer"])
        if reducer is None:
            raise Damage(f"the reducer {record['reducer']!r} is unknown")
        is_legal = (
            reducer.name in _OF_TRUTHS if dtype.kind == "bool" else reducer.name not in _LOGICAL
        )
        if not is_legal:
            raise Damage(f"{reducer.name} does not reduce {dtype.name}")
        index_map = self._map(record, source.shape, operands, shape)
        _check_dtype(source, dtype)
        if index_map.never:
            return constant(reducer.identity(dtype), dtype, shape)
        return Node(Reduce(reducer, index_map), inputs, shape, dtype)

    def _order(self, record: Any, inputs: list[Node], shape: Shape, dtype: DType) -> Node:
        _expect(inputs, 1)
        _check_shape(inputs[0].shape, shape)
        if inputs[0].dtype not in KEY_TYPES or not shape or dtype is not dtypes.int64:
            raise Damage(f"rows of {inputs[0].dtype.name} have no order")
        if not shape[-1] < LONGEST_ROW:
            raise Damage(f"rows of {shape[-1]} elements are too long to be sorted")
        return Node(Order(), inputs, shape, dtype)

    # --- loops ------------------------------------------------------------------------------

    def _loop(self, record: dict[str, Any]) -> _Repeated:
        operands = tuple(self._at(one) for one in record["in"])
        sliced, flags = tuple(record["sliced"]), [record[name] for name in _LOOP_FLAGS]
        if any(type(one) is not bool for one in (*sliced, *flags)):
            raise Damage("a flag of a loop is no truth value")
        count = len(record["carried"])
        if count + len(sliced) != len(operands) or self._depth == _MOST_NESTED_LOOPS:
            raise Damage("a loop does not fit its operands, or lies in too many others")
        length = self._numbers.integer(record["length"], ENDLESS)
        guarded, reverse, _ = flags
        if length == 0:
            raise Damage("a loop has no steps")
        if length == ENDLESS and (not guarded or reverse or any(sliced)):
            raise Damage("a loop without an end has slices, or nothing that ends it")
        if guarded and record["stacked"]:
            raise Damage("a stack of a loop that may end early would be undefined in part")
        for source, flag in zip(operands[count:], sliced):
            if flag:
                _check_shape(source.shape[:1], (length,))
        inputs = body_inputs(operands, count, sliced)
        if guarded and not (count and inputs[1].shape == () and inputs[1].dtype is dtypes.bool_):
            raise Damage("a loop is ended by a value that is no truth value")
        reader = GraphReader(self._numbers, inputs, (), self._depth + 1)
        made = reader.read(record["nodes"], [*record["carried"], *record["stacked"]])
        for before, after in zip(inputs[1:], made[:count]):
            _check_shape(after.shape, before.shape)
            _check_dtype(after, before.dtype)
        body = Body(tuple(made[:count]), sliced, length, reverse, guarded, record["recompute"])
        return _Repeated(body, operands, made[count:])

    def _result(self, record: Any, inputs: list[Node], shape: Shape, dtype: DType) -> Node:
        position, number = record["of"], record["number"]
        if type(position) is not int or not 0 <= position < len(self._nodes):
            raise Damage(f"it needs loop {position!r}, which does not exist yet")
        loop = self._nodes[position]
        _expect(inputs, 0)
        if not isinstance(loop, _Repeated) or type(number) is not int:
            raise Damage(f"node {position} is no loop")
        count = len(loop.body.carried)
        if not 0 <= number < count + len(loop.stacked):
            raise Damage(f"a loop has no result {number}")
        if number < count:
            node = last(loop.body, loop.operands, number)
        else:
            node = stack(loop.body, loop.operands, loop.stacked[number - count])
        _check_shape(node.shape, shape)
        _check_dtype(node, dtype)
        return node

    # --- maps -------------------------------------------------------------------------------

    def _map(self, record: Any, domain: Shape, operands: list[Node], target: Shape) -> IndexMap:
        """The map of a record, which is proved to stay inside a tensor of shape `target`."""
        indices = [self._expression(one, domain, operands) for one in record["map"]]
        if len(indices) != len(target):
            raise Damage(f"its map has {len(indices)} indices for {len(target)} axes")
        guards = [self._guard(one, domain, operands) for one in record.get("where", ())]
        if record.get("never", False) is True:
            guards.append(NEVER)
        if not all(source.dtype.kind == "int" for source in operands):
            raise Damage("an index operand has no integers")
        index_map = IndexMap(domain, indices, guards)
        if not index_map.never and 0 not in domain:
            _check_inside(index_map.indices, target, index_map.guards)
            for expr in index_map.indices:
                _check_lookups(expr, operands, index_map.guards)
            for guard in index_map.guards:
                # A guard's operands are read before the other guards are known to hold.
                _check_lookups(guard.expr, operands, ())
        return index_map

    def _guard(self, guard: Any, domain: Shape, operands: list[Node]) -> Guard:
        kind, expression, bound = guard
        expr = self._expression(expression, domain, operands)
        if kind == "within":
            return Within(expr, self._numbers.integer(bound))
        if kind == "divisible":
            return Divisible(expr, self._numbers.integer(bound, 1))
        raise Damage(f"the guard {kind!r} is unknown")

    def _expression(
        self, written: Any, domain: Shape, operands: list[Node], depth: int = 0
    ) -> IndexExpr:
        if depth > _DEEPEST:
            raise Damage("an index is nested too deeply")
        if not isinstance(written, list):
            return index_expr.constant(self._numbers.signed(written))
        if not 0 < len(written) <= _MOST_TERMS:
            raise Damage(f"an index has {len(written)} terms")
        first, *terms = written
        found = index_expr.constant(self._numbers.signed(first))
        for factor, atom in terms:
            part = self._atom(atom, domain, operands, depth + 1)
            found = found + part * self._numbers.signed(factor)
        low, high = found.low, found.high
        if type(low) is type(high) is int and max(-low, high) > LARGEST:
            raise Damage(f"an index runs from {low} to {high}")
        return found

    def _atom(self, written: Any, domain: Shape, operands: list[Node], depth: int) -> IndexExpr:
        kind, *content = written
        if kind == "axis":
            (axis,) = content
            if type(axis) is not int or not 0 <= axis < len(domain):
                raise Damage(f"there is no axis {axis!r}")
            return index_expr.axis(axis, domain[axis])
        if kind in ("//", "%"):
            dividend, divisor = content
            inside = self._expression(dividend, domain, operands, depth)
            number = self._numbers.integer(divisor, 1)
            return inside // number if kind == "//" else inside % number
        if kind == "at":
            operand, indices, bound = content
            if type(operand) is not int or not 1 <= operand <= len(operands):
                raise Damage(f"there is no index operand {operand!r}")
            inside_of = [self._expression(one, domain, operands, depth) for one in indices]
            if len(inside_of) != operands[operand - 1].ndim:
                raise Damage("an index operand has a different number of axes")
            return index_expr.lookup(operand, inside_of, self._numbers.integer(bound, 1))
        raise Damage(f"the index {kind!r} is unknown")


_READERS = {
    "constant": GraphReader._constant,
    "number": GraphReader._number,
    "index": GraphReader._index,
    "elementwise": GraphReader._elementwise,
    "reindex": GraphReader._reindex,
    "reduce": GraphReader._reduce,
    "order": GraphReader._order,
    "result": GraphReader._result,
}
_LOOP_FLAGS = ("guarded", "reverse", "recompute")


def dtype_named(name: Any) -> DType:
    """The dtype with a name; raises Damage if there is none."""
    try:
        return dtypes.dtype_named(name)
    except (KeyError, TypeError):
        raise Damage(f"the type {name!r} is unknown") from None


def _expect(inputs: Sequence[Node], count: int) -> None:
    if len(inputs) != count:
        raise Damage(f"it has {len(inputs)} inputs instead of {count}")


def _check_shape(found: Sequence[Any], wanted: Sequence[Any]) -> None:
    if len(found) != len(wanted) or any(a != b for a, b in zip(found, wanted)):
        raise Damage(f"a shape is {list(found)} but must be {list(wanted)}")


def _check_dtype(source: Node, dtype: DType) -> None:
    if source.dtype is not dtype:
        raise Damage(f"a {source.dtype.name} does not become a {dtype.name} here")


def _check_inside(indices: Sequence[IndexExpr], target: Shape, guards: Sequence[Guard]) -> None:
    """Raises Damage unless each index is within its axis where the guards hold."""
    for expr, extent in zip(indices, target):
        if is_symbolic(extent) or is_symbolic(expr.low) or is_symbolic(expr.high):
            continue
        ranges = [(expr.low, expr.high)]
        for guard in guards:
            if isinstance(guard, Within):
                # The rest of the index besides the guarded value keeps its own range.
                beside, over = expr - guard.expr, expr + guard.expr
                ranges.append((beside.low, beside.high + guard.extent - 1))
                ranges.append((over.low - guard.extent + 1, over.high))
        if max(low for low, _ in ranges) < 0 or min(high for _, high in ranges) >= extent:
            raise Damage(f"the index {expr} may leave its axis of {extent} elements")


def _check_lookups(expr: IndexExpr, operands: Sequence[Node], guards: Sequence[Guard]) -> None:
    """Raises Damage unless an index reads index operands within bounds where the guards hold."""
    for atom in expr.atoms():
        if isinstance(atom, Lookup):
            _check_inside(atom.indices, operands[atom.operand - 1].shape, guards)


def _scalar(written: Any, dtype: DType) -> Any:
    value = written
    if isinstance(written, dict):
        value = {"inf": float("inf"), "-inf": -float("inf"), "nan": float("nan")}[written["float"]]
    if type(value) not in (bool, int, float):
        raise Damage(f"{written!r} is not a fill value")
    if type(value) is int and abs(value) >= 1 << 64:
        raise Damage("a fill value is too large")
    return value
