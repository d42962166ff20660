"""Exports loops as `Loop`, and choices, which are loops of at most one step, as `If`.

The graph of a step reads what lies around it by name: values that all steps read alike, and stacks,
of which each step gathers its own element.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import GraphProto, ValueInfoProto, helper

from metaop.onnx.exporting.sizes import Size
from metaop.onnx.values import element_type
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.loop import ENDLESS, Body, body_inputs
from metaop.unified_graph.node import Node

if TYPE_CHECKING:
    from metaop.onnx.exporting.expansion import Walk

# A node in every recording.
Row = Sequence[Node]


def written_loop(walk: Walk, results: Sequence[Row]) -> list[str]:
    """Writes a loop; returns the names of these results of it."""
    return _Loop(walk, results).written()


class _Loop:
    """A loop in all recordings, of which some results are wanted."""

    def __init__(self, walk: Walk, results: Sequence[Row]) -> None:
        self._walk, self._w = walk, walk.w
        self._results = results
        self._bodies: list[Body] = [node.op.definition for node in results[0]]  # type: ignore
        self._operands: list[Row] = list(zip(*(node.inputs for node in results[0])))
        self._outer = [walk.names[row[0]] for row in self._operands]
        self._length: Any = walk.sizes.unified([body.length for body in self._bodies])
        self._stacks: list[Row] = [row for row in results if self._is_stack(row)]

    def written(self) -> list[str]:
        body = self._bodies[0]
        if body.guarded and body.length == 1 and not self._stacks:
            found = self._choice()
        else:
            found = self._repetition()
        supply = iter(found[len(body.carried) :])
        return [
            next(supply) if self._is_stack(row) else found[row[0].op.number]  # type: ignore
            for row in self._results
        ]

    def _is_stack(self, row: Row) -> bool:
        return row[0].op.stacked is not None  # type: ignore[attr-defined]

    def _choice(self) -> list[str]:
        """A loop of at most one step: its results, or the values with which it begins."""
        carried = self._outer[: len(self._bodies[0].carried)]
        with self._w.block() as nodes:
            position = self._w.array(np.array(0, np.int64))
            made = list(map(self._w.copied, self._step(position, carried)))
        chosen = helper.make_graph(nodes, "step", [], self._ports(made, self._carried()))
        with self._w.block() as nodes:
            made = list(map(self._w.copied, carried))
        others = helper.make_graph(nodes, "no_step", [], self._ports(made, self._carried()))
        branches = {"then_branch": chosen, "else_branch": others}
        return self._w.several("If", len(made), carried[0], **branches)

    def _repetition(self) -> list[str]:
        w, body = self._w, self._bodies[0]
        carried = self._outer[: len(body.carried)]
        limit = None if self._length == ENDLESS else self._count()
        made = w.several(
            "Loop",
            len(carried) + len(self._stacks),
            limit,
            carried[0] if body.guarded else w.array(np.array(True)),
            *carried,
            body=self._graph(),
        )
        if body.reverse:
            made[len(carried) :] = map(self._turned, made[len(carried) :])
        return made

    def _graph(self) -> GraphProto:
        """The graph of a step; its inputs are its number, whether it runs, and what is carried."""
        w, body = self._w, self._bodies[0]
        number, going = w.name("step"), w.name("going")
        carried = [w.name("carried") for _ in body.carried]
        with w.block() as nodes:
            place = number
            if body.reverse:
                last = w.node("Sub", self._count(), w.array(np.array(1, np.int64)))
                place = w.node("Sub", last, number)
            made = list(map(w.copied, self._step(place, carried)))
            goes_on = w.copied(made[0] if body.guarded else going)
        inputs = [_scalar(number, dtypes.int64), _scalar(going, dtypes.bool_)]
        inputs += self._ports(carried, self._operands)
        outputs = self._ports(made, [*self._carried(), *self._stacked()])
        ends = [_scalar(goes_on, dtypes.bool_), *outputs]
        return helper.make_graph(nodes, "step", inputs, ends)

    def _step(self, place: str, carried: Sequence[str]) -> list[str]:
        """Writes a step at a place: the next carried values, and one of every wanted stack."""
        body, walk = self._bodies[0], self._walk
        count = len(carried)
        starts = walk.sizes.unified([one.starts for one in self._bodies])
        own = []
        for k, (name, flag) in enumerate(zip(self._outer[count:], body.sliced)):
            own.append(self._element(name, place, starts[k] if starts else 0) if flag else name)
        inputs = body_inputs([row[0] for row in self._operands], count, body.sliced)
        inner = walk.inside(dict(zip(inputs, [place, *carried, *own])))
        rows = [*self._carried(), *self._stacked()]
        return inner.values(list(zip(*rows)))

    def _element(self, stack: str, place: str, start: Any) -> str:
        if start != 0:
            place = self._w.node("Add", place, self._w.squeeze(self._w.size(start), [0]))
        return self._w.node("Gather", stack, place, axis=0)

    def _carried(self) -> list[Row]:
        """The values for the next step."""
        return list(zip(*(body.carried for body in self._bodies)))

    def _stacked(self) -> list[Row]:
        """The values of a step of which stacks are wanted."""
        return [[node.op.stacked for node in row] for row in self._stacks]  # type: ignore

    def _count(self) -> str:
        return self._w.squeeze(self._w.size(self._length), [0])

    def _turned(self, stack: str) -> str:
        """The elements of a stack in the opposite order."""
        ends = ([-1], [np.iinfo(np.int64).min], [0], [-1])
        return self._w.node("Slice", stack, *(self._w.integers(one) for one in ends))

    def _ports(self, names: Sequence[str], rows: Sequence[Row]) -> list[ValueInfoProto]:
        """Names with the types of nodes."""
        found = []
        for name, row in zip(names, rows):
            shape = [None if isinstance(x, Size) else x for x in self._walk.shape(row)]
            kind = element_type(row[0].dtype)
            found.append(helper.make_tensor_value_info(name, kind, shape))
        return found


def _scalar(name: str, dtype: DType) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, element_type(dtype), [])
