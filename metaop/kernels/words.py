"""Calls in a kernel: the words of the language that return a value, and the table functions."""

from __future__ import annotations

import ast
from typing import Any

from metaop.elementwise.functions import FUNCTIONS
from metaop.kernels.expressions import Expressions, literal, phrase
from metaop.kernels.language import word_for
from metaop.kernels.memory import Buffer, Memory, whole
from metaop.kernels.values import Index, Value, as_value, constant, converted
from metaop.unified_graph.dtype import DType


class Words(Expressions):
    """Translates calls in expressions: words by the methods `word_…`, others by the tables."""

    task: Index
    task_count: int
    # The words of the kernel's calls, by line and column.
    calls: dict[tuple[int, int], str]

    def word(self, node: ast.Call) -> str:
        """The word of the language that a call uses."""
        function = self.visit(node.func)
        word = word_for(function)
        if word is None:
            raise self.error(
                f"{ast.unparse(node.func)} cannot be called in a kernel",
                node,
                "use the words of metaop.kernels and the functions of the elementwise tables "
                "(metaop.exp, math.sqrt, max, …)",
            )
        if node.keywords:
            raise self.error("calls in kernels have no keywords", node, "pass by position")
        self.calls[node.lineno, node.col_offset] = word
        return word

    def _call(self, node: ast.Call) -> Any:
        word = self.word(node)
        method = getattr(self, f"word_{word}", None)
        if method is not None:
            return method(node, *node.args)
        if word not in FUNCTIONS:
            raise self.error(f"{word}() gives no value", node, "let it stand on a line of its own")
        items = [self.number_of(argument) for argument in node.args]
        if word in ("maximum", "minimum") and items:
            return self._extreme(word, items, node)
        return self.apply(node, word, *items)

    def _extreme(self, word: str, items: list[Any], node: ast.AST) -> Any:
        choose = max if word == "maximum" else min
        result = items[0]
        for item in items[1:]:
            first, second = literal(result), literal(item)
            if first is not None and second is not None:
                result = self.known(choose(first, second))
            elif isinstance(result, Index) and isinstance(item, Index):
                ends = choose(result.low, item.low), choose(result.high, item.high)
                result = self.named(word, result, item, *ends, node)
            else:
                result = self.apply(node, word, result, item)
        return result

    def arguments(self, node: ast.Call, count: int) -> list[ast.expr]:
        """The arguments of a word, which takes `count` of them."""
        if len(node.args) != count:
            raise self.error(
                f"{self.word(node)}() takes {count} arguments, got {len(node.args)}",
                node,
                "see metaop.kernels",
            )
        return node.args

    def word_task(self, node: ast.Call, *_: ast.expr) -> Index:
        self.arguments(node, 0)
        return self.task

    def word_tasks(self, node: ast.Call, *_: ast.expr) -> Index:
        self.arguments(node, 0)
        return constant(self.task_count)

    def word_cast(self, node: ast.Call, *_: ast.expr) -> Value:
        source, target = self.arguments(node, 2)
        value, dtype = as_value(self.number_of(source)), self._dtype(target)
        return Value(converted(value, dtype), dtype)

    def word_scratch(self, node: ast.Call, *_: ast.expr) -> Memory:
        if self.in_lanes:
            raise self.error("scratch() is inside lanes()", node, "call it before the loop")
        shape, dtype = self._memory_arguments(node)
        return self.allocate("scratch memory", dtype, shape)

    def word_shared(self, node: ast.Call, *_: ast.expr) -> Memory:
        shape, dtype = self._memory_arguments(node)
        if len(self.frames) > 1 or self.active:
            raise self.error(
                "shared() is inside a loop or a condition",
                node,
                "take it at the beginning of the kernel",
            )
        return whole(self.shared_buffer(dtype, shape))

    def shared_buffer(self, dtype: DType, shape: tuple[int, ...]) -> Buffer:
        """A new memory that all tasks share."""
        raise NotImplementedError

    def _memory_arguments(self, node: ast.Call) -> tuple[tuple[int, ...], DType]:
        size, dtype = self.arguments(node, 2)
        item = self.visit(size)
        extents = item if type(item) is tuple else (item,)
        numbers = [one.constant if isinstance(one, Index) else None for one in extents]
        known = tuple(number for number in numbers if number is not None and number >= 0)
        if len(known) < len(extents):
            raise self.error(
                "the size of a memory must be known before the kernel runs",
                size,
                "use sizes of the parameters and Python integers",
            )
        return known, self._dtype(dtype)

    def _dtype(self, node: ast.expr) -> DType:
        item = self.visit(node)
        if not isinstance(item, DType):
            raise self.error(f"{phrase(node)} is not a type", node, "use metaop.float32 or x.dtype")
        return item
