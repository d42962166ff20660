"""The host as the schedules see it: its register tile and its threads."""

from __future__ import annotations

from metaop.codegen.llvm.runtime import runtime
from metaop.codegen.llvm.target import host_target
from metaop.codegen.lowering import Machine
from metaop.codegen.lowering.contract import Tile
from metaop.settings import get

# Accumulators of a tile fill about half of the vector registers (32 with AVX-512, else 16).
_TILES = {
    64: Tile(rows=8, columns=32),
    32: Tile(rows=6, columns=16),
    16: Tile(rows=4, columns=8),
}


def host_machine() -> Machine:
    """The machine that this process runs on."""
    tile, threads = _TILES[host_target().vector_bytes], runtime().get_num_threads()
    return Machine(tile, threads, filters=get("METAOP_WINOGRAD"))
