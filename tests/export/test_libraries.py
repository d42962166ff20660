"""Libraries that are compiled ahead of time, called from C, C++ and cffi, beside the module."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from metaop import nn
from metaop.__main__ import main
from metaop.codegen.llvm.target import target_named
from metaop.errors import ArgumentError, UnsupportedError
from metaop.export.library import _Planned, _Variant, compile_library
from metaop.utils._pytree import tree_leaves
from tests.export.networks import QUICK, images, network, of_images, resized, tokens
from tests.export.test_loops import FORMS

CC = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
needs_cc = pytest.mark.skipif(CC is None, reason="no C compiler is found")

# Reads the inputs from files 0, 1, …, and writes the results behind them. The second call has to
# find nothing that the first one has left.
PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "libprogram.h"

static void *memory(size_t bytes) {
    void *found = NULL;
    if (posix_memalign(&found, 64, bytes ? bytes : 64)) exit(90);
    memset(found, 0xff, bytes);
    return found;
}

static void *content(const char *name, size_t bytes) {
    void *found = memory(bytes);
    FILE *file = fopen(name, "rb");
    if (!file || fread(found, 1, bytes, file) != bytes) exit(91);
    fclose(file);
    return found;
}

int main(void) {
    $BUFFERS
    char *arena = memory($ARENA);
    int32_t code = program_run($ARGUMENTS);
    memset(arena, 0xff, $ARENA);
    if (!code) code = program_run($ARGUMENTS);
    if (code) return code;
    $WRITES
    return 0;
}
"""


def c_program(
    inputs: Sequence[np.ndarray], results: Sequence[np.ndarray], sizes: Sequence[int], weights: int
) -> str:
    """A C program that calls the library once more on the same memory."""
    count = len(inputs)
    buffers = [f'void *b{k} = content("{k}", {one.nbytes});' for k, one in enumerate(inputs)]
    buffers += [f"void *b{count + k} = memory({one.nbytes});" for k, one in enumerate(results)]
    arguments = [str(size) for size in sizes]
    if weights:
        buffers.append(f'void *weights = content("libprogram.weights", {weights});')
        arguments.append("weights")
    arguments += ["arena", *(f"b{k}" for k in range(count + len(results)))]
    writes = [
        f'{{ FILE *file = fopen("{k}", "wb"); fwrite(b{k}, 1, {one.nbytes}, file); fclose(file); }}'
        for k, one in enumerate(results, count)
    ]
    listed = ", ".join(str(size) for size in sizes)
    arena = f"program_arena_bytes({listed})" if sizes else "PROGRAM_ARENA_BYTES"
    text = PROGRAM.replace("$BUFFERS", "\n    ".join(buffers)).replace("$ARENA", arena)
    text = text.replace("$ARGUMENTS", ", ".join(arguments))
    return text.replace("$WRITES", "\n    ".join(writes))


def run_in_c(
    folder: Path,
    inputs: Sequence[np.ndarray],
    results: Sequence[np.ndarray],
    sizes: Sequence[int] = (),
    weights: int = 0,
) -> list[np.ndarray]:
    """What the library in a folder computes, called from a C program."""
    for number, array in enumerate(inputs):
        array.tofile(folder / str(number))
    (folder / "main.c").write_text(c_program(inputs, results, sizes, weights))
    command = ["-Wall", "-Werror", "-o", "main", "main.c", "-L.", "-lprogram", "-Wl,-rpath,$ORIGIN"]
    subprocess.run([str(CC), *command], cwd=folder, check=True)
    assert subprocess.run(["./main"], cwd=folder).returncode == 0
    return [
        np.fromfile(folder / str(k), one.dtype).reshape(one.shape)
        for k, one in enumerate(results, len(inputs))
    ]


