"""A limit on the memory that programs use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from metaop.codegen.budget import budgeted
from metaop.errors import ArgumentError, CaptureError
from metaop.execution import executor
from metaop.unified_graph.tracing import state

__all__ = ["memory_budget"]


@contextmanager
def memory_budget(
    size: int | str | None, spill: str | os.PathLike[str] | None = None
) -> Iterator[None]:
    """Limits the memory of every program that runs inside the block to `size`.

    `size` is a number of bytes or a text like `"500MB"` or `"2 GiB"`; None lifts the budget of an
    enclosing block. The budget covers what a program holds in addition to its inputs: values
    between its kernels, and results that are not written over an argument. Where these would
    exceed it, values are recomputed instead of kept, or spilled to a file in the folder `spill`
    where that takes less time. Programs are compiled for exact sizes, on the CPU only; results are
    bit for bit those of the same programs without a budget.

    Raises `MemoryBudgetError` if a program cannot run within the budget, which says how much it
    needs, or if the folder has no room; `ArgumentError` if `spill` is no folder; `CaptureError`
    inside a captured function.

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
    folder = None if spill is None else os.path.abspath(spill)
    if folder is not None and not os.path.isdir(folder):
        raise ArgumentError(f"memory_budget: {folder} is no folder", fix="create it")
    executor.realize()
    with budgeted(size, folder):
        yield
        executor.realize()
