"""Maps whose lanes transpose through shared memory."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks.gpu.demand import declared, demand_of
from metaop.codegen.cuda.kernels import Launch
from metaop.codegen.cuda.layout import layout_of
from metaop.codegen.cuda.schedules import CUDA
from metaop.codegen.lowering.reductions import shared_tiles
from metaop.codegen.schedule import Schedule
from metaop.compiler import schedule
from metaop.reindex import views
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.node import Node
from tests.cuda import emulator
from tests.cuda.cases import inputs_of, random_values, tensor


def plan_of(outputs: list[Node]) -> Schedule:
    return schedule(inputs_of(outputs), outputs, CUDA)


def transposed(rows: int, columns: int, dtype: DType) -> list[Node]:
    return [views.transpose(tensor(0, rows, columns, dtype=dtype), 0, 1)]


@pytest.mark.skipif(not emulator.is_available(), reason="the emulator needs g++")
@pytest.mark.parametrize("rows, columns", [(130, 70), (9, 300), (300, 9), (64, 128), (31, 63)])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16, dtypes.bool_], ids=str)
def test_large_tiles(
    rows: int, columns: int, dtype: DType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_tiles, "_FEWEST_BLOCKS", 1)
    outputs = transposed(rows, columns, dtype)
    plan = plan_of(outputs)
    (launch,) = plan.launches
    assert launch.nest.name.startswith("transpose")
    device = emulator.Emulator([launch.nest], tmp_path)
    (value,) = random_values(inputs_of(outputs), "")
    for order in emulator.ORDERS:
        (result,) = emulator.evaluate(device, plan, [value], order)
        np.testing.assert_array_equal(result, value.T)


COALESCED: dict[str, Callable[[], list[Node]]] = {
    "floats": lambda: transposed(1024, 2048, dtypes.float32),
    "wide": lambda: transposed(2048, 1024, dtypes.int64),
    "narrow": lambda: transposed(2048, 1024, dtypes.bfloat16),
    "bytes": lambda: transposed(1024, 4096, dtypes.uint8),
    "channels last": lambda: [views.permute(tensor(0, 8, 64, 16, 16), (0, 2, 3, 1))],
    "few channels": lambda: [views.permute(tensor(0, 8, 8, 64, 64), (0, 2, 3, 1))],
    "both": lambda: [
        views.permute(tensor(0, 8, 16, 16, 64), (0, 3, 1, 2)) * tensor(1, 8, 64, 16, 16)
    ],
}


@pytest.mark.parametrize("name", COALESCED)
def test_every_sector_is_asked_for_once(name: str) -> None:
    """Each element goes once through shared memory, where no two lanes want the same bank."""
    (launch,) = plan_of(COALESCED[name]()).launches
    layout = layout_of(launch.nest)
    sizes = [node.nbytes for node in launch.buffers]
    found = demand_of(launch.nest, sizes, 0, Launch(None, layout, ()), 1 << 20, None)
    result = launch.buffers[-1]
    shared = 2 * result.size * max(result.dtype.itemsize, 4)
    assert sum(sizes) <= found.sectors * 32 <= sum(sizes) + shared


def test_tiles_of_many_operands_fit_shared_memory() -> None:
    operands = [views.transpose(tensor(k, 64, 64, dtype=dtypes.float64), 0, 1) for k in range(9)]
    (launch,) = plan_of([functools.reduce(operator.add, operands)]).launches
    assert 32 << 10 < declared(launch.nest).shared <= 48 << 10


def test_indices_from_data_need_no_tile() -> None:
    index = tensor(1, 400, dtype=dtypes.int64)
    (launch,) = plan_of([views.transpose(views.take(tensor(0, 60, 300), 0, index), 0, 1)]).launches
    assert not declared(launch.nest).shared
