"""Compiling, loading and the disk cache of compiled kernels."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path
from weakref import WeakValueDictionary

import numpy as np
import pytest

import metaop
from metaop import inspect
from metaop.codegen.caches.disk import DiskCache, cache_at
from metaop.codegen.llvm.builder import AS_WRITTEN
from metaop.codegen.llvm.objects import engine
from metaop.codegen.llvm.objects.loader import load_object
from metaop.codegen.llvm.objects.object_code import assembly, compile_object
from metaop.codegen.llvm.target import host_target
from metaop.errors import ArgumentError, DeviceError, InternalError


def scale_text(factor: float, width: int = 16) -> str:
    """A kernel that multiplies `width` float32 numbers by a constant vector."""
    factors = ", ".join(f"float {float(factor + lane)}" for lane in range(width))
    vector = f"<{width} x float>"
    return f"""
    define void @scale(ptr %numbers) {{
      %before = load {vector}, ptr %numbers, align 4
      %after = fmul {vector} %before, <{factors}>
      store {vector} %after, ptr %numbers, align 4
      ret void
    }}"""


def call(address: int, *arguments: int) -> None:
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(arguments))(address)(*arguments)


def check_scale(address: int, factor: float, width: int = 16) -> None:
    numbers = np.random.default_rng(0).standard_normal(width).astype(np.float32)
    expected = numbers * (factor + np.arange(width, dtype=np.float32))
    call(address, numbers.ctypes.data)
    np.testing.assert_array_equal(numbers, expected)


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder and an engine that remembers nothing, as in a new process."""
    monkeypatch.setenv("METAOP_CACHE_DIR", str(tmp_path / "cache"))
    forget(monkeypatch)
    return tmp_path / "cache"


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_codes", WeakValueDictionary())
    monkeypatch.setattr(engine, "statistics", engine.Statistics())
    cache_at.cache_clear()


def counts() -> tuple[int, int, int]:
    done = engine.statistics
    return done.compiled, done.loaded_from_disk, done.loaded_from_memory


@pytest.mark.parametrize("optimise", [True, False])
@pytest.mark.parametrize("width", [4, 16, 64])
def test_compiled_code_computes(width: int, optimise: bool) -> None:
    content = compile_object(scale_text(1.5, width), host_target(), optimise)
    check_scale(load_object(content, ["scale"])["scale"], 1.5, width)


def test_several_symbols_of_one_object() -> None:
    text = "\n".join(
        f"define i64 @f{number}(i64 %x) {{ %y = add i64 %x, {number} ret i64 %y }}"
        for number in range(3)
    )
    content = compile_object(text, host_target())
    addresses = load_object(content, ["f0", "f1", "f2"])
    function_type = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
    assert [function_type(addresses[f"f{k}"])(10) for k in range(3)] == [10, 11, 12]


def test_calls_of_libraries() -> None:
    """Declared functions, and those that the code generator calls on its own account."""
    declared = """
    declare double @cbrt(double)
    define void @root(ptr %x) {
      %before = load double, ptr %x
      %after = call double @cbrt(double %before)
      store double %after, ptr %x
      ret void
    }"""
    undeclared = """
    define void @remainder(ptr %x) {
      %before = load double, ptr %x
      %after = frem double %before, 3.0
      store double %after, ptr %x
      ret void
    }"""
    for text, name, expected in ((declared, "root", 2.0), (undeclared, "remainder", 2.0)):
        number = np.array([8.0])
        content = compile_object(text, host_target())
        call(load_object(content, [name])[name], number.ctypes.data)
        assert number[0] == expected


def test_many_objects_stay_loaded() -> None:
    addresses = [
        load_object(compile_object(scale_text(k), host_target()), ["scale"])["scale"]
        for k in range(40)
    ]
    assert len(set(addresses)) == 40
    for factor, address in enumerate(addresses):
        check_scale(address, factor)


def test_illegal_text_is_an_exception() -> None:
    with pytest.raises(InternalError, match="refuses"):
        compile_object("define void @f() { ret i32 0 }", host_target())
    with pytest.raises(InternalError, match="refuses"):
        compile_object("define nonsense", host_target())


def test_missing_symbols_are_exceptions() -> None:
    content = compile_object(scale_text(1), host_target())
    with pytest.raises(InternalError, match="shrink"):
        load_object(content, ["shrink"])
    text = "declare void @nobody_has_this()\n"
    text += "define void @f() { call void @nobody_has_this() ret void }"
    with pytest.raises(InternalError, match="nobody_has_this"):
        load_object(compile_object(text, host_target()), ["f"])


