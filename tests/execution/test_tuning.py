"""Tuning: what is searched, kept, found again and left alone."""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import metaop
from metaop.codegen.caches.choices import Choices
from metaop.codegen.caches.disk import DiskCache, cache_at
from metaop.codegen.caches.fingerprint import kernel_fingerprint
from metaop.codegen.llvm import tuning
from metaop.codegen.llvm.machine import host_machine
from metaop.codegen.lowering.choice import default_tactic, other_tiles
from metaop.codegen.lowering.machine import WITH_FEWER_PRODUCTS
from metaop.codegen.lowering.request import Request
from metaop.codegen.lowering.strategy import Tactic
from metaop.compiler import schedule
from metaop.dist.environment import adopt
from metaop.elementwise import apply
from metaop.errors import ArgumentError
from metaop.execution import executor
from metaop.operators.linear_algebra import matmul
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.node import Node, input_node


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, and searches of a few runs."""
    monkeypatch.setenv("METAOP_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tuning, "_SECONDS", 0.0)
    forget()
    return tmp_path


def forget() -> None:
    """As in a new process."""
    tuning._choices_in.cache_clear()
    cache_at.cache_clear()
    executor.clear_programs()


class Fixed:
    """Measures nothing: the candidate of a number is the fastest, by a factor."""

    def __init__(self, fastest: int, gain: float) -> None:
        self.fastest, self.gain, self.calls = fastest, gain, 0

    def __call__(self, candidates: Sequence[object], seconds: float, turns: int) -> np.ndarray:
        self.calls += 1
        times = np.ones((turns, len(candidates)))
        times[:, min(self.fastest, len(candidates) - 1)] /= self.gain
        return times


def measured(monkeypatch: pytest.MonkeyPatch, fastest: int = 1, gain: float = 2.0) -> Fixed:
    found = Fixed(fastest, gain)
    monkeypatch.setattr(tuning, "timing_trial", found)
    return found


def product(rows: int = 64, columns: int = 96, depth: int = 80) -> tuple[list[Node], Node]:
    nodes = [input_node(0, (rows, depth), dtypes.float32)]
    nodes.append(input_node(1, (depth, columns), dtypes.float32))
    return nodes, matmul(*nodes)


def tactic_of(nodes: list[Node], output: Node) -> Tactic:
    """The tactic that the contraction of a graph is lowered with."""
    taken: list[Tactic] = []
    machine = tuning.tuned(host_machine())

    def noted(request: Request, default: Tactic) -> Tactic:
        wanted = replace(request, machine=machine)
        tactic = machine.choose(wanted, default) if machine.choose else default
        taken.append(tactic)
        return tactic

    schedule(nodes, [output], replace(machine, choose=noted))
    (found,) = taken
    return found


def default() -> Tactic:
    """The tactic of the product without tuning."""
    taken: list[Tactic] = []

    def noted(request: Request, tactic: Tactic) -> Tactic:
        taken.append(tactic)
        return tactic

    nodes, output = product()
    schedule(nodes, [output], replace(host_machine(), choose=noted))
    return taken[0]


def multiply() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    a, b = (
        random.standard_normal((64, 80), np.float32),
        random.standard_normal((80, 96), np.float32),
    )
    return (metaop.tensor(a) @ metaop.tensor(b)).numpy(), a.astype(np.float64) @ b


def test_what_is_found_is_used_by_later_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    measured(monkeypatch)
    with metaop.tune() as report:
        found, wanted = multiply()
    assert (report.tried, report.faster) == (1, 1)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    forget()
    graph = product()
    assert tactic_of(*graph) != default()
    np.testing.assert_allclose(multiply()[0], wanted, rtol=1e-4, atol=1e-4)
    monkeypatch.setenv("METAOP_TUNE", "off")
    assert tactic_of(*graph) == default()


def kernels() -> list[str]:
    """The kernels of the program that multiplies."""
    a, b = metaop.ones(64, 80), metaop.ones(80, 96)
    executor.realize()
    program = executor.program_of(executor.pending_subgraph([(a @ b)._call]))
    return [launch.kernel for launch in program.launches]  # type: ignore[attr-defined]


def test_programs_of_before_do_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not from memory, and not from disk: a layout belongs to what was tuned when it was made."""
    measured(monkeypatch)
    before = kernels()
    with metaop.tune():
        during = kernels()
    forget()
    after = kernels()
    assert before != during == after
    monkeypatch.setenv("METAOP_TUNE", "off")
    forget()
    assert kernels() == before


def test_nothing_is_searched_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    fixed = measured(monkeypatch, gain=1.0)
    monkeypatch.setenv("METAOP_TUNE", "search")
    with metaop.tune() as report:
        multiply()
    calls = fixed.calls
    assert report.tried == 1 and report.faster == 0 and calls > 0
    forget()
    with metaop.tune() as report:
        multiply()
    assert report.tried == 0 and fixed.calls == calls


