"""Runs programs where neither `models` nor the tests can be imported; the arguments are folders.

In each lie `program.mo`, and for every call K its inputs and what the network made of them,
`K_input_*.npy` and `K_output_*.npy`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np


def close(found: np.ndarray, wanted: np.ndarray) -> bool:
    scale = max(float(np.abs(wanted).max(initial=0)), 1e-3)
    return found.shape == wanted.shape and bool(
        np.abs(found - wanted).max(initial=0) <= 1e-6 * scale
    )


def main(folders: list[str]) -> int:
    sys.modules["models"] = sys.modules["tests"] = None  # type: ignore[assignment]
    import metaop
    from metaop.utils._pytree import tree_leaves

    wrong = 0
    for folder in map(Path, folders):
        program = metaop.load_program(folder / "program.mo")
        for call in ("0", "1"):
            paths = sorted(folder.glob(f"{call}_input_*.npy"))
            if not paths:
                continue
            with metaop.no_grad():
                found = program(*[metaop.from_numpy(np.load(path)) for path in paths])
            wanted = [np.load(path) for path in sorted(folder.glob(f"{call}_output_*.npy"))]
            arrays = [one.numpy() for one in tree_leaves(found)]
            if len(arrays) != len(wanted) or not all(map(close, arrays, wanted)):
                print(f"{folder.name}: call {call} differs")
                wrong += 1
    print(f"{len(folders)} programs")
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
