"""Rows of the function table wrapped into loops over arrays, compiled and called."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence

import numpy as np

from metaop.codegen.llvm.builder import Builder
from metaop.codegen.llvm.instructions.conversion import compute_type
from metaop.codegen.llvm.instructions.value import Value
from metaop.codegen.llvm.objects.engine import compile_symbols
from metaop.codegen.llvm.target import host_target
from metaop.elementwise.functions import FUNCTIONS
from metaop.unified_graph.dtype import DType, bool_

_STORAGE = {"bool": "i8", "float16": "i16", "bfloat16": "i16"}


def load(b: Builder, address: Value, dtype: DType, lanes: int) -> Value:
    """Elements in the compute type, from their storage."""
    storage = _STORAGE.get(dtype.name, compute_type(dtype))
    stored = b.load(address, storage, lanes, signed=dtype.is_signed)
    if dtype.name == "bool":
        return b.truth(stored)
    if dtype.name in _STORAGE:
        return getattr(b, f"widen_{dtype.name}")(stored)
    return stored


def store(b: Builder, x: Value, address: Value, dtype: DType) -> None:
    """Elements from their compute type to their storage."""
    if dtype.name == "bool":
        x = b.to_type(x, "i8")
    elif dtype.name in _STORAGE:
        x = getattr(b, f"narrow_{dtype.name}")(x)
    b.store(x, address)


def operand_types(name: str, dtype: DType) -> list[DType]:
    """The types of the operands when the function is called on `dtype`."""
    row = FUNCTIONS[name]
    operand = row.operand(dtype)
    return [bool_, operand, operand] if name == "where" else [operand] * row.arity


def result_type(name: str, dtype: DType) -> DType:
    row = FUNCTIONS[name]
    return row.result(row.operand(dtype))


def emit_row(b: Builder, symbol: str, name: str, dtype: DType, lanes: int) -> None:
    """A function (result, operands…, count) that applies the row to arrays."""
    types = operand_types(name, dtype)
    result = result_type(name, dtype)
    arrays = [b.argument("ptr", f"x{position}") for position in range(len(types))]
    target, count = b.argument("ptr", "y"), b.argument("i64", "count")

    def once(i: Value) -> None:
        values = []
        for array, kind in zip(arrays, types):
            storage = _STORAGE.get(kind.name, compute_type(kind))
            values.append(load(b, b.offset(array, i, storage), kind, lanes))
        y = FUNCTIONS[name].llvm(b, *values)
        assert (y.type, y.lanes) == (compute_type(result), lanes)
        store(b, y, b.offset(target, i, _STORAGE.get(result.name, y.type)), result)

    b.loop(0, count, lanes, once)
    b.finish_function(symbol, [target, *arrays, count])


@functools.cache
def compiled(target: str, name: str, variants: tuple[tuple[DType, int], ...]) -> dict:
    """Addresses by (dtype, lanes); METAOP_TARGET must be `target` when this is called."""
    b = Builder(host_target())
    symbols = {variant: f"{name}_{variant[0].name}_{variant[1]}" for variant in variants}
    for (dtype, lanes), symbol in symbols.items():
        emit_row(b, symbol, name, dtype, lanes)
    text = b.module_text()
    addresses = compile_symbols(text, tuple(symbols.values()))
    return {variant: addresses[symbol] for variant, symbol in symbols.items()}


def run(
    address: int, name: str, dtype: DType, operands: Sequence[np.ndarray], shape: tuple[int, ...]
) -> np.ndarray:
    """The result of a compiled row; the number of elements must be a multiple of its lanes."""
    result = np.empty(shape, result_type(name, dtype).numpy)
    pointers = [ctypes.c_void_p] * (1 + len(operands))
    function = ctypes.CFUNCTYPE(None, *pointers, ctypes.c_int64)(address)
    arrays = [np.ascontiguousarray(operand) for operand in operands]
    function(result.ctypes.data, *(array.ctypes.data for array in arrays), result.size)
    return result
