"""Machine code in memory: loaded, unloaded, and its pages used again."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import metaop
from metaop.codegen.caches import kernels as kernel_cache
from metaop.codegen.llvm import kernels, rows
from metaop.codegen.llvm.objects import code_memory, engine
from metaop.codegen.llvm.objects.code_memory import PAGE, take_pages
from metaop.codegen.llvm.objects.loader import Address, load_object
from metaop.codegen.llvm.objects.object_code import compile_object
from metaop.codegen.llvm.runtime import ERROR_WORDS, Step, StepTable, runtime
from metaop.codegen.llvm.system import host_system
from metaop.codegen.llvm.target import host_target
from metaop.errors import InternalError
from metaop.execution import executor

_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)


@pytest.fixture
def chunks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[code_memory._Chunk]]:
    """Code memory of its own for a test, in maps of 64 pages."""
    monkeypatch.setenv("METAOP_PORTABLE", "false")
    if not host_system().has_own_loader:
        pytest.skip("LLVM loads code here, into memory of its own")
    found: list[code_memory._Chunk] = []
    monkeypatch.setattr(code_memory, "_chunks", found)
    monkeypatch.setattr(code_memory, "_CHUNK_PAGES", 64)
    yield found


def adding(number: int) -> bytes:
    text = f"define i64 @f(i64 %x) {{ %y = add i64 %x, {number} ret i64 %y }}"
    return compile_object(text, host_target())


def loaded(number: int) -> Address:
    return load_object(adding(number), ["f"])["f"]


def maps() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


def pages_in_use(chunks: list[code_memory._Chunk]) -> int:
    return sum(sum(chunk.taken) - sum(n for _, n in chunk.returned) for chunk in chunks)


def test_pages_are_used_again(chunks: list[code_memory._Chunk]) -> None:
    """A random choice of what lives: it computes what it should, and the maps stay few."""
    objects = [adding(number) for number in range(100)]
    generator = np.random.default_rng(0)
    loaded(0)
    before = maps()
    live: dict[int, Address] = {}
    for number in generator.integers(0, len(objects), 3000).tolist():
        if number in live:
            assert _FUNCTION(live.pop(number))(1000) == 1000 + number
        else:
            live[number] = load_object(objects[number], ["f"])["f"]
    assert all(_FUNCTION(address)(5) == 5 + number for number, address in live.items())
    assert len(set(live.values())) == len(live) == pages_in_use(chunks)
    assert len(chunks) <= 2 and maps() <= before + 4
    live.clear()
    assert pages_in_use(chunks) == 0


def test_pages_in_a_row_are_found(chunks: list[code_memory._Chunk]) -> None:
    single = [take_pages(1) for _ in range(64)]
    assert len(chunks) == 1
    del single[10:13], single[20:22]
    long = take_pages(2 * PAGE + 1)
    assert len(chunks) == 1 and long.address == single[9].address + PAGE
    larger_than_a_map = take_pages(100 * PAGE)
    assert len(chunks) == 2 and len(chunks[1].taken) == 100
    del larger_than_a_map
    assert take_pages(90 * PAGE).address == chunks[1].address


def test_code_is_never_writable() -> None:
    address = loaded(3)
    rights = [
        fields[1]
        for fields in map(str.split, Path("/proc/self/maps").read_text().splitlines())
        if int(fields[0].split("-")[0], 16) <= address < int(fields[0].split("-")[1], 16)
    ]
    assert rights == ["r-xp"]


def test_calls_addresses_and_data() -> None:
    """All forms in which code refers to itself, to its data and to libraries."""
    text = """
    @count = internal global i64 5
    @zeros = internal global [1000 x i64] zeroinitializer, align 64
    @table = internal constant [2 x ptr] [ptr @twice, ptr @labs]
    declare i64 @labs(i64)
    define i64 @twice(i64 %x) noinline { %y = mul i64 %x, 2 ret i64 %y }
    define i64 @next(i64 %x) {
      %old = load i64, ptr @count
      %new = add i64 %old, %x
      store i64 %new, ptr @count
      %index = and i64 %x, 511
      %place = getelementptr i64, ptr @zeros, i64 %index
      %zero = load i64, ptr %place
      store i64 77, ptr %place
      %sum = add i64 %new, %zero
      %result = call i64 @labs(i64 %sum)
      ret i64 %result
    }
    define i64 @any(i64 %x) {
      %place = getelementptr ptr, ptr @table, i64 %x
      %function = load ptr, ptr %place
      %y = call i64 %function(i64 -4)
      ret i64 %y
    }
    define i64 @where(i64 %x) {
      %same = icmp eq ptr @labs, null
      %y = select i1 %same, ptr @next, ptr @labs
      %z = call i64 %y(i64 -9)
      ret i64 %z
    }"""
    found = load_object(compile_object(text, host_target()), ["twice", "next", "any", "where"])
    other = load_object(compile_object(text, host_target()), ["next"])
    called = {name: _FUNCTION(address) for name, address in found.items()}
    assert called["next"](-20) == 15 and called["next"](999) == 984 and called["next"](999) == 2060
    assert _FUNCTION(other["next"])(1) == 6
    assert [called["any"](k) for k in (0, 1)] == [-8, 4]
    assert called["where"](0) == 9 and called["twice"](21) == 42


@pytest.mark.parametrize("content", [b"", b"\x7fELF\x02\x01" + bytes(100), bytes(200)])
def test_what_is_no_object_is_refused(content: bytes) -> None:
    with pytest.raises(InternalError, match="not an ELF object"):
        load_object(content, ["f"])


def test_a_table_of_steps_holds_its_kernels(chunks: list[code_memory._Chunk]) -> None:
    text = """
    define void @add(ptr %buffers, ptr %scalars, i64 %begin, i64 %end, ptr %error) {
      %x = load ptr, ptr %buffers
      %old = load i64, ptr %x
      %new = add i64 %old, AMOUNT
      store i64 %new, ptr %x
      ret void
    }"""

    def table(amount: int) -> StepTable:
        kernel = engine.compile_kernel(text.replace("AMOUNT", str(amount)), "add")
        return StepTable([Step(kernel, [0], [], 1, 1)])

    runtime()
    before = pages_in_use(chunks)
    tables = {amount: table(amount) for amount in range(1, 200)}
    for amount in range(1, 200, 3):
        del tables[amount]
    tables |= {amount: table(amount) for amount in range(200, 260)}
    number, error = np.zeros(1, np.int64), np.zeros(ERROR_WORDS, np.int64)
    slots = np.array([number.ctypes.data])
    for one in tables.values():
        assert not runtime().run(one.address, 1, slots.ctypes.data, error.ctypes.data, 0)
    assert number == sum(tables)
    assert pages_in_use(chunks) == before + len(tables)


def test_forgotten_programs_give_their_memory_back(
    chunks: list[code_memory._Chunk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of programs with few kept: those that a traced function holds go on to run."""
    monkeypatch.setenv("METAOP_DISK_CACHE", "false")
    monkeypatch.setenv("METAOP_COMPILE_PROCESSES", "0")
    monkeypatch.setattr(executor, "_KEPT_PROGRAMS", 8)
    monkeypatch.setattr(kernel_cache, "_KEPT_SKELETONS", 8)
    cache = kernel_cache.KernelCache(kernels.start_compiling)
    monkeypatch.setattr(rows, "kernel_cache", lambda: cache)
    executor.clear_programs()
    x = metaop.rand(40)
    values = np.asarray(x.numpy(), np.float64)
    traced = metaop.jit(lambda y: y.cos().sin().exp() - 7)
    kept = traced(x).numpy().copy()
    functions = (metaop.sin, metaop.cos, metaop.tanh, metaop.abs)
    exact = (np.sin, np.cos, np.tanh, np.abs)
    most = 0
    for number in range(256):
        digits = [number // 4**k % 4 for k in range(4)]
        result, wanted = x, values
        for digit in digits:
            result, wanted = functions[digit](result), exact[digit](wanted)
        np.testing.assert_allclose(result.numpy(), wanted, rtol=1e-4, atol=1e-6)
        gc.collect(0)
        most = max(most, pages_in_use(chunks))
    np.testing.assert_array_equal(traced(x).numpy(), kept)
    assert most <= 40
    executor.clear_programs()


def test_threads_load_and_unload(chunks: list[code_memory._Chunk]) -> None:
    objects = [adding(number) for number in range(20)]
    wrong = []

    def work(seed: int) -> None:
        for number in np.random.default_rng(seed).integers(0, 20, 500).tolist():
            address = load_object(objects[number], ["f"])["f"]
            if _FUNCTION(address)(seed) != seed + number:
                wrong.append((seed, number))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and pages_in_use(chunks) == 0 and len(chunks) == 1


def test_a_fork_has_memory_of_its_own(chunks: list[code_memory._Chunk]) -> None:
    first = loaded(1)
    child = os.fork()
    if not child:
        held = code_memory._lock
        place = int(first)
        del first
        second = loaded(2)
        os._exit(0 if second == place and _FUNCTION(second)(5) == 7 and not held.locked() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert _FUNCTION(first)(5) == 6


_FORBIDDEN = """
import ctypes, sys
import metaop
x = metaop.rand(3)
PR_SET_MDWE = 65
if ctypes.CDLL(None).prctl(PR_SET_MDWE, 1, 0, 0, 0):
    sys.exit(3)
try:
    (x + 1).numpy()
except metaop.errors.DeviceError as error:
    print(error)
"""


def test_a_system_without_new_code_says_so() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FORBIDDEN], capture_output=True, text=True, timeout=300
    )
    if done.returncode == 3:
        pytest.skip("this Linux cannot forbid it")
    assert done.returncode == 0, done.stderr
    assert "permits no new machine code" in done.stdout and "fix: " in done.stdout
