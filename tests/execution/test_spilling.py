"""Programs under a budget that spill values to a file: the same bits, in less memory and time."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.codegen.memory import spilled
from metaop.errors import ArgumentError, MemoryBudgetError
from metaop.execution import executor
from metaop.execution.executor import clear_programs
from tests.execution.test_memory_budget import (
    SHARES,
    planned,
    step_of,
    trained,
)


def transfers() -> list[str]:
    """The launches of all programs that spill or fetch."""
    programs = [one.program for one in executor._programs.values()]
    names = [launch.name for program in programs for launch in program.launches]
    return [name for name in names if name in ("spill", "fetch")]


def in_files() -> int:
    files: list[Any] = [
        getattr(one.program, "_spills", None) for one in executor._programs.values()
    ]
    return sum(file._nbytes for file in files if file)


# The U-Net takes more than a minute.
@pytest.mark.parametrize(
    "name",
    [pytest.param(x, marks=[pytest.mark.nightly] if x == "unet" else []) for x in SHARES],
)
def test_the_same_bits(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAOP_SIZES", "exact")
    clear_programs()
    step, net = step_of(name)
    expected = trained(step, net)
    gradients = sum(4 * p.numel() for p in net.parameters())
    limit = gradients + int((planned() - gradients) * (SHARES[name] - 0.1))
    clear_programs()
    step, net = step_of(name)
    # As if computing were slow: then all that can be is spilled.
    monkeypatch.setattr("metaop.codegen.transforms.reruns._BYTES_OF_DISK", 1e9)
    monkeypatch.setattr("metaop.codegen.transforms.reruns._LAUNCH", 1)
    with metaop.memory_budget(limit, spill=tmp_path):
        actual = trained(step, net)
    assert planned() <= limit and {"spill", "fetch"} <= set(transfers()) and in_files()
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert not list(tmp_path.iterdir()), "the file has no name"


def drawn(seed: int = 6) -> tuple[Any, Any]:
    """A step whose values a loop makes, so that nothing can compute them again."""
    metaop.manual_seed(seed)
    weight = (metaop.randn(48, 48) / 8).requires_grad_()
    x = metaop.randn(200, 48)
    weight.detach().numpy(), x.numpy()

    def step() -> Any:
        weight.grad = None
        _, states = metaop.scan(lambda c, y: ((c * y).tanh(), c + y), metaop.ones(48), x)
        _, others = metaop.scan(lambda c, y: ((c - y).tanh(), c * y), metaop.ones(48), x)
        found = (others @ weight).tanh()
        found = ((found @ weight).tanh() @ weight).tanh() + states
        found.square().mean().backward()
        return weight.grad

    return step, weight


def test_what_cannot_be_made_again_is_spilled(tmp_path: Path) -> None:
    clear_programs()
    step, _ = drawn()
    expected, whole = step().tolist(), planned()
    limit = whole - 200 * 48 * 4
    clear_programs()
    with metaop.memory_budget(limit), pytest.raises(MemoryBudgetError, match="if values are comp"):
        drawn()[0]().tolist()
    clear_programs()
    with metaop.memory_budget(limit, tmp_path):
        assert drawn()[0]().tolist() == expected
    assert planned() <= limit and "spill" in transfers()


def test_no_folder_and_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        pytest.raises(ArgumentError, match="is no folder"),
        metaop.memory_budget("1MB", tmp_path / "absent"),
    ):
        pass
    with pytest.raises(ArgumentError, match="without a budget nothing is spilled"):
        metaop.jit(lambda: None, spill=tmp_path)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    clear_programs()
    step, _ = drawn()
    expected, whole = step().tolist(), planned()
    clear_programs()
    step, _ = drawn()
    with metaop.memory_budget(whole - 200 * 48 * 4, tmp_path):
        with monkeypatch.context() as patched:
            patched.setattr(os, "posix_fallocate", full, raising=False)
            found = step()
            with pytest.raises(MemoryBudgetError, match=r"cannot spill .* to .*: No space left"):
                found.tolist()
        # Nothing is lost: with more room the same values are there.
        assert found.tolist() == expected
    with metaop.memory_budget("1 KiB", tmp_path), pytest.raises(MemoryBudgetError, match="spilled"):
        drawn()[0]().tolist()


def test_systems_that_reserve_by_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    monkeypatch.setattr(spilled, "_PIECE", 1000)
    file = spilled.SpillFile(str(tmp_path), 12_345)
    one, other = file.taken(), file.taken()
    assert abs(one.address - other.address) >= 12_345
    file.given_back(one)
    assert file.taken().address == one.address


def test_captured_functions_and_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clear_programs()
    step, _ = drawn()
    expected, whole = step().tolist(), planned()
    limit = whole - 200 * 48 * 4
    captured = metaop.jit(drawn()[0], memory_budget=limit, spill=tmp_path)
    clear_programs()
    for _ in range(4):
        assert captured().tolist() == expected
    assert captured.traces < 4 and "spill" in transfers()
    monkeypatch.setenv("METAOP_MEMORY_BUDGET", f"{limit}")
    monkeypatch.setenv("METAOP_SPILL", str(tmp_path))
    clear_programs()
    assert drawn()[0]().tolist() == expected
    assert "spill" in transfers()


def test_threads_have_memory_of_their_own(tmp_path: Path) -> None:
    clear_programs()
    step, _ = drawn()
    expected, whole = step().tolist(), planned()
    failures = []

    def run() -> None:
        with metaop.memory_budget(whole - 200 * 48 * 4, tmp_path):
            own, _ = drawn()
            for _ in range(3):
                failures.extend([1] * (own().tolist() != expected))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


_PROGRAM = """
import metaop, sys
from tests.execution.test_spilling import drawn, transfers
from metaop.codegen.llvm.objects.engine import statistics
with metaop.memory_budget(int(sys.argv[1]), sys.argv[2]):
    found = drawn()[0]().tolist()
print(sum(map(sum, found)), "spill" in transfers(), statistics.compiled)
"""


def test_another_process_finds_the_program_on_disk(tmp_path: Path) -> None:
    clear_programs()
    step, _ = drawn()
    expected, limit = step().tolist(), planned() - 200 * 48 * 4
    environment = {
        **os.environ,
        "METAOP_CACHE_DIR": str(tmp_path / "cache"),
        "METAOP_DISK_CACHE": "1",
        "PYTHONPATH": str(Path(metaop.__file__).parent.parent),
    }
    command = [sys.executable, "-c", _PROGRAM, str(limit), str(tmp_path)]
    for _ in range(2):
        result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
        total, spills, compiled = result.stdout.decode().split()
        assert float(total) == sum(map(sum, expected)) and spills == "True"
    assert compiled == "0"
