"""The call of the function that multiplies packed panels into a register tile."""

from __future__ import annotations

from metaop.codegen.llvm.emission.code import Code
from metaop.codegen.llvm.emission.index import IndexWriter
from metaop.codegen.llvm.emission.memory import MemoryWriter
from metaop.codegen.llvm.emission.scalars import Coefficient
from metaop.codegen.llvm.micro_kernel import form_of
from metaop.codegen.nest.ir import Ahead, MicroKernel, Sum


def write_micro_kernel(
    statement: MicroKernel, code: Code, index: IndexWriter, memory: MemoryWriter
) -> None:
    """Writes the call: addresses, strides, the depth, and what is to be prefetched meanwhile."""

    def start(buffer: int, offset: Sum) -> str:
        return memory.address(buffer, index.resolve(offset))

    def ahead(one: Ahead) -> list[tuple[str, Coefficient]]:
        """A prefetch; it repeats one address if its conditions do not hold."""
        size = memory.buffers[one.buffer][1].itemsize
        along, across = (
            index.binary("mul", index.integer(x), size) for x in (one.along, one.across)
        )
        sideways = index.binary("sub", across, along) if one.lanes > 1 else 0
        asked = [("ptr", start(one.buffer, one.offset)), ("i64", along), ("i64", sideways)]
        condition, _ = memory.masks(one.conditions, 0)
        if condition is None:
            return asked
        return [
            (
                kind,
                code.pure(f"select i1 {condition}, {kind} {x}, {kind} {y}", condition, str(x)),
            )
            for (kind, x), y in zip(asked, (memory.nowhere, 0, 0))
        ]

    arguments: list[tuple[str, Coefficient]] = [
        ("ptr", start(statement.left, statement.left_offset)),
        ("i64", index.integer(statement.left_stride or 0)),
        ("ptr", start(statement.right, statement.right_offset)),
        ("i64", index.total(index.resolve(statement.depth))),
        ("ptr", start(statement.target, statement.target_offset)),
        ("i64", index.integer(statement.target_stride)),
        ("i64", index.total(index.resolve(statement.accumulate))),
    ]
    for one in statement.ahead:
        arguments += ahead(one)
    symbol = form_of(statement).symbol
    code.declare(f"declare void @{symbol}({', '.join(kind for kind, _ in arguments)})")
    code.line(f"call void @{symbol}({', '.join(f'{kind} {x}' for kind, x in arguments)})")
    memory.stale(statement.target)
