"""Runs random training programs and says which differ from PyTorch.

python -m tests.fuzz.training --seed 0 --count 1000 --minimise --target avx2 --schedules
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from tests.fuzz.training.compare import Failure, failure
from tests.fuzz.training.generator import Generator
from tests.fuzz.training.minimise import minimise, minimise_changes
from tests.fuzz.training.program import Program, text
from tests.fuzz.training.schedules import SETTINGS, Changes, draw
from tests.fuzz.training.worker import DEVICE, Worker

_FOOTER = """

if __name__ == "__main__":
    import metaop
    import torch

    wanted, actual = run(torch, "float64"), run(metaop)
    for name, value in wanted.items():
        print(name, float(np.abs(actual[name] - value).max()), "of", float(np.abs(value).max()))
"""
_POISON = ("METAOP_POISON", "METAOP_VERIFY")


def main() -> int:
    """Runs the programs that the command line names; 1 when one of them failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.training", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=300, help="how many programs run")
    parser.add_argument("--minimise", action="store_true", help="look for smaller programs too")
    parser.add_argument(
        "--target",
        default="native",
        help="a value of METAOP_TARGET, or cuda: an emulated GPU, or gpu: a real one",
    )
    parser.add_argument(
        "--poison", action="store_true", help="verify kernels, and fill memory with NaN"
    )
    parser.add_argument(
        "--schedules", action="store_true", help="draw the thresholds of schedules too"
    )
    parser.add_argument("--folder", type=Path, help="where programs that failed are written")
    options = parser.parse_args()
    torch.set_num_threads(1)
    poison = str(int(options.poison))
    is_gpu = options.target in ("cuda", "gpu")
    settings = {DEVICE: options.target} if is_gpu else {"METAOP_TARGET": options.target}
    settings |= dict.fromkeys(_POISON, poison)
    if options.schedules:
        settings |= SETTINGS
    worker = Worker(settings)
    oracle = Worker({**settings, DEVICE: "cpu", "METAOP_BACKEND": "reference"})
    failed = []
    progress = tqdm(range(options.seed, options.seed + options.count), mininterval=5)
    for seed in progress:
        program = Generator(seed).program()
        if options.schedules:
            worker.changes = draw(np.random.default_rng(seed))
        found = failure(text(program), worker)
        if found is None:
            continue
        failed.append(seed)
        progress.set_postfix(failed=len(failed))
        if options.minimise:
            program, found = minimise(program, found, worker)
            minimise_changes(program, found, worker)
        shown = _shown(program, found, seed, options.target, worker.changes, oracle)
        progress.write(shown)
        if options.folder:
            options.folder.mkdir(parents=True, exist_ok=True)
            (options.folder / f"seed_{seed}_{options.target}.py").write_text(shown)
    worker.close()
    oracle.close()
    print(f"{options.count} programs, failed: {failed or 'none'}")
    return bool(failed)


def _shown(
    program: Program,
    found: Failure,
    seed: int,
    target: str,
    changes: Changes | None,
    oracle: Worker,
) -> str:
    """The program as a file that runs, with what went wrong above it."""
    written = text(program)
    fault = "the compiler's" if failure(written, oracle) is None else "also with the NumPy backend"
    lines = [f"seed {seed}, target {target}, {found.kind}, {fault}", *found.report.splitlines()]
    lines += [f"{path} = {value}" for path, value in (changes or {}).items()]
    return "\n".join(f"# {line}" for line in lines) + "\n\n" + written + _FOOTER


if __name__ == "__main__":
    sys.exit(main())
