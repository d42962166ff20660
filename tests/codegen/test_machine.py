"""The description of a processor: where it comes from, where it is kept, what follows from it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.codegen import machine as description
from metaop.codegen.caches.disk import cache_at
from metaop.codegen.llvm import processor as own
from metaop.codegen.llvm.machine import host_machine, machine_for
from metaop.codegen.llvm.target import target_named
from metaop.codegen.machine import (
    PLAIN,
    TYPICAL,
    Processor,
    Thresholds,
    cache_sizes,
    power_of_two,
    with_caches,
)
from metaop.execution import executor
from metaop.nn import functional as F
from tests.codegen.force import change_thresholds

MIB = 1 << 20


def write_caches(folder: Path, *caches: tuple[str, str, str, str]) -> Path:
    """A folder like that of Linux, of caches by level, type, size and line."""
    for number, values in enumerate(caches):
        (folder / f"index{number}").mkdir(parents=True)
        for name, value in zip(("level", "type", "size", "coherency_line_size"), values):
            if value:
                (folder / f"index{number}" / name).write_text(value + "\n")
    return folder


def test_caches_are_those_of_data(tmp_path: Path) -> None:
    folder = write_caches(
        tmp_path,
        ("1", "Data", "48K", "64"),
        ("1", "Instruction", "64K", "64"),
        ("2", "Unified", "2048K", "64"),
        ("3", "Unified", "260M", "64"),
    )
    assert cache_sizes(folder) == ({1: 48 << 10, 2: 2 * MIB, 3: 260 * MIB}, 64)
    found = with_caches(TYPICAL["avx512"], *cache_sizes(folder))
    assert (found.first_bytes, found.near_bytes, found.last_bytes) == (48 << 10, 2 * MIB, 260 * MIB)
    assert found.stream_bytes == 260 * MIB and not found.is_measured


def test_lines_and_two_levels_of_another_processor(tmp_path: Path) -> None:
    folder = write_caches(tmp_path, ("1", "Data", "128K", "128"), ("2", "Unified", "12288K", "128"))
    found = with_caches(TYPICAL["aarch64"], *cache_sizes(folder))
    assert (found.first_bytes, found.line_bytes) == (128 << 10, 128)
    assert found.near_bytes == found.last_bytes == 12 * MIB
    assert found.thresholds().first_bytes == 128 << 10


@pytest.mark.parametrize(
    "caches",
    [(), (("x", "Data", "32K", "64"),), (("1", "Data", "many", ""),), (("", "", "32K", ""),)],
)
def test_what_the_system_does_not_tell_is_typical(
    tmp_path: Path, caches: tuple[tuple[str, str, str, str], ...]
) -> None:
    folder = write_caches(tmp_path, *caches)
    assert cache_sizes(folder / "absent") == ({}, 64)
    assert with_caches(TYPICAL["avx2"], *cache_sizes(folder)) == TYPICAL["avx2"]


def test_small_caches_count_as_typical(tmp_path: Path) -> None:
    folder = write_caches(tmp_path, ("2", "Unified", "64K", "64"), ("3", "Unified", "1M", "64"))
    found = with_caches(TYPICAL["avx2"], *cache_sizes(folder))
    assert (found.near_bytes, found.last_bytes) == (MIB // 4, 8 * MIB)


# --- thresholds -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TYPICAL)
@pytest.mark.parametrize("first", [32, 48])
def test_typical_processors_have_the_thresholds_for_which_schedules_were_made(
    name: str, first: int
) -> None:
    sizes = {1: first << 10, 2: MIB, 3: 32 * MIB}
    found = with_caches(TYPICAL[name], sizes).thresholds()
    registers = TYPICAL[name].registers
    assert found == Thresholds(16 * 16384, MIB, 32 * MIB, 32 << 10, 1024, 64, registers)
    assert PLAIN == found._replace(stream_bytes=0, registers=16)


def test_thresholds_follow_the_processor_in_the_right_direction() -> None:
    directions: dict[str, list[Callable[[Thresholds], float]]] = {
        "fork_seconds": [lambda t: t.chunk_work, lambda t: t.least_bytes],
        "near_bandwidth": [lambda t: t.chunk_work],
        "core_bandwidth": [lambda t: t.least_bytes, lambda t: t.ahead_bytes],
        "latency_seconds": [lambda t: t.ahead_bytes],
        "first_bytes": [lambda t: t.first_bytes],
        "stream_bytes": [lambda t: t.stream_bytes],
        "line_bytes": [lambda t: t.line_bytes],
    }
    usual = TYPICAL["avx512"]
    for field, numbers in directions.items():
        value = getattr(usual, field)
        faster, slower = (
            dataclasses.replace(usual, **{field: type(value)(value * factor)}).thresholds()
            for factor in (0.25, 4)
        )
        for number in numbers:
            assert number(faster) < number(usual.thresholds()) < number(slower), field


def test_chunks_have_few_expensive_tasks_and_many_cheap_ones() -> None:
    counts = [PLAIN.tasks_in_chunk(work) for work in (0, 16, 1000, 1 << 18, 1 << 40)]
    assert counts == [1, 16384, 262, 1, 1]


def test_nearly_equal_measurements_give_equal_thresholds() -> None:
    usual = TYPICAL["avx2"]
    noisy = dataclasses.replace(
        usual,
        fork_seconds=1.1 * usual.fork_seconds,
        near_bandwidth=0.93 * usual.near_bandwidth,
        core_bandwidth=1.17 * usual.core_bandwidth,
        latency_seconds=0.9 * usual.latency_seconds,
    )
    assert noisy.thresholds() == usual.thresholds()


def test_absurd_measurements_give_possible_thresholds() -> None:
    for factor in (1e-9, 1e9):
        found = dataclasses.replace(
            TYPICAL["avx2"], fork_seconds=factor, latency_seconds=factor
        ).thresholds()
        assert 1 << 14 <= found.chunk_work <= 1 << 22
        assert 512 <= found.ahead_bytes <= 8192
        assert found.least_bytes >= 1


def test_powers_of_two_are_the_nearest_ones() -> None:
    numbers = (0.0, 0.3, 1, 1.4, 1.5, 6, 1400, 1500)
    assert [power_of_two(number) for number in numbers] == [1, 1, 1, 1, 2, 8, 1024, 2048]


def test_machines_to_compile_for_do_not_depend_on_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("x86-64-v4", "x86-64-v3", "x86-64", "aarch64")
    before = [machine_for(target_named(name)) for name in names]
    monkeypatch.setattr(description, "cache_sizes", lambda *_: ({1: MIB, 2: MIB, 3: MIB}, 128))
    own._processor.cache_clear()
    assert [machine_for(target_named(name)) for name in names] == before
    for registers, one in zip((32, 16, 16, 32), before):
        assert one.thresholds == PLAIN._replace(stream_bytes=8 * MIB, registers=registers)


# --- programs -------------------------------------------------------------------------------------

OTHERS = [
    {"chunk_work": 16 << 10, "first_bytes": 64 << 10, "ahead_bytes": 8192, "line_bytes": 128},
    {"chunk_work": 1 << 22, "first_bytes": 16 << 10, "ahead_bytes": 512, "line_bytes": 32},
    {"chunk_work": 1, "least_bytes": 1 << 10, "stream_bytes": 1 << 12},
]
PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "softmax": lambda x, w: F.softmax(x, -1),
    "norm": lambda x, w: F.layer_norm(x, x.shape[-1:]),
    "exponentials": lambda x, w: (x * 2).exp() + x,
    "sums of columns": lambda x, w: x.sum(0),
    "maxima of columns": lambda x, w: x.amax((0, 2)),
    "prefixes": lambda x, w: x.cumsum(-1),
    "order": lambda x, w: x.sort(-1)[0],
    "pool": lambda x, w: F.max_pool2d(x, 3, 2, 1),
    "depthwise": lambda x, w: F.conv2d(x, w, padding=1, groups=6),
    "transposed": lambda x, w: x.transpose(1, 3).contiguous(),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("changes", OTHERS)
def test_other_thresholds_compute_the_same(
    name: str, changes: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("METAOP_DISK_CACHE", "0")
    generator = np.random.default_rng(0)
    shapes = (3, 6, 33, 130), (6, 1, 3, 3)
    given = [generator.standard_normal(shape).astype(np.float32) for shape in shapes]

    def results() -> list[np.ndarray]:
        x, w = (metaop.from_numpy(array.copy()).requires_grad_() for array in given)
        y = PROGRAMS[name](x, w)
        (y * y).sum().backward()
        grads = [one.grad.numpy() for one in (x, w) if one.grad is not None]
        return [y.detach().numpy(), *grads]

    expected = results()
    change_thresholds(monkeypatch, **changes)
    executor.clear_programs()
    try:
        found = results()
    finally:
        executor.clear_programs()
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


# --- on disk --------------------------------------------------------------------------------------


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Processor:
    """A measured processor that differs in each number, and an empty folder to keep it in."""
    monkeypatch.setenv("METAOP_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("METAOP_DISK_CACHE", "1")
    monkeypatch.setenv("METAOP_MACHINE", "measured")
    monkeypatch.delenv("METAOP_TARGET", raising=False)
    values = {
        field.name: type(field.default)(3 * getattr(own.system_processor(), field.name) + 1)
        for field in dataclasses.fields(Processor)
    }
    return Processor(**{**values, "is_measured": True})


def test_what_was_measured_is_kept(slow: Processor) -> None:
    assert own.host_processor() == own.system_processor()
    assert own.keep(slow)
    assert own.host_processor() == slow
    assert host_machine().thresholds == slow.thresholds()
    assert host_machine().tile.near_bytes == slow.near_bytes
    own._processor.cache_clear()
    assert own.host_processor() == slow


def test_programs_of_a_measured_processor_have_keys_of_their_own(slow: Processor) -> None:
    from metaop.codegen.llvm import program_store

    before = program_store._key("graph")
    own.keep(slow)
    assert program_store._key("graph") != before


@pytest.mark.parametrize(
    "name, value", [("METAOP_MACHINE", "typical"), ("METAOP_TARGET", "baseline")]
)
def test_measurements_may_be_ignored(
    slow: Processor, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    own.keep(slow)
    monkeypatch.setenv(name, value)
    assert own.host_processor() == own.system_processor()
    assert not own.host_processor().is_measured


def test_other_numbers_of_threads_have_measurements_of_their_own(
    slow: Processor, monkeypatch: pytest.MonkeyPatch
) -> None:
    own.keep(slow)
    threads = own.runtime().get_num_threads()
    monkeypatch.setattr(own.runtime(), "get_num_threads", lambda: threads + 1)
    assert not own.host_processor().is_measured


@pytest.mark.parametrize("change", ["text", "missing", "more", "no number"])
def test_damaged_measurements_count_as_absent(slow: Processor, change: str, tmp_path: Path) -> None:
    values = dataclasses.asdict(slow)
    if change == "missing":
        del values["latency_seconds"]
    values |= {"more": {"other": 1.0}, "no number": {"fma": "fast"}}.get(change, {})
    content = b"{" if change == "text" else json.dumps(values).encode()
    cache_at(str(tmp_path / "processors"), 1 << 30).put(own._key(), content)
    own._processor.cache_clear()
    assert own.host_processor() == own.system_processor()


def test_nothing_is_kept_without_a_folder(slow: Processor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAOP_DISK_CACHE", "0")
    assert not own.keep(slow)
    assert not own.host_processor().is_measured
