"""Whether this process can use the matrix registers of AMX.

On Linux a process must request them before the first use, because they add 8 KiB to the saved state
of a thread; a refusal does no harm. Before the first product that would use them, a small one is
computed with them and with the vector instructions for pairs. If the results differ, pairs stay.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import sys
from typing import NamedTuple

import numpy as np

from metaop import settings
from metaop.codegen.llvm.kernels import compile_nest
from metaop.codegen.llvm.target import host_target
from metaop.codegen.nest import ir
from metaop.unified_graph import dtype as dtypes

# From Linux' asm/prctl.h and asm/fpu/types.h.
_SYS_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILE_DATA = 158, 0x1023, 18
_ROWS, _COLUMNS, _STEPS = 27, 32, 3


class Verdict(NamedTuple):
    """Whether matrix registers are used, and why (not)."""

    usable: bool
    reason: str


def verdict() -> Verdict:
    """Whether products of bfloat16 use the matrix registers of this machine."""
    refusal = _refusal()
    if refusal is not None:
        return Verdict(False, refusal)
    if not agree_with_pairs():
        return Verdict(False, "they compute something else than pairs do")
    return Verdict(True, "checked against pairs")


def are_given() -> bool:
    """Whether this process may use matrix registers, whatever they compute."""
    return _refusal() is None


def _refusal() -> str | None:
    """Why this process has no matrix registers."""
    if not host_target().has_bfloat16_matrices:
        return "the processor has none"
    if not settings.get("METAOP_AMX"):
        return "switched off by METAOP_AMX"
    return None if _permitted() else "Linux does not permit their use"


@functools.cache
def _permitted() -> bool:
    """Requests the matrix registers from Linux, for all threads of this process."""
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        return False
    request = ctypes.CDLL(None).syscall
    return request(_SYS_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILE_DATA) == 0


@functools.cache
def agree_with_pairs() -> bool:
    """Compares a product of small integers, which both compute exactly; takes about 0.1 s."""
    return np.array_equal(probe(ir.MATRIX, _STEPS), probe(ir.PAIR, _STEPS * ir.MATRIX // ir.PAIR))


def probe(step: int, steps: int) -> np.ndarray:
    """A tile of sums after two inner products of the same panels, the second accumulated."""
    depth = step * steps
    generator = np.random.default_rng(0)
    left, right = (
        generator.integers(-8, 9, (size, depth)).astype(dtypes.bfloat16.numpy)
        for size in (_ROWS, _COLUMNS)
    )
    pairs = np.ascontiguousarray(right.view(np.int32).T)
    sums = np.full((_ROWS, _COLUMNS), np.nan, np.float32)
    kernel = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 2, ctypes.c_void_p)
    arrays = np.array([array.ctypes.data for array in (left, pairs, sums)])
    address = compile_nest(_probe_nest(step, steps))
    kernel(address)(arrays.ctypes.data, None, 0, 1, None)
    return sums


def _probe_nest(step: int, steps: int) -> ir.LoopNest:
    zero, position = ir.Sum((), 0), ir.Sum(((ir.LoopIndex("kb"), 1),), 0)
    product = ir.MicroKernel(
        0,
        zero,
        1,
        zero,
        2,
        zero,
        _COLUMNS,
        _ROWS,
        _COLUMNS,
        ir.Sum((), steps),
        position,
        dtypes.float32,
        steps * step,
        step,
    )
    roles = (
        ir.Parameter(dtypes.bfloat16, "read"),
        ir.Parameter(dtypes.int32, "read"),
        ir.Parameter(dtypes.float32, "update"),
    )
    return ir.LoopNest("probe", roles, (), (ir.For("kb", 2, "serial", (product,)),))
