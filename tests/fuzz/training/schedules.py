"""Schedules that no processor asks for: the compiler's thresholds, drawn anew for each program.

Random programs are small, because there are many of them. What the compiler does with large ones
it does with small ones too, once its thresholds are small. Settings that cut programs at other
places are drawn as well. All that changes here decides how a value is computed, never what it is.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import replace
from typing import Any

import numpy as np

# A changed threshold by its path, as in "fusion.recognise.LEAST_WORK"; see `draw`.
Changes = dict[str, Any]
# Settings of a process whose thresholds change: nothing is read that was made under other ones.
SETTINGS = {"METAOP_DISK_CACHE": "false", "METAOP_TUNE": "off", "METAOP_NUM_THREADS": "2"}
# The smallest and the largest share of thresholds that change in a program.
_SHARES = 0.1, 0.8

# Other values of the thresholds, by module and name.
THRESHOLDS: dict[str, dict[str, tuple[Any, ...]]] = {
    "fusion.recognise": {
        "LEAST_WORK": (1, 64),
        # Lanes beyond a single column read what it overwrites, and store nothing: the verifier
        # takes them for readers.
        "_LEAST_EXTENTS": ({"rows": 1, "columns": 2, "depth": 1},),
    },
    "fusion.recompute": {
        "_LEAST_PEAK": (0,),
        "_LEAST_BYTES": (0, 64),
        "_SHORT_WAIT": (0, 1),
        "_SUMMARY": (1,),
        "_MOST_WORK": (4, 1000),
        "_CHEAP_DEPTH": (0, 2),
    },
    "fusion.group": {"_LARGEST_KERNEL": (4, 20), "_ENOUGH_ROWS": (1, 100)},
    "fusion.buffered": {
        "_LONGEST_BODY": (4, 12),
        "_MANY_BUFFERS": (1,),
        "_MANY_PIECES": (2, 64),
        "_MOST_REPEATED": (1, 1000),
    },
    "fusion.two_stages": {"_FEW_ROWS": (1000,), "_PARTIAL": (2, 4, 8), "_BLOCK": (2, 7)},
    "fusion.cases": {"_FEWEST_COLUMNS": (1, 1000), "_MOST_WORK": (0.1, 10.0)},
    "fusion.index_splitting": {"SHORTEST_PIECE": (1,)},
    "codegen.transforms.tile_and_fuse": {
        "_MUCH": (0,),
        "_LARGEST_SLICE": (256,),
        "_ROOM": (1,),
        "_SLICES": ((64, 8), (8,)),
        "_LONGEST": (3, 64),
    },
    "codegen.cuda.filling": {
        "LEAST_WORK": (1,),
        "_BLOCKS": (1, 64),
        "_LEAST_WORK": (1,),
        "_OF_LANE": (1,),
        "_OF_THREAD": (2,),
        "_PASSES": (1,),
        "_FEW_RESULTS": (1, 1000),
    },
    "codegen.cuda.layout": {
        "_LARGEST_ROW": (32,),
        "_SHORT_ROW": (1, 64),
        "_LARGE_MAP": (1, 16),
        "_FEW_ELEMENTS": (1, 1 << 30),
        "_MANY_SCANS": (1, 1 << 30),
        "_TURNS": (1,),
    },
    "codegen.stages": {"_SOON": (0, 100)},
    "codegen.lowering.base.kernel": {"_WHOLE_VECTORS": (1,)},
    "codegen.lowering.base.blocks": {
        "PACKING": (0, 1000),
        "_STEP": (0, 1000),
        "_MASKED": (0, 1000),
        "_SHORTEST_BLOCK": (1,),
    },
    "codegen.lowering.base.loops": {
        "_LONGEST_REDUCTION": (1, 8),
        "_LARGEST_WINDOW": (1, 1000),
        "_FEWEST_LANES": (1, 1000),
        "_FEWEST_WRITTEN_OUT": (1, 1000),
        "_SHORT_ROW": (1, 100),
        "_FEWEST_TURNED": (1, 1000),
    },
    "codegen.lowering.reductions.outer": {
        "_SHORTEST": (1,),
        "_LONGEST_ROW": (64,),
        "_SHORTEST_ROW": (4,),
        "_ROWS_AT_ONCE": ((1,), (3, 1)),
    },
    "codegen.lowering.reductions.rows": {
        "SHORT_LANES": (1, 64),
        "_LONG_REDUCTION": (4,),
        "_BLOCK": (2,),
        "_CARRIED": (1 << 20,),
        "_LONGEST_BLOCK": (4,),
        "_FEWEST_TASKS": (1, 1000),
    },
    "codegen.lowering.stencils.geometry": {
        "_MOST_ELEMENTS": (0, 16),
        "_MOST_IN_BANDS": (0, 64),
        "_PACKING": (0, 1000),
    },
    "codegen.lowering.stencils.in_place": {"_ROWS": (1, 2), "_MOST_WEIGHTS": (1,)},
    "codegen.lowering.stencils.planes": {"_PLANES": (0.001,), "_CHANNELS": (0.001,)},
    "codegen.lowering.stencils.taps": {
        "FEWEST_TASKS": (1, 1000),
        "_MOST_PRODUCTS": (1,),
        "_BESIDE_SUMS": (7, 15),
    },
    "codegen.lowering.request": {"_CHEAPER": (0.0, 1.5)},
    "codegen.lowering.strategies": {
        "_MOST_TILES": (8,),
        "_MOST_ROWS": (8,),
        "_MOST_CHANNELS": (8,),
    },
    "codegen.lowering.contractions.shared_gemm": {"LAUNCH": (0,)},
    "codegen.lowering.contractions.shared_tiles": {"LAUNCH": (0,), "_WORTH": (0.1, 10.0)},
    "codegen.lowering.contractions.tensor_core_gemm": {"_WORTH_PREPARING": (0, 1000)},
    "codegen.lowering.reductions.shared_tiles": {"_FEWEST_BLOCKS": (1,)},
    "codegen.lowering.scatters.bitonic": {"_CHUNK": (64, 256)},
    "codegen.lowering.contractions.thin": {
        "_STEPS": (2, 4),
        "_MOST_ROWS": (1, 1000),
        "_MOST_COLUMNS": (32,),
        "_FEWEST_COLUMNS": (16,),
        "_SHORTEST_DEPTH": (1,),
        "_MOST_LEFT": (16,),
    },
    "codegen.lowering.contractions.tiling": {
        "SHORTEST_RUN": (1, 1000),
        "_COLUMNS_PER_RELAYOUT": (1,),
        "_COLUMNS_PER_REORDER": (1,),
        "_MOST_OFFSETS": (1,),
        "_LONGER": (1, 1000),
        "_ROWS_PER_PACKING": (1,),
        "_SHORT": (1, 100000),
    },
    "codegen.lowering.reductions.windows": {"_LARGEST_WINDOW": (1,), "_ENOUGH_PLANES": (1, 1000)},
    "codegen.lowering.winograd.windows": {"_MOST_KEPT": (64,)},
}
# The same for what follows from the processor: thresholds, and the blocks of contractions.
OF_PROCESSOR = {
    "chunk_work": (16, 64, 1024),
    "least_bytes": (1, 64),
    "stream_bytes": (0, 1, 1024),
    "first_bytes": (64, 512),
    "ahead_bytes": (64,),
}
OF_TILE = {
    "depth": (4, 16, 48),
    "block_rows": (8, 24, 64),
    "block_columns": (64,),
    "near_bytes": (0, 128, 4096),
}
# The same for settings that decide where a program is cut, for which sizes it is made, and in which
# order the threads of an emulated GPU take their turns.
OF_SETTINGS = {
    "EMULATED_ORDER": ("reverse", "random"),
    "METAOP_PENDING_LIMIT": ("1", "3", "20", "100"),
    "METAOP_PIECES": ("never", "first", "always"),
    "METAOP_SIZES": ("exact",),
}


def draw(random: np.random.Generator) -> Changes:
    """Changes of thresholds by path; "tactics" is a seed of which tactics contractions take."""
    tables = {**THRESHOLDS, "processor": OF_PROCESSOR, "tile": OF_TILE, "setting": OF_SETTINGS}
    drawn: Changes = {}
    share = random.uniform(*_SHARES)
    for module, table in tables.items():
        for name, others in table.items():
            if random.random() < share:
                drawn[f"{module}.{name}"] = others[int(random.integers(len(others)))]
    if random.random() < 0.5:
        drawn["tactics"] = int(random.integers(1 << 30))
    return drawn


class Thresholds:
    """The thresholds of the metaop that this process has imported."""

    def __init__(self) -> None:
        self._usual = {
            (module, name): getattr(_module(module), name)
            for module, table in THRESHOLDS.items()
            for name in table
        }
        self._thresholds = _module("codegen.machine").Processor.thresholds
        self._machine = _module("codegen.llvm.machine")._machine

    def change(self, changes: Changes) -> None:
        """Sets the changed thresholds, all others as they were, and forgets programs."""
        for (module, name), usual in self._usual.items():
            setattr(_module(module), name, changes.get(f"{module}.{name}", usual))
        for name in OF_SETTINGS:
            os.environ.pop(name, None)
        os.environ.update(_under("setting", changes))
        of_processor, of_tile = _under("processor", changes), _under("tile", changes)
        picks = np.random.default_rng(changes["tactics"]) if "tactics" in changes else None

        def thresholds(processor: Any) -> Any:
            return self._thresholds(processor)._replace(**of_processor)

        def choose(request: Any, default: Any) -> Any:
            tactics = _module("codegen.lowering.choice").rivals(request)
            assert picks is not None
            return tactics[int(picks.integers(len(tactics)))]

        def machine(*arguments: Any) -> Any:
            found = self._machine(*arguments)
            tile = found.tile
            others = {
                name: replace(getattr(tile, name), **_fitting(getattr(tile, name), of_tile))
                for name in ("narrow", "int16", "int8")
                if getattr(tile, name) is not None
            }
            found = replace(found, tile=replace(tile, **_fitting(tile, of_tile), **others))
            return found if picks is None else replace(found, choose=choose)

        _module("codegen.machine").Processor.thresholds = thresholds
        _module("codegen.llvm.machine")._machine = machine
        _module("execution.executor").clear_programs()


def _module(name: str) -> Any:
    return importlib.import_module(f"metaop.{name}")


def _under(name: str, changes: Changes) -> Changes:
    """The changes whose path begins with a name."""
    parts = ((path.rpartition("."), value) for path, value in changes.items())
    return {last: value for (first, _, last), value in parts if first == name}


def _fitting(tile: Any, sizes: Changes) -> Changes:
    """The sizes, as far as blocks of them hold a register tile."""
    least = {"block_rows": tile.rows, "block_columns": tile.columns, "depth": tile.step}
    return {name: max(size, least.get(name, 0)) for name, size in sizes.items()}
