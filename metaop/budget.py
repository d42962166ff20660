"""A bound on the memory that programs take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from metaop import executor
from metaop.codegen.budget import budgeted
from metaop.errors import CaptureError
from metaop.unified_graph.tracing import state

__all__ = ["memory_budget"]


@contextmanager
def memory_budget(size: int | str | None) -> Iterator[None]:
    """Has every program that runs inside of the block take at most `size` of memory.

    `size` is a number of bytes or a text like `"500MB"` or `"2 GiB"`; None lifts a budget that was
    set around the block. It bounds what a program holds while it runs besides what it is given:
    values between its kernels, and results that are not written over an argument. Where these would
    take more, values are computed again instead of kept. Programs are made for the sizes at hand
    only, on the CPU; results have the bits that such programs give without a budget.

    Raises `MemoryBudgetError` when a program is to run that cannot do with so little; the message
    says what would do. Raises `CaptureError` inside of a captured function.

    >>> x = metaop.ones(100, 100, requires_grad=True)
    >>> with metaop.memory_budget("1MB"):
    ...     x.sin().exp().sum().backward()
    >>> x.grad.shape
    metaop.Size([100, 100])
    """
    if state.trace is not None:
        raise CaptureError(
            "a memory budget is set inside of a captured function, whose program runs later",
            fix="give it to the function: metaop.jit(memory_budget=...)",
        )
    executor.realize()
    with budgeted(size):
        yield
        executor.realize()
