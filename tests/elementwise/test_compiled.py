"""Every row of the table, compiled, against its NumPy reference: all types, lanes, targets."""

from __future__ import annotations

import re
import zlib

import numpy as np
import pytest

from metaop.codegen.llvm.builder import Builder
from metaop.codegen.llvm.objects.object_code import assembly
from metaop.codegen.llvm.target import host_target
from metaop.elementwise.functions import FUNCTIONS
from metaop.unified_graph import dtype as dtypes
from tests.elementwise import kernels

COUNT = 2048
ROWS = [name for name in FUNCTIONS if name != "cast"]
_SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, np.nan, np.inf, -np.inf, 1e-30, -1e-30]
# What floats may lose against the reference in float64, in units of the type's own precision.
_UNITS = {"float16": 1, "bfloat16": 1, "float32": 5, "float64": 450}
# Where a result is a small difference of large parts, an absolute error remains.
_ABSOLUTE = {
    "float16": {"lgamma": 1e-12},
    "bfloat16": {"lgamma": 1e-12, "sigmoid": 1e-37},
    "float32": {"logaddexp": 1e-7, "sigmoid": 1e-37, "lgamma": 1e-12},
    "float64": {"logaddexp": 2e-16, "sigmoid": 1e-307, "lgamma": 1e-13, "digamma": 1e-12},
}
# Angles above this lose digits in the reduction.
_LARGEST = {"sin": 1e9, "cos": 1e9, "tan": 1e9}
# Of 0.0 and -0.0, which are equal, any may be the larger one; 0 - exp(-x) is 0.0 where the wider
# reference still has a number below 0.
_EITHER_ZERO = ("maximum", "minimum", "fmax", "fmin", "logsigmoid")


def accepted(name):
    row = FUNCTIONS[name]
    return [
        dtype
        for dtype in dtypes.ALL
        if row.operand(dtype) is dtype
        and dtype.kind in row.accepts
        # The next number in a 16-bit float's compute type is no 16-bit float.
        and (name != "nextafter" or dtype.compute is dtype)
    ]


def _draw(dtype, domain, generator, name):
    if dtype.kind == "bool":
        return generator.integers(0, 2, COUNT).astype(bool)
    if dtype.kind == "int":
        info = np.iinfo(dtype.numpy)
        wide = generator.integers(info.min, info.max, COUNT, dtype.numpy, endpoint=True)
        small = generator.integers(0 if info.min == 0 else -9, 10, COUNT).astype(dtype.numpy)
        values = np.where(generator.random(COUNT) < 0.5, wide, small)
        values[:: COUNT // 8] = [info.min, info.max, 0, 1, 2, 3, info.min, info.max]
        return values.astype(dtype.numpy)
    return _draw_floats(dtype, domain, generator, name)


def _draw_floats(dtype, domain, generator, name):
    """A quarter in the domain, half over all magnitudes, the rest special and small integers."""
    low, high = domain
    with np.errstate(over="ignore"):
        values = generator.uniform(low, high, COUNT).astype(np.float64)
        exponents = {"float64": 300, "float16": 4}.get(dtype.name, 37)
        spread = 10.0 ** generator.uniform(-exponents, exponents, COUNT)
        moderate = 10.0 ** generator.uniform(-3, 3, COUNT)
        sign = generator.choice([-1.0, 1.0], COUNT)
        kind = generator.integers(0, 8, COUNT)
        values = np.where(kind < 3, values, np.where(kind < 5, sign * moderate, sign * spread))
        values = np.where(kind == 6, generator.choice(_special(dtype), COUNT), values)
        values = np.where(kind == 7, generator.integers(-9, 10, COUNT), values)
        if name in ("lgamma", "digamma", "trigamma"):
            # Subnormal numbers lose digits before their logarithm is taken.
            values = np.where(np.abs(values) < 1e-300, 1.0, values)
        if name in _LARGEST:
            values = np.where(np.abs(values) > _LARGEST[name], 1.0, values)
        return values.astype(dtype.numpy)


def _special(dtype):
    tiny = {"float64": 5e-324, "float16": 6e-8, "bfloat16": 1e-39}.get(dtype.name, 1e-45)
    large = {"float64": 1.7e308, "float16": 65504.0}.get(dtype.name, 3.38e38)
    return [*_SPECIAL, tiny, -tiny, large, -large]


def operands_of(name, dtype):
    generator = np.random.default_rng(zlib.crc32(f"{name} {dtype.name}".encode()))
    types = kernels.operand_types(name, dtype)
    return [
        _draw(kind, domain, generator, name) for kind, domain in zip(types, FUNCTIONS[name].domain)
    ]


def _expected(name, operands):
    """The reference in the next wider type where the operands are floats."""
    row = FUNCTIONS[name]
    kind = operands[-1].dtype
    wide = operands
    if kind == np.float32 or (kind.itemsize == 2 and kind.kind in "fV"):
        if name not in ("nextafter", "sort_key"):
            wide = [x if x.dtype == bool else x.astype(np.float64) for x in operands]
    with np.errstate(all="ignore"):
        return np.asarray(row.numpy(*wide))


def check(name, dtype, operands, actual):
    expected = _expected(name, operands)
    if actual.dtype.kind not in "fV":
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(actual, expected.astype(actual.dtype))
        return
    with np.errstate(all="ignore"):
        rounded = expected.astype(actual.dtype).astype(np.float64)
    got = actual.astype(np.float64)
    epsilon = {"bfloat16": 2.0**-8}.get(dtype.name) or np.finfo(actual.dtype).eps
    smallest = {"bfloat16": 2.0**-126}.get(dtype.name) or np.finfo(actual.dtype).tiny
    allowed = _UNITS[dtype.name] * epsilon * np.abs(rounded) + 4 * epsilon * smallest
    allowed += _ABSOLUTE.get(dtype.name, {}).get(name, 0)
    largest = float(np.finfo(np.float32).max) if dtype.name != "float64" else np.inf
    with np.errstate(all="ignore"):
        good = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
        good |= np.abs(got - rounded) <= allowed
        # At the very edge of overflow either side may have rounded to infinity.
        good |= np.isinf(got) & (np.abs(rounded) > largest * (1 - 1e-5))
    if name not in _EITHER_ZERO:
        zeros = (got == 0) & (rounded == 0)
        good &= ~zeros | (np.signbit(got) == np.signbit(rounded))
    wrong = np.flatnonzero(~good)
    shown = [(*(x[k] for x in operands), "->", actual[k], "not", rounded[k]) for k in wrong[:6]]
    assert not len(wrong), f"{len(wrong)} wrong: {shown}"


@pytest.mark.parametrize("name", ROWS)
def test_matches_reference(name, target):
    variants = tuple(
        (dtype, lanes) for dtype in accepted(name) for lanes in (1, max(2, 32 // dtype.itemsize))
    )
    addresses = kernels.compiled(target, name, variants)
    for (dtype, _), address in addresses.items():
        operands = operands_of(name, dtype)
        actual = kernels.run(address, name, dtype, operands, (COUNT,))
        check(name, dtype, operands, actual)


@pytest.mark.parametrize("name", ROWS)
def test_nothing_is_left_to_the_c_library(name, target):
    processor = host_target()
    b = Builder(processor)
    for dtype in accepted(name):
        if dtype.kind == "float":
            kernels.emit_row(b, f"{name}_{dtype.name}", name, dtype, processor.vector_bytes // 4)
    assert not re.findall(r"\bcall\S*\s+\S+", assembly(b.module_text(), processor))
