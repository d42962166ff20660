"""Runs the programs whose names are given one after another: starting a job takes time.

With `--window` also small values are reduced in the memory that the ranks share.
"""

import runpy
import sys
from pathlib import Path

import metaop.dist.carriers
from metaop.distributed import get_rank

folder = Path(__file__).parent
sys.path.insert(0, str(folder.parents[2]))
for name in sys.argv[1:]:
    if name == "--window":
        metaop.dist.carriers.WINDOW_BYTES = 0
        continue
    runpy.run_path(str(folder / f"{name}.py"))
    print(f"rank {get_rank()} has done {name}", flush=True)
