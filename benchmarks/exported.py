"""Programs in files and libraries: their size, the time to a first result, and that of a call.

    python -m benchmarks.exported --processes 5

Every number is the least of several processes, with one thread. Where onnxruntime and what PyTorch
needs to write its files are installed, the same network in PyTorch runs in it.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import metaop
from benchmarks import frameworks
from metaop.export.library import compile_library
from models import gpt, resnet

# Times in milliseconds: to the first result from the start of Python's part, and of a call.
PROGRAM = """
import sys, time
start = time.perf_counter()
import numpy as np
import metaop
program = metaop.load_program(sys.argv[1])
x = metaop.from_numpy(np.load(sys.argv[2]))
call = lambda: program(x).numpy()
"""
LIBRARY = """
import ctypes, sys, time
import numpy as np
x, arena = np.load(sys.argv[2]), np.empty(int(sys.argv[3]) + 64, np.uint8)
result = np.empty(int(sys.argv[4]), np.float32)
place = arena.ctypes.data + -arena.ctypes.data % 64
start = time.perf_counter()
run = ctypes.CDLL(sys.argv[1]).network_run
pointers = [ctypes.c_void_p(one) for one in (place, x.ctypes.data, result.ctypes.data)]
call = lambda: run(*pointers)
"""
ONNX = """
import sys, time
start = time.perf_counter()
import numpy as np
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], options, ["CPUExecutionProvider"])
x = {session.get_inputs()[0].name: np.load(sys.argv[2])}
call = lambda: session.run(None, x)
"""
TIMES = """
call()
first, least = time.perf_counter() - start, 1e9
for _ in range(10):
    begin = time.perf_counter()
    call()
    least = min(least, time.perf_counter() - begin)
print(first * 1e3, least * 1e3)
"""


def networks() -> dict[str, tuple[Any, Any, np.ndarray]]:
    """The network in metaop and in PyTorch, and an input."""
    random = np.random.default_rng(0)
    images = random.standard_normal((1, 3, 224, 224)).astype(np.float32)
    sizes = (65, 256, 384, 6, 6)
    return {
        "ResNet-18": (resnet.resnet18(), lambda m: m.resnet18(), images),
        "GPT": (gpt.GPT(*sizes), lambda m: m.GPT(*sizes), random.integers(0, 65, (1, 256))),
    }


def measured(program: str, processes: int, *arguments: object) -> str:
    """The minimum times over several processes, as text."""
    environment = {**os.environ, "METAOP_NUM_THREADS": "1"}
    found = []
    for _ in range(processes):
        done = subprocess.run(
            [sys.executable, "-c", program + TIMES, *map(str, arguments)],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        )
        found.append(list(map(float, done.stdout.split())))
    first, least = map(min, zip(*found))
    return f"first result {first:8.1f} ms, call {least:8.2f} ms"


def onnx_file(name: str, build: Any, x: np.ndarray, folder: Path) -> Path | None:
    """The network, exported by PyTorch for onnxruntime; None if that is not installed."""
    try:
        import onnxruntime  # type: ignore[import-not-found]  # noqa: F401
        import onnxscript  # type: ignore[import-not-found]  # noqa: F401
        import torch
    except ModuleNotFoundError:
        return None
    path = folder / f"{name}.onnx"
    twin = frameworks.torch_twin(f"models.{'gpt' if name == 'GPT' else 'resnet'}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        example = (torch.from_numpy(x),)
        torch.onnx.export(build(twin).eval(), example, path, dynamo=True, external_data=False)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--target", default="native")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for network, (model, build, x) in networks().items():
            file, library, data = folder / "n.mo", folder / "libnetwork.so", folder / "x.npy"
            np.save(data, x)
            program = metaop.export(model.eval(), metaop.from_numpy(x), file)
            compile_library(program, library, options.target)
            header = library.with_suffix(".h").read_text()
            arena = int(re.findall(r"ARENA_BYTES (\d+)", header)[0])
            with metaop.no_grad():
                elements = program(metaop.from_numpy(x)).numel()
            runs = [(file, PROGRAM, ()), (library, LIBRARY, (arena, elements))]
            other = onnx_file(network, build, x, folder)
            runs += [] if other is None else [(other, ONNX, ())]
            for path, text, further in runs:
                times = measured(text, options.processes, path, data, *further)
                size = path.stat().st_size / 1e6
                print(f"{network:10} {path.suffix:5} {size:7.2f} MB, {times}", flush=True)


if __name__ == "__main__":
    main()