def test_assembly_uses_the_full_vectors() -> None:
    text = assembly(scale_text(2, host_target().vector_bytes // 4))
    register = {64: "zmm", 32: "ymm", 16: "xmm"}[host_target().vector_bytes]
    assert "scale:" in text and register in text


def test_memory_then_disk(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = engine.compile_kernel(scale_text(3), "scale")
    assert counts() == (1, 0, 0)
    assert engine.statistics.compile_seconds > 0
    assert engine.compile_kernel(scale_text(3), "scale") == first
    assert counts() == (1, 0, 1)
    forget(monkeypatch)
    check_scale(engine.compile_kernel(scale_text(3), "scale"), 3)
    assert counts() == (0, 1, 0)
    check_scale(engine.compile_kernel(scale_text(4), "scale"), 4)
    assert counts() == (1, 1, 0)


def test_disk_cache_can_be_off(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAOP_DISK_CACHE", "0")
    check_scale(engine.compile_kernel(scale_text(3), "scale"), 3)
    assert not fresh.exists()


DAMAGES = {
    "truncated": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "only a header": lambda content: content[:20],
    "one bit changed": lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
    "longer": lambda content: content + b"\0",
    "foreign": lambda content: b"\x7fELF" + b"\0" * 200,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_entry_is_rebuilt(
    damage: object, fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.compile_kernel(scale_text(5), "scale")
    (entry,) = fresh.iterdir()
    good = entry.read_bytes()
    entry.write_bytes(damage(good))  # type: ignore[operator]
    forget(monkeypatch)
    check_scale(engine.compile_kernel(scale_text(5), "scale"), 5)
    assert counts() == (1, 0, 0)
    assert entry.read_bytes() == good


def test_entry_under_another_name_is_refused(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 1 << 20)
    assert cache.put("one", b"content")
    (entry,) = tmp_path.iterdir()
    entry.rename(entry.with_name(entry.name.replace("one", "two")))
    assert cache.get("two") is None


def test_entry_that_is_a_folder(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.compile_kernel(scale_text(6), "scale")
    (entry,) = fresh.iterdir()
    entry.unlink()
    entry.mkdir()
    forget(monkeypatch)
    check_scale(engine.compile_kernel(scale_text(6), "scale"), 6)


def test_folder_that_cannot_be_written(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh.write_text("a file where the folder should be")
    check_scale(engine.compile_kernel(scale_text(7), "scale"), 7)
    assert counts() == (1, 0, 0)


def test_least_recently_used_goes_first(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 10_000)
    for number in range(8):
        assert cache.put(f"key{number}", bytes(1000))
        (path,) = tmp_path.glob(f"key{number}.*")
        os.utime(path, (number, number))
    assert cache.get("key0") == bytes(1000)
    for number in range(8, 10):
        assert cache.put(f"key{number}", bytes(1000))
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 10_000
    assert cache.get("key1") is None
    assert cache.get("key0") == cache.get("key9") == bytes(1000)
    assert not cache.put("huge", bytes(20_000))


def multiply_text(factor: str) -> str:
    """A function that multiplies a number by an argument or a literal."""
    return f"""
    define i64 @multiply(i64 %number, i64 %argument) {{
      %factor = add i64 0, {factor}
      %result = mul i64 %number, %factor
      ret i64 %result
    }}"""


def test_texts_share_quick_code_until_there_is_better(
    fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    factors = (3, 5, 8)
    exact = [multiply_text(str(factor)) for factor in factors]
    codes = engine.start_compiling_all(exact, ("multiply",), 0, multiply_text("%argument"))
    quick = [code.address("multiply") for code in codes]
    assert len(set(quick)) == 1 and counts() == (1, 0, 0)
    assert [function(one)(7, 11) for one in quick] == [77] * 3
    # Another process finds it for each text, and the texts.
    forget(monkeypatch)
    again = engine.start_compiling_all(exact, ("multiply",), 0, multiply_text("%argument"))
    assert [function(code.address("multiply"))(7, 11) for code in again] == [77] * 3
    assert counts() == (0, 3, 0) and all(code.is_quick for code in again)
    for code, factor in zip((*codes, *again), factors * 2):
        end = time.monotonic() + 60
        while (better := code.improved("multiply")) is None:
            assert time.monotonic() < end
            time.sleep(0.01)
        # The argument does not matter any more.
        assert function(better)(7, 11) == 7 * factor and not code.is_quick
    # Code for speed takes the place of quick code, one for each text.
    assert len(list(fresh.iterdir())) == 3


_SHARED = """
import sys
from metaop.codegen.llvm.objects import engine
from test_engine import check_scale, counts, scale_text
for factor in range(6):
    check_scale(engine.compile_kernel(scale_text(factor), "scale"), factor)
print(*counts())
"""


def test_processes_share_the_cache(fresh: Path) -> None:
    def start() -> subprocess.Popen[str]:
        path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
        environment = {**os.environ, "PYTHONPATH": path}
        return subprocess.Popen(
            [sys.executable, "-c", _SHARED], env=environment, stdout=subprocess.PIPE, text=True
        )

    together = [start(), start()]
    for process in together:
        output, _ = process.communicate(timeout=300)
        compiled, from_disk, _ = map(int, output.split())
        assert process.returncode == 0 and compiled + from_disk == 6
    assert start().communicate(timeout=300)[0].split() == ["0", "6", "0"]
    assert len(list(fresh.iterdir())) == 6


_ALONE = """
import os, sys, time
from metaop.codegen.caches.disk import DiskCache
with DiskCache(sys.argv[1], 1000).alone("key"):
    print("in", flush=True)
    sys.stdin.readline()
    print("out", flush=True)
    if sys.argv[2] == "dies":
        os._exit(3)
"""


def _in_turn(folder: Path, how: str = "ends") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _ALONE, str(folder), how]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen(command, text=True, bufsize=1, **pipes)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no locks of files")
@pytest.mark.parametrize("how", ["ends", "dies"])
def test_processes_take_turns(tmp_path: Path, how: str) -> None:
    with _in_turn(tmp_path, how) as first:
        assert first.stdout.readline() == "in\n"
        with _in_turn(tmp_path) as second:
            second.stdin.write("\n")
            # Time enough to come in, were it its turn.
            with pytest.raises(subprocess.TimeoutExpired):
                second.wait(2)
            first.stdin.write("\n")
            assert first.stdout.readline() == "out\n"
            assert second.stdout.read() == "in\nout\n"
    assert (first.returncode, second.returncode) == (3 if how == "dies" else 0, 0)
    assert not list(tmp_path.iterdir())


def test_nobody_waits_for_ever_for_a_turn(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 1000)
    with cache.alone("key") as is_alone:
        assert is_alone
        for patience in (0.0, 0.05):
            with cache.alone("key", patience) as is_alone:
                assert not is_alone and list(tmp_path.iterdir())
            assert list(tmp_path.iterdir())  # whoever gave up waiting leaves the lock
    (tmp_path / "file").touch()
    # Where there are no locks, nobody is kept from anything.
    with DiskCache(tmp_path / "file", 1000).alone("key") as is_alone, pytest.raises(ValueError):
        assert is_alone
        raise ValueError


def test_targets(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("METAOP_TARGET", raising=False)
    native = host_target()
    widths = {"avx512": 64, "avx2": 32, "baseline": 16}
    for name, width in widths.items():
        monkeypatch.setenv("METAOP_TARGET", name)
        if width > native.vector_bytes:
            with pytest.raises(DeviceError, match="lacks"):
                host_target()
            continue
        target = host_target()
        assert target is host_target() and target.vector_bytes == width
        assert (target.has_avx512, target.has_fma, target.has_f16c) == (
            width == 64,
            width >= 32,
            width >= 32,
        )
        check_scale(engine.compile_kernel(scale_text(8), "scale"), 8)
    monkeypatch.setenv("METAOP_TARGET", "avx1024")
    with pytest.raises(ArgumentError, match="avx1024"):
        host_target()
    monkeypatch.delenv("METAOP_TARGET")
    assert host_target() == native and host_target().vector_bytes >= 16


def test_narrow_target_makes_narrow_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAOP_TARGET", "baseline")
    text = assembly(scale_text(2, 16))
    assert "mulps" in text and "ymm" not in text and "zmm" not in text


def test_only_loops_around_register_tiles_stay_as_written() -> None:
    left, right = metaop.randn(64, 64), metaop.randn(64, 64)
    assert AS_WRITTEN in inspect.llvm(left @ right)
    rows = inspect.llvm(left.argmax(0))
    assert AS_WRITTEN not in rows
    before = assembly(rows)
    as_written = rows.replace("nounwind", f"nounwind {AS_WRITTEN}")
    assert assembly(as_written) != before
    assert assembly(rows) == before