@pytest.mark.parametrize("gain, is_kept", [(1.02, False), (1.05, True)])
def test_only_what_is_faster_by_more_than_noise_is_kept(
    gain: float, is_kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured(monkeypatch, gain=gain)
    with tuning.searching():
        assert (tactic_of(*product()) != default()) == is_kept


def test_who_wins_few_turns_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def lucky(candidates: Sequence[object], seconds: float, turns: int) -> np.ndarray:
        times = np.ones((turns, len(candidates)))
        times[: turns // 2, 1] = 0.5
        times[turns // 2 :, 1] = 2.0
        return times

    monkeypatch.setattr(tuning, "timing_trial", lucky)
    with tuning.searching():
        assert tactic_of(*product()) == default()


def test_a_search_that_measures_finds_a_tactic_that_computes_the_same() -> None:
    with metaop.tune() as report:
        found, wanted = multiply()
    assert report.tried == 1
    assert "contractions tuned: 1 in" in str(report)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"tactic": "panels", "rows": 8}', b"\xff"])
@pytest.mark.parametrize("is_signed", [False, True])
def test_damaged_files_count_as_absent(
    content: bytes, is_signed: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured(monkeypatch)
    with metaop.tune():
        multiply()
    (place,) = folder.glob("tactics-*")
    (file,) = place.iterdir()
    if is_signed:
        DiskCache(place, 1 << 20).put(file.stem, content)
    else:
        file.write_bytes(content)
    forget()
    assert tactic_of(*product()) == default()
    found, wanted = multiply()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_sizes_that_make_no_sense_and_schedules_of_elsewhere_are_not_used(folder: Path) -> None:
    choices = Choices(DiskCache(folder, 1 << 20))
    one = default()
    choices.keep("narrow", replace(one, tile=replace(one.tile, block_columns=1)))
    choices.keep("zero", replace(one, tile=replace(one.tile, rows=0)))
    choices.keep("other", replace(one, strategy="winograd", variant="4x4"))
    choices.keep("good", one)
    again = Choices(DiskCache(folder, 1 << 20))
    found = [again.find(key, [one]) for key in ("narrow", "zero", "other", "good")]
    assert found == [None, None, None, one]


def test_writers_at_the_same_time_lose_nothing(folder: Path) -> None:
    one = default()

    def write(first: int) -> None:
        choices = Choices(DiskCache(folder, 1 << 20))
        for number in range(first, first + 40):
            choices.keep(f"key{number % 50}", one)

    threads = [threading.Thread(target=write, args=(first,)) for first in (0, 10, 20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    again = Choices(DiskCache(folder, 1 << 20))
    assert len(again) == 50
    assert all(again.find(f"key{number}", [one]) == one for number in range(50))


def test_without_a_disk_cache_choices_live_as_long_as_the_process(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("METAOP_DISK_CACHE", "0")
    measured(monkeypatch)
    with metaop.tune():
        multiply()
    assert tactic_of(*product()) != default()
    assert not list(folder.glob("tactics-*"))
    forget()
    assert tactic_of(*product()) == default()


def test_other_machines_have_choices_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    measured(monkeypatch)
    with metaop.tune():
        multiply()
    machine = host_machine()
    assert tuning.state_of_choices(machine)
    without = WITH_FEWER_PRODUCTS if not machine.without else ()
    for other in ({"threads": machine.threads + 1}, {"without": without}):
        assert not tuning.state_of_choices(replace(machine, **other))
    for target in ("native", "baseline"):
        monkeypatch.setenv("METAOP_TARGET", target)
        is_other = host_machine() != machine
        assert bool(tuning.state_of_choices(host_machine())) != is_other


FINGERPRINT = """
import sys
from metaop.unified_graph.node import input_node
from tests.execution import test_tuning
if sys.argv[1] == "other":
    test_tuning.product(5, 6, 7)
    input_node(3, (4, 4), test_tuning.dtypes.float32)
print(test_tuning.fingerprint(64, 96, 80))
"""


def fingerprint(rows: int, columns: int, depth: int, function: str = "relu") -> str:
    """The fingerprint of a product with a function behind."""
    keys = []

    def noted(request: Request, default: Tactic) -> Tactic:
        keys.append(kernel_fingerprint(request.kernel, request.storage))
        return default_tactic(replace(request, machine=host_machine()))

    nodes, output = product(rows, columns, depth)
    machine = replace(host_machine(), choose=noted)
    schedule(nodes, [apply(function, output)], machine)
    (key,) = keys
    assert key is not None
    return key


def test_programs_for_any_size_have_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAOP_TUNE", "search")
    weight = metaop.randn(48, 48)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for rows in (48, 56, 72):
            left = metaop.randn(rows, 48)
            wanted = left.numpy() @ weight.numpy()
            np.testing.assert_allclose((left @ weight).numpy(), wanted, rtol=1e-4, atol=1e-4)


def test_fingerprints_mean_the_same_in_every_process() -> None:
    here = fingerprint(64, 96, 80)
    for word in ("same", "other"):
        command = [sys.executable, "-c", FINGERPRINT, word]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == here


def test_fingerprints_tell_kernels_apart() -> None:
    keys = {fingerprint(64, 96, 80), fingerprint(64, 80, 96), fingerprint(64, 96, 80, "tanh")}
    assert len(keys) == 3


def test_ranks_use_choices_and_make_none(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"METAOP_TUNE": "search"}
    environment |= {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}
    adopt(environment)
    assert environment["METAOP_TUNE"] == "stored"
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ArgumentError, match="a job of 2 ranks"), metaop.tune():
        pass


def test_unknown_modes_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAOP_TUNE", "always")
    with pytest.raises(ArgumentError, match="METAOP_TUNE is 'always', but it has to be off"):
        tuning.mode()


def test_register_tiles_differ_from_the_default() -> None:
    machine = host_machine()
    found = other_tiles(default(), machine)
    assert len(set(found)) == len(machine.tiles) > 1
    assert default() not in found