def check_imports(library: Path) -> None:
    """Only functions of libc and libm that compute, and what the linker itself adds."""
    found = subprocess.run(
        ["nm", "-D", "--undefined-only", library], capture_output=True, text=True, check=True
    ).stdout
    names = {line.split()[-1].partition("@")[0] for line in found.splitlines()}
    linker = {"__cxa_finalize", "__gmon_start__"}
    linker |= {"_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable"}
    assert names - linker <= {"memcpy", "memset", "memmove", "pow", "ceil", "floor"}
    defined = subprocess.run(
        ["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True
    ).stdout
    assert {line.split()[-1] for line in defined.splitlines()} <= {
        "program_run",
        "program_arena_bytes",
    }


def same(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> None:
    for one, other in zip(found, wanted, strict=True):
        scale = max(float(np.abs(other).max(initial=0)), 1e-3)
        # Sums are taken in another order than for the processor at hand.
        np.testing.assert_allclose(one / scale, other / scale, rtol=0, atol=2e-6)


def outputs(model: Any, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    with metaop.no_grad():
        return [one.numpy() for one in tree_leaves(model(*map(metaop.from_numpy, inputs)))]


CASES = {
    "mlp": QUICK["mlp"]._replace(others={"batch": 7}),
    "lenet": QUICK["lenet"],
    "resnet": of_images(16, network("resnet", "resnet18", 10, "cifar")),
    "gpt": QUICK["gpt"],
}


@needs_cc
@pytest.mark.parametrize("name", CASES)
def test_c_programs_compute_what_modules_do(name: str, tmp_path: Path) -> None:
    metaop.manual_seed(0)
    case = CASES[name]
    model = case.build().eval()
    examples = tuple(map(metaop.from_numpy, case.inputs))
    metaop.export(model, examples, tmp_path / "m.mo", dynamic=case.dynamic)
    program = metaop.load_program(tmp_path / "m.mo")
    library = tmp_path / "libprogram.so"
    fixed = {size.name: size.example for size in program.sizes}
    options = [f"--size={key}={value}" for key, value in fixed.items()]
    arguments = ["compile", str(tmp_path / "m.mo"), "-o", str(library), "--target", "x86-64-v3"]
    assert main([*arguments, *options]) == 0
    check_imports(library)
    wanted = outputs(model, case.inputs)
    same(run_in_c(tmp_path, case.inputs, wanted), wanted)
    # Once more for any size: that of the example and another one.
    assert main(arguments) == 0
    check_imports(library)
    for inputs in (case.inputs, resized(case)):
        wanted = outputs(model, inputs)
        sizes = list(program.sizes_of([one.shape for one in inputs]).values())
        same(run_in_c(tmp_path, inputs, wanted, sizes), wanted)


@needs_cc
@pytest.mark.parametrize("name", FORMS)
def test_loops_are_loops_of_the_library(name: str, tmp_path: Path) -> None:
    """Any number of steps, carried and stacked values, choices, and loops that values end."""
    function, example = FORMS[name](), images(6, 3, 4)
    axes = {0: "length", 1: "rows"}
    if name == "cond":
        example, axes = example[0], {0: "rows"}
    program = metaop.export(function, metaop.from_numpy(example), tmp_path / "m.mo", dynamic=[axes])
    compile_library(program, tmp_path / "libprogram.so", "x86-64-v3")
    check_imports(tmp_path / "libprogram.so")
    shapes = [(6, 3, 4), (20, 2, 4), (2, 3, 4), (5, 1, 4), (1, 3, 4), (1, 1, 4)]
    # The scan reads position 1 of its stack.
    for shape in shapes[:4] if name == "scan" else shapes:
        x = images(*shape[-example.ndim :])
        for given in (x, -x):
            wanted = outputs(function, [given])
            same(run_in_c(tmp_path, [given], wanted, x.shape[:-1]), wanted)


@needs_cc
@pytest.mark.parametrize("target", ["x86-64", "x86-64-v3", "x86-64-v4", "native"])
def test_libraries_for_other_processors_are_made(target: str, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 36, 3), nn.Softmax(1))
    x = images(2, 3, 8, 8)
    program = metaop.export(model, metaop.from_numpy(x), tmp_path / "m.mo")
    library = tmp_path / "libprogram.so"
    compile_library(program, library, target)
    check_imports(library)
    native = target_named("native")
    needed = target_named(target).features.replace("+", "").split(",")
    if target == "native" or all(map(native.has, needed)):
        wanted = outputs(model, [x])
        same(run_in_c(tmp_path, [x], wanted), wanted)


@needs_cc
def test_weights_beside_and_results_that_are_copies(tmp_path: Path) -> None:
    scale = metaop.rand(4)

    def function(x: metaop.Tensor, k: metaop.Tensor) -> Any:
        y = x * scale
        return y, x, y, scale, (k % 3 == 0), k.to(metaop.uint8)

    x, k = images(3, 4), tokens(9, 5)
    arguments = (metaop.from_numpy(x), metaop.from_numpy(k))
    program = metaop.export(function, arguments, tmp_path / "m.mo")
    compile_library(program, tmp_path / "libprogram.so", "x86-64-v3", embed=False)
    weights = (tmp_path / "libprogram.weights").stat().st_size
    assert f"PROGRAM_WEIGHT_BYTES {weights}" in (tmp_path / "libprogram.h").read_text()
    wanted = outputs(function, [x, k])
    found = run_in_c(tmp_path, [x, k], wanted, weights=weights)
    same(found[:4], wanted[:4])
    assert all(map(np.array_equal, found[4:], wanted[4:]))


def library_of(program: Any, folder: Path, **options: Any) -> Any:
    """A library in this process, by cffi, as its header declares it."""
    import cffi

    compile_library(program, folder / "libprogram.so", "x86-64-v3", **options)
    interface = cffi.FFI()
    text = (folder / "libprogram.h").read_text()
    declarations = re.findall(r"^int(?:32|64)_t \w+\([^;]*\);", text, re.MULTILINE)
    interface.cdef("\n".join(declarations))
    return interface, interface.dlopen(str(folder / "libprogram.so"))


def aligned(nbytes: int) -> np.ndarray:
    block = np.empty(nbytes + 64, np.uint8)
    start = -block.ctypes.data % 64
    return block[start : start + nbytes]


@needs_cc
def test_cffi_and_what_a_call_refuses(tmp_path: Path) -> None:
    table = nn.Embedding(5, 3)
    axis = metaop.export.Dim("n", max=16)
    program = metaop.export(table, metaop.tensor([1, 4, 0]), tmp_path / "m.mo", dynamic=[{0: axis}])
    interface, library = library_of(program, tmp_path)
    arena = aligned(library.program_arena_bytes(16) + 64)

    def run(places: list[int], shift: int = 0, count: int | None = None) -> tuple[int, np.ndarray]:
        given, found = np.array(places), np.zeros((len(places), 3), np.float32)
        code = library.program_run(
            len(places) if count is None else count,
            interface.cast("void *", arena.ctypes.data + shift),
            interface.cast("int64_t *", given.ctypes.data),
            interface.cast("float *", found.ctypes.data),
        )
        return code, found

    for places in ([1, 4, 0], [3, 2], [4], list(range(5)) * 3):
        code, found = run(places)
        assert code == 0
        np.testing.assert_array_equal(found, table.weight.detach().numpy()[places])
    assert run([1, 7])[0] == 1 and run([1, -1])[0] == 1
    assert run([1, 2], shift=8)[0] == 3
    assert [run([1, 2], count=count)[0] for count in (0, 17)] == [4, 4]
    assert "n from 1 to 16" in (tmp_path / "libprogram.h").read_text()


@needs_cc
def test_sizes_with_code_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every combination of sizes that are 1, exact and any others finds the code for it."""
    layer = nn.Sequential(nn.Conv1d(3, 4, 3, padding=1), nn.Softmax(2))
    axes = {0: "batch", 2: metaop.export.Dim("length", max=64)}
    program = metaop.export(layer, metaop.rand(2, 3, 5), tmp_path / "m.mo", dynamic=[axes])
    choices = [{"batch": 4}, {"batch": 2, "length": 9}]
    library = tmp_path / "libprogram.so"
    compile_library(program, library, "x86-64-v3", exact=choices)
    check_imports(library)
    planned: list[Mapping[str, int]] = []
    monkeypatch.setattr(_Variant, "driver", lambda self, *_: planned.append(self._fixed))
    _Planned(program, "p", target_named("x86-64-v3"), {}, choices).drivers(True)
    ones: list[Mapping[str, int]] = [{"batch": 1, "length": 1}, {"batch": 4, "length": 1}]
    assert sorted(map(str, planned)) == sorted(
        map(str, [*choices, *ones, {"batch": 1}, {"length": 1}, {}])
    )
    for batch, length in ((1, 1), (1, 7), (3, 1), (4, 1), (4, 7), (2, 9), (4, 9), (3, 64)):
        x = images(batch, 3, length)
        wanted = outputs(layer, [x])
        same(run_in_c(tmp_path, [x], wanted, (batch, length)), wanted)
    with pytest.raises(ArgumentError, match="length = 65 is not a size of the program"):
        compile_library(program, library, exact=[{"length": 65}])
    with pytest.raises(ArgumentError, match=r"batch = 3 is not a size of the program \(length\)"):
        compile_library(program, library, sizes={"batch": 2}, exact=[{"batch": 3}])


@needs_cc
def test_images_of_any_size_have_code(tmp_path: Path) -> None:
    """What is fast for the example is no condition on other sizes."""
    layer = nn.Sequential(
        nn.Conv2d(8, 8, 5, padding=2, groups=8),
        nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=8),
        nn.Conv2d(8, 16, 1),
        nn.MaxPool2d(3, 1, 1),
    )
    axes = {0: "batch", 2: "height", 3: "width"}
    program = metaop.export(layer, metaop.rand(2, 8, 64, 64), tmp_path / "m.mo", dynamic=[axes])
    compile_library(program, tmp_path / "libprogram.so", "x86-64-v3")
    for batch, height, width in ((2, 64, 64), (3, 6, 7), (2, 5, 5), (1, 4, 90), (1, 150, 130)):
        x = images(batch, 8, height, width)
        wanted = outputs(layer, [x])
        same(run_in_c(tmp_path, [x], wanted, (batch, height, width)), wanted)


@needs_cc
def test_the_header_is_one_of_cpp_too(tmp_path: Path) -> None:
    program = metaop.export(nn.Linear(3, 2), metaop.rand(4, 3), tmp_path / "m.mo")
    compile_library(program, tmp_path / "libprogram.so", "x86-64-v3")
    text = '#include "libprogram.h"\nint main() { return program_run == nullptr; }\n'
    (tmp_path / "main.cpp").write_text(text)
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler is found")
    command = [compiler, "-o", "main", "main.cpp", "-L.", "-lprogram", "-Wl,-rpath,$ORIGIN"]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert subprocess.run(["./main"], cwd=tmp_path).returncode == 0


def test_an_object_file_takes_no_linker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = metaop.export(nn.Linear(3, 2), metaop.rand(4, 3), tmp_path / "m.mo")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(UnsupportedError, match=r"no C compiler.*\n.*\n.*-o model\.o"):
        compile_library(program, tmp_path / "libprogram.so")
    compile_library(program, tmp_path / "program.o")
    assert (tmp_path / "program.o").read_bytes()[:4] == b"\x7fELF"
    assert "program_run" in (tmp_path / "program.h").read_text()


def test_wrong_wishes_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.mo"
    program = metaop.export(nn.Linear(3, 2), metaop.rand(4, 3), path, dynamic=[{0: "batch"}])
    with pytest.raises(ArgumentError, match=r"\.so or \.o"):
        compile_library(program, tmp_path / "program.dll")
    with pytest.raises(ArgumentError, match="not a processor"):
        compile_library(program, tmp_path / "program.o", "armv9")
    with pytest.raises(ArgumentError, match="length = 3 is not a size of the program"):
        compile_library(program, tmp_path / "program.o", sizes={"length": 3})
    assert main(["compile", str(tmp_path / "absent.mo"), "-o", str(tmp_path / "a.o")]) == 1
    assert "absent.mo" in capsys.readouterr().err
