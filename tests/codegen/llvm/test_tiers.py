"""Quick code, and the better code that replaces it: both give the same bits."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.codegen.llvm import program
from metaop.codegen.llvm.objects.engine import statistics
from metaop.nn import functional as F

# The seconds without better code after which there is none to come.
_QUIET = 6.0
TYPES = (metaop.float32, metaop.float64, metaop.bfloat16, metaop.float16)


def image_step(x: metaop.Tensor, w: metaop.Tensor) -> metaop.Tensor:
    """Windows, sums over batches and planes, maxima."""
    x = F.relu(F.conv2d(x, w, padding=1))
    x = F.max_pool2d(F.batch_norm(x, None, None, training=True), 2)
    x = F.conv2d(x, w[:, :1], groups=8, padding=1)
    return (F.gelu(x) * F.softmax(x, -1)).square().mean()


def row_step(x: metaop.Tensor, w: metaop.Tensor) -> metaop.Tensor:
    """Products, rows, elementary functions, running sums."""
    x = F.layer_norm(x.flatten(2), (64,)) @ w.reshape(-1, 8)[:8].t().repeat(8, 1)
    attended = F.scaled_dot_product_attention(x, x, x.sin())
    return (attended.cumsum(1) / (1 + x.exp()) - x * x.tanh()).log_softmax(-1).mean()


def layers_step(x: metaop.Tensor, w: metaop.Tensor) -> metaop.Tensor:
    """Convolutions by Winograd's method, whose kernels differ in literals alone."""
    x = x.repeat(1, 11, 2, 2)[:, :32]
    for channels in (48, 64, 80):
        w = w.repeat(channels // 8, 1 + x.shape[1] // 3, 1, 1)[:channels, : x.shape[1]]
        x, w = F.relu(F.conv2d(x, w, padding=1)) / channels, w[:8, :3]
    return x.square().mean()


def digests() -> dict[str, str]:
    """The bits of losses and gradients of all steps in all types."""
    found = {}
    for step in (image_step, row_step, layers_step):
        for dtype in TYPES[:1] if step is layers_step else TYPES:
            random = np.random.default_rng(0)
            leaves = [
                metaop.tensor(random.standard_normal(shape) * 0.3, dtype=dtype, requires_grad=True)
                for shape in ((4, 3, 8, 8), (8, 3, 3, 3))
            ]
            loss = step(*leaves)
            loss.backward()
            content = b""
            for one in (loss, *(leaf.grad for leaf in leaves)):
                assert one is not None
                content += one.detach().to(metaop.float64).numpy().tobytes()
            found[f"{step.__name__}, {dtype}"] = hashlib.sha256(content).hexdigest()
    return found


def main() -> None:
    """Prints the digests: those of the first run, and those when programs wait for nothing more."""
    is_impatient = sys.argv[1] == "impatient"
    if is_impatient:
        program._SECONDS_OF_A_KERNEL = 1e-9
    first, last = digests(), digests()
    changed, before = time.monotonic(), 0
    while is_impatient and time.monotonic() < changed + _QUIET:
        if statistics.improved != before:
            changed, before = time.monotonic(), statistics.improved
        last = digests()
    counts = {"compiled": statistics.compiled, "loaded": statistics.loaded_from_disk}
    counts["improved"] = statistics.improved
    print(json.dumps({"first": first, "last": last, **counts}))


def ran(folder: Path, patience: str, **settings: str) -> dict[str, Any]:
    """What a fresh process prints."""
    own = {"METAOP_TIERS": "1", "METAOP_COMPILE_PROCESSES": "1", "METAOP_CACHE_DIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.codegen.llvm.test_tiers", patience],
        capture_output=True,
        text=True,
        env={**os.environ, **own, **settings},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def for_speed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A process that compiles everything for speed at once."""
    return ran(tmp_path_factory.mktemp("speed"), "patient", METAOP_TIERS="0")


def test_code_for_speed_is_compiled_once(for_speed: dict[str, Any]) -> None:
    assert for_speed["compiled"] > 0 and for_speed["improved"] == 0
    assert for_speed["first"] == for_speed["last"]


def test_better_code_has_the_same_bits_and_is_on_disk(
    for_speed: dict[str, Any], tmp_path: Path
) -> None:
    quick = ran(tmp_path, "patient")
    assert quick["first"] == quick["last"] == for_speed["first"]
    assert quick["improved"] == 0
    # Some layers share quick code.
    assert 0 < quick["compiled"] < for_speed["compiled"]
    again = ran(tmp_path, "impatient")
    assert again["first"] == again["last"] == for_speed["first"]
    # Kernels of quick programs are improved from the text on disk.
    assert again["compiled"] == 0 and again["improved"] > 0
    last = ran(tmp_path, "impatient")
    assert last["first"] == for_speed["first"]
    assert last["improved"] == 0


def test_without_other_processes_all_code_is_for_speed(tmp_path: Path) -> None:
    alone = ran(tmp_path, "impatient", METAOP_COMPILE_PROCESSES="0")
    assert alone["improved"] == 0


if __name__ == "__main__":
    main()
