"""Every row of the table of products, as machine code for every processor that this one can act."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from metaop.codegen.llvm.emission.emit import emit
from metaop.codegen.llvm.machine import machine_for
from metaop.codegen.llvm.micro_kernel import Form, text_of
from metaop.codegen.llvm.objects.loader import Address, load_object
from metaop.codegen.llvm.objects.object_code import assembly, compile_object
from metaop.codegen.llvm.target import Target, host_target, target_named
from metaop.codegen.nest import ir
from metaop.unified_graph import dtype as dtypes

ROWS, COLUMNS, STEPS = 5, 16, 3
_KERNEL = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 2, ctypes.c_void_p)
# A level of x86-64 and what some processors of that level have in addition.
PROCESSORS = {
    "baseline": ("x86-64", ""),
    "AVX2": ("x86-64-v3", ""),
    "AVX-VNNI": ("x86-64-v3", "avxvnni"),
    "AVX-512": ("x86-64-v4", ""),
    "AVX-512-VNNI": ("x86-64-v4", "avx512vnni"),
}


def processor(name: str) -> Target:
    """A target of the table; skips where this processor lacks its features."""
    level, further = PROCESSORS[name]
    target = target_named(level)
    features = f"{target.features},+{further}" if further else target.features
    own = target_named("native")
    missing = [one[1:] for one in features.split(",") if not own.has(one[1:])]
    if missing:
        pytest.skip(f"this processor lacks {', '.join(missing)}")
    return Target(name, target.cpu, features, target.vector_bytes)


def nest(step: int, signs: str, stride: int | None, types: tuple[dtypes.DType, ...]) -> ir.LoopNest:
    """A tile of sums after two inner products of the same panels, the second one added."""
    zero, position = ir.Sum((), 0), ir.Sum(((ir.LoopIndex("kb"), 1),), 0)
    product = ir.MicroKernel(
        0, zero, 1, zero, 2, zero, COLUMNS, ROWS, COLUMNS, ir.Sum((), STEPS), position,
        dtypes.int32, stride, step, (), signs,
    )  # fmt: skip
    left, right = types
    roles = ir.Parameter(left, "read"), ir.Parameter(right, "read")
    parameters = (*roles, ir.Parameter(dtypes.int32, "update"))
    return ir.LoopNest("probe", parameters, (), (ir.For("kb", 2, "serial", (product,)),))


def run(nest: ir.LoopNest, target: Target, arrays: list[np.ndarray]) -> None:
    """Runs a nest that is compiled for a processor."""
    functions: list[Address] = []  # what a kernel calls it does not hold

    def loaded(text: str | None, symbol: str) -> Address:
        assert text is not None
        return load_object(compile_object(text, target), [symbol], called)[symbol]

    def called(symbol: str) -> Address:
        functions.append(loaded(text_of(symbol, target), symbol))
        return functions[-1]

    kernel = loaded(emit(nest, target, "kernel"), "kernel")
    places = np.array([array.ctypes.data for array in arrays])
    _KERNEL(kernel)(places.ctypes.data, None, 0, 1, None)


@pytest.mark.parametrize("name", PROCESSORS)
@pytest.mark.parametrize("step, left, right, is_packed", [
    (ir.PAIR, "i2", "i2", True),
    (ir.PAIR, "i2", "i2", False),
    *((ir.QUAD, left, right, packed) for left in ("i1", "u1") for right in ("i1", "u1")
      for packed in (True, False)),
])  # fmt: skip
def test_products_of_neighbours(
    name: str, step: int, left: str, right: str, is_packed: bool
) -> None:
    target = processor(name)
    if step == ir.QUAD and not target.has_byte_products:
        assert machine_for(target).tile.int8 is None
        return
    random, depth = np.random.default_rng(0), step * STEPS
    limits = [np.iinfo(kind) for kind in (left, right)]
    factors = [
        random.choice([limit.min, limit.max, 3, 0], (size, depth)).astype(kind)
        for limit, size, kind in zip(limits, (ROWS, COLUMNS), (left, right))
    ]
    columns = np.ascontiguousarray(factors[1].view(np.int32).T)
    packed = np.zeros((depth // step, ir.pitch_of(ROWS)), np.int32)
    packed[:, :ROWS] = factors[0].view(np.int32).T
    rows = packed if is_packed else factors[0]
    sums = np.full((ROWS, COLUMNS), 99, np.int32)
    signs = "".join("su"[kind[0] == "u"] for kind in (left, right)) if step == ir.QUAD else ""
    in_rows = dtypes.from_numpy_dtype(rows.dtype)
    assert in_rows is not None
    stride = None if is_packed else depth
    found = nest(step, signs, stride, (in_rows, dtypes.int32))
    run(found, target, [rows, columns, sums])
    x, y = (factor.astype(np.int64) for factor in factors)
    np.testing.assert_array_equal(sums, (2 * x @ y.T).astype(np.int32))


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name, instruction", [
    ("baseline", "pmaddwd"), ("AVX2", "vpmaddwd"), ("AVX-VNNI", "vpdpbusd"),
    ("AVX-512", "vpmaddwd"), ("AVX-512-VNNI", "vpdpbusd"),
])  # fmt: skip
def test_instructions(name: str, instruction: str, quick: bool) -> None:
    """What is compiled has the instruction that a processor has for bytes."""
    target = processor(name)
    step = ir.QUAD if target.has_byte_products else ir.PAIR
    signs = "us" if step == ir.QUAD else ""
    form = Form(dtypes.int32, ROWS, COLUMNS, step, signs, False, ())
    text = text_of(form.symbol, target)
    assert text is not None and instruction in assembly(text, target, quick=quick)


def test_this_machine_multiplies_bytes_as_it_can() -> None:
    target = host_target()
    assert (machine_for(target).tile.int8 is not None) == target.has_byte_products
