"""The tiles of contractions on a GPU: whole for its threads, and chosen by predicted time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from metaop.codegen.cuda.schedules import CUDA
from metaop.codegen.lowering.contractions import shared_gemm, tensor_core_gemm
from metaop.codegen.lowering.contractions.shared_tiles import (
    TILES,
    Choice,
    Product,
    SharedTile,
    best_pieces,
    best_tile,
    clocks,
)
from metaop.codegen.lowering.contractions.warp_tiles import WARP_TILES, WarpTile
from metaop.compiler import schedule
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType
from tests.cuda import emulator
from tests.cuda.cases import inputs_of, matmul, random_values

_PROCESSORS = 132


def product(rows: int, depth: int, columns: int, dtype: DType = dtypes.float32) -> Product:
    return Product(1, rows, columns, depth, dtype)


@pytest.mark.parametrize("tile", TILES)
def test_threads_share_a_tile_evenly(tile: SharedTile) -> None:
    assert tile.threads % 32 == 0
    own = tile.threads // tile.slices
    assert own % 32 == 0 and own * tile.down * tile.across == tile.rows * tile.columns
    assert tile.depth % tile.slices == 0 and tile.rows * tile.columns % tile.threads == 0
    for side in (tile.rows, tile.columns):
        assert tile.depth * side % tile.threads == 0
    # Threads that run along the depth have one step each.
    assert tile.threads % tile.depth == 0


@pytest.mark.parametrize("tile", WARP_TILES)
def test_threads_share_the_tile_of_tensor_cores_evenly(tile: WarpTile) -> None:
    for one in (tile, tile.for_elements):
        assert one.threads <= 256
        assert one.sums * one.threads == one.rows * one.columns
        assert one.depth % 16 == one.warp_rows % 16 == one.warp_columns % 16 == 0
        for side in (one.rows, one.columns):
            assert one.depth * side % one.threads == 0


@pytest.mark.parametrize("rows, columns", [(3, 5000), (5000, 3), (12, 200), (200, 16), (1, 65)])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
def test_tiles_of_thin_results_are_thin(rows: int, columns: int, dtype: DType) -> None:
    tile = best_tile(Product(1000, rows, columns, 100, dtype), _PROCESSORS).tile
    assert min(tile.rows, tile.columns) <= 32


def test_sums_of_doubles_fit_registers() -> None:
    tile = best_tile(product(4096, 4096, 4096, dtypes.float64), _PROCESSORS).tile
    assert tile.down * tile.across <= 32


@pytest.mark.parametrize("size", [4096, 8192])
def test_a_large_product_has_large_tiles_and_one_piece(size: int) -> None:
    chosen = best_pieces(product(size, size, size), _PROCESSORS, 64)
    assert chosen.pieces == 1
    assert chosen.tile.rows * chosen.tile.columns == max(x.rows * x.columns for x in TILES)


def test_a_deep_product_of_few_tiles_is_cut_until_it_fills_the_processors() -> None:
    chosen = best_pieces(product(256, 4096, 256), _PROCESSORS, 64)
    assert chosen.tile.blocks(256, 256) * chosen.pieces > _PROCESSORS / 2


def test_a_shallow_product_is_not_cut() -> None:
    assert best_pieces(product(64, 64, 64), _PROCESSORS, 64).pieces == 1


def test_no_more_pieces_than_allowed() -> None:
    assert best_pieces(product(32, 100_000, 32), _PROCESSORS, 3).pieces == 3


def test_one_more_block_than_processors_takes_another_turn() -> None:
    tile = TILES[0]
    full, more = (product(rows * 128, 512, 128) for rows in (_PROCESSORS, _PROCESSORS + 1))
    assert clocks(more, tile, _PROCESSORS) > 1.5 * clocks(full, tile, _PROCESSORS)


@pytest.mark.skipif(not emulator.is_available(), reason="the emulator needs g++")
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.bfloat16])
@pytest.mark.parametrize("rows, depth, columns", [(132, 37, 140), (136, 88, 264)])
def test_every_tile_computes_the_product(
    rows: int,
    depth: int,
    columns: int,
    dtype: DType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Blocks at all edges, a first step that is not whole, and several whole ones.

    The first sizes are odd, the other ones are read in whole parts.
    """
    is_narrow = dtype is dtypes.bfloat16
    module, plans = tensor_core_gemm if is_narrow else shared_gemm, []
    for tile in WARP_TILES if is_narrow else TILES:
        monkeypatch.setattr(module, "best_tile", lambda *_, tile=tile: Choice(0, tile))
        outputs = matmul(rows, depth, columns, dtype)
        plans.append(schedule(inputs_of(outputs), outputs, replace(CUDA, threads=1)))
    device = emulator.Emulator([plan.launches[0].nest for plan in plans], tmp_path)
    arrays = random_values(plans[0].inputs, "product")
    left, right, bias = (array.astype(np.float64) for array in arrays)
    expected = np.maximum(left @ right + bias, 0)
    tolerance = 2e-2 if is_narrow else 1e-4
    for plan in plans:
        (found,) = emulator.evaluate(device, plan, arrays)
        np.testing.assert_allclose(
            found.astype(np.float64), expected, rtol=tolerance, atol=tolerance
        )
