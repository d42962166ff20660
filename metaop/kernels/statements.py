"""Statements of a kernel: conditions, copies, barriers."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from metaop.codegen.nest import ir
from metaop.kernels.assignments import NUMBERS
from metaop.kernels.expressions import phrase
from metaop.kernels.loops import Loops
from metaop.kernels.memory import Memory
from metaop.kernels.values import (
    Index,
    as_value,
    selected,
    variable,
)

_ATOMIC = {"atomic_add": "add", "atomic_max": "max", "atomic_min": "min"}


class Statements(Loops):
    """Translates all statements."""

    def _do_pass(self, node: ast.Pass) -> None:
        return

    def _do_if(self, node: ast.If) -> None:
        test = self.test(node.test)
        if isinstance(test, bool):
            self.run(node.body if test else node.orelse)
            return
        before = self.names
        branches = []
        for body, holds in ((node.body, True), (node.orelse, False)):
            self.names = dict(before)
            if body:
                with self.under(test, holds):
                    self.run(body)
            branches.append(self.names)
        self.names = before
        for name in dict.fromkeys((*branches[0], *branches[1])):
            self._join(name, test, [branch.get(name) for branch in branches], node)

    def _join(self, name: str, test: Any, items: list[Any], node: ast.AST) -> None:
        """Sets the value of a name after a condition."""
        first, second = items
        if first is second:
            return
        if isinstance(first, NUMBERS) and isinstance(second, NUMBERS):
            if type(first) is type(second) and first == second:
                return
            value = selected(test, as_value(first), as_value(second))
            self.names[name] = self.bound(value)
            return
        self.names.pop(name, None)
        self.lost[name] = "only one branch of a condition assigns it"

    # --- copies -----------------------------------------------------------------------------------

    def _do_expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return
        word = self.word(node.value) if isinstance(node.value, ast.Call) else ""
        if word == "copy":
            self._copy(node.value)  # type: ignore[arg-type]
        elif word == "fill":
            self._fill(node.value)  # type: ignore[arg-type]
        elif word in _ATOMIC:
            self._atomic(node.value, _ATOMIC[word])  # type: ignore[arg-type]
        elif word == "barrier":
            self.wait(node)
        else:
            raise self.error(f"{phrase(node)} has no effect", node, "assign it, or drop the line")

    def wait(self, node: ast.AST) -> None:
        """A barrier."""
        raise NotImplementedError

    def _memory(self, node: ast.expr) -> Memory:
        item = self.visit(node)
        if not isinstance(item, Memory):
            raise self.error(
                f"{phrase(node)} is not a memory of several elements", node, "assign it"
            )
        return item

    def _copy(self, call: ast.Call) -> None:
        target, source = map(self._memory, self.arguments(call, 2))
        if target.shape != source.shape:
            raise self.error(
                f"copy() of {list(source.shape)} elements to {list(target.shape)}",
                call,
                "make the shapes equal: slices like x[i, 0:16] narrow a memory",
            )
        self._everywhere(
            target,
            lambda indices: self.store(
                self.place(target, indices, call),
                self.load(self.place(source, indices, call)),
                call,
            ),
            call,
        )

    def _fill(self, call: ast.Call) -> None:
        where, what = self.arguments(call, 2)
        target, item = self._memory(where), self.settled(self.number_of(what))
        self._everywhere(
            target, lambda indices: self.store(self.place(target, indices, call), item, call), call
        )

    def _everywhere(
        self, target: Memory, write: Callable[[list[Index]], None], call: ast.Call
    ) -> None:
        """Writes every element of a memory, in parallel along the last dimension."""
        if self.in_lanes:
            raise self.error("copies must be outside lanes()", call, "assign single elements")
        indices: list[Index] = []

        def along(dims: tuple[int, ...]) -> None:
            if not dims:
                write(indices)
                return
            axis = self.fresh("i")
            indices.append(variable(ir.LoopIndex(axis), 0, dims[0] - 1))
            with self.body() as statements:
                along(dims[1:])
            indices.pop()
            self.emit(ir.For(axis, dims[0], "serial", tuple(statements), (), len(dims) == 1))

        if 0 not in target.shape:
            along(target.shape)

    def _atomic(self, call: ast.Call, reducer: str) -> None:
        where, position, what = self.arguments(call, 3)
        target = self._memory(where)
        item = self.visit(position)
        indices = [self.index(one, position) for one in (item if type(item) is tuple else [item])]
        if len(indices) != len(target.shape):
            raise self.error(
                f"{len(indices)} indices for {len(target.shape)} dimensions", call, "index all"
            )
        place = self.place(target, indices, call)
        self.update(place, reducer, self.number_of(what), call)
