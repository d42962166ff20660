"""Runs the programs whose names are given one after another: starting a job takes time.

With `--window` also small values are reduced in the memory that the ranks share; with `--gpus` what
the programs make lies on GPUs, of which every rank has an emulated one.
"""

import runpy
import sys
from pathlib import Path

folder = Path(__file__).parent
sys.path.insert(0, str(folder.parents[2]))
if "--gpus" in sys.argv:
    from tests.cuda.emulator.cupy_stand_in import install

    install()

import metaop.dist.transports  # noqa: E402
from metaop.distributed import get_rank  # noqa: E402

for name in sys.argv[1:]:
    if name == "--window":
        metaop.dist.transports.WINDOW_BYTES = 0
        continue
    if name == "--gpus":
        metaop.cuda.set_device(get_rank())
        metaop.set_default_device("cuda")
        continue
    runpy.run_path(str(folder / f"{name}.py"))
    print(f"rank {get_rank()} has done {name}", flush=True)
