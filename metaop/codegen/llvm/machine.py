"""The host as a `Machine`: its register tile, its threads and its thresholds."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from metaop.codegen.llvm import matrix_registers
from metaop.codegen.llvm.emission.matrix_kernel import SIDE
from metaop.codegen.llvm.processor import host_processor, typical
from metaop.codegen.llvm.runtime import runtime
from metaop.codegen.llvm.target import Target, host_target
from metaop.codegen.lowering import Machine
from metaop.codegen.lowering.base.blocks import Tile
from metaop.codegen.lowering.machine import WITH_FEWER_PRODUCTS
from metaop.codegen.machine import Processor, Thresholds
from metaop.codegen.nest.ir import MATRIX, PAIR, QUAD
from metaop.settings import get

# Accumulators of a tile fill half of 32 vector registers (AVX-512), 12 of 16 with AVX2.
_TILES = {
    64: Tile(rows=8, columns=32),
    32: Tile(rows=6, columns=16),
    16: Tile(rows=4, columns=8),
}
# Tiles for bfloat16 in vectors, and in matrix registers: four of these hold a tile, and they need
# long panels to stay busy.
PAIRS = Tile(rows=8, columns=32, block_columns=512, step=PAIR, rate=2)
MATRICES = Tile(2 * SIDE, 2 * SIDE, depth=2048, block_columns=256, step=MATRIX, rate=16)
# 16-bit integers are multiplied in pairs on every processor, 8-bit ones in fours if it has the
# instructions. A panel then holds four times as many, and about three times as many are multiplied
# in the same time.
BYTES_DEPTH, BYTES_RATE = 1536, 3
# AArch64 has 32 registers of 16 bytes.
_ARM_TILE = Tile(rows=8, columns=8)
# Other tiles that fit the registers, for results that fill them better and for the tuner to try.
_OTHER_TILES = {
    64: ((14, 32), (12, 32), (6, 64), (4, 64)),
    32: ((4, 24), (4, 16)),
    16: ((6, 8), (3, 16)),
}


def host_machine() -> Machine:
    """The machine that this process runs on."""
    target, threads = host_target(), runtime().get_num_threads()
    return _machine_with(target, threads, host_processor(), _narrow_tile(target))


def machine_for(target: Target) -> Machine:
    """One core of any machine with a given processor, with the smallest usual caches."""
    narrow = PAIRS if target.has_bfloat16_pairs else None
    return _machine_with(target, 1, typical(target), narrow)


def _machine_with(
    target: Target, threads: int, processor: Processor, narrow: Tile | None
) -> Machine:
    without = () if get("METAOP_WINOGRAD") else WITH_FEWER_PRODUCTS
    thresholds = processor.thresholds()
    return _machine(target, threads, processor.near_bytes, thresholds, narrow, without)


@lru_cache(maxsize=64)
def _machine(
    target: Target,
    threads: int,
    near_bytes: int,
    thresholds: Thresholds,
    narrow: Tile | None,
    without: tuple[str, ...],
) -> Machine:
    """One object for equal machines: every program asks for it."""
    tile = _ARM_TILE if target.is_arm else _TILES[target.vector_bytes]
    tile = replace(tile, near_bytes=near_bytes)
    fours = replace(tile, step=QUAD, rate=BYTES_RATE, depth=BYTES_DEPTH)
    return Machine(
        replace(
            tile,
            narrow=narrow and replace(narrow, near_bytes=near_bytes),
            int16=replace(tile, step=PAIR),
            int8=fours if target.has_byte_products else None,
        ),
        _OTHER_TILES[target.vector_bytes],
        threads,
        without=without,
        lanes=target.vector_bytes // 4 if target.has_avx512 else 0,
        thresholds=thresholds,
    )


def _narrow_tile(target: Target) -> Tile | None:
    """The tile for factors in bfloat16, if there are instructions for them."""
    if not target.has_bfloat16_pairs:
        return None
    if not matrix_registers.are_given():
        return PAIRS
    return replace(MATRICES, instead=PAIRS, works=matrix_registers.agree_with_pairs)
