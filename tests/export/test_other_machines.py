"""Machine code for AArch64 and for Windows, run here: by an emulator and by Wine.

A C compiler of the other machine links it with a program, so that both agree on how functions are
called. Code of the large model is what the process itself would load there; code of the small model
is what `metaop compile` makes. Where one of the tools is not installed, the tests say which.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import metaop
from metaop import nn
from metaop.codegen.llvm.objects.object_code import compile_object
from metaop.codegen.llvm.runtime_text import runtime_text
from metaop.codegen.llvm.system import System
from metaop.codegen.llvm.target import Target, targets_of
from metaop.errors import UnsupportedError
from metaop.export.library import compile_library, made_library
from tests.export.test_libraries import c_program, outputs, same
from tests.export.vector_functions import UNARY, functions


class Machine(NamedTuple):
    """A system, the names of a C compiler for it and its options, and of what runs its programs."""

    system: System
    compilers: tuple[str, ...]
    options: tuple[str, ...]
    runners: tuple[str, ...]
    package: str

    def tool(self, names: Sequence[str]) -> str:
        """The first of the tools that is installed; skips the test where none is."""
        for name in names:
            if found := shutil.which(name):
                return found
        pytest.skip(f"{' or '.join(names)} is not installed: apt-get install {self.package}")

    def target(self, code_model: str) -> Target:
        """The processor, and the form of objects that its linker takes."""
        found = next(one for one in targets_of(self.system) if one.name in ("aarch64", "avx2"))
        return replace(found, triple=found.triple.removesuffix("-elf"), code_model=code_model)

    def run(self, folder: Path, *sources: str) -> None:
        """Links files of a folder to a program, which has to end with 0 when it is run there."""
        compiler = self.tool(self.compilers)
        runner = self.tool(self.runners)
        command = [compiler, "-O2", "-Wall", "-o", "main.exe", *sources, *self.options]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        command = [runner, "./main.exe"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module", autouse=True)
def wine_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A system of its own for Wine, which it takes seconds to make."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WINEPREFIX", str(tmp_path_factory.mktemp("wine")))
        patch.setenv("WINEDEBUG", "-all")
        yield


_ARM = Machine(
    System("linux", "aarch64"),
    ("aarch64-linux-gnu-gcc",),
    ("-static", "-pthread", "-lm"),
    ("qemu-aarch64-static", "qemu-aarch64"),
    "gcc-aarch64-linux-gnu qemu-user-static",
)
# The compiler there calls `___chkstk_ms` what ntdll.dll exports as `__chkstk`.
_WINDOWS = Machine(
    System("windows", "x86_64"),
    ("x86_64-w64-mingw32-gcc",),
    (
        "-Wl,--defsym=__chkstk=___chkstk_ms",
        *("-static", "-lsynchronization"),
        *("-include", "malloc.h", "-Dposix_memalign(p,a,n)=!(*(p)=_aligned_malloc(n,a))"),
    ),
    ("wine64", "/usr/lib/wine/wine64"),
    "gcc-mingw-w64-x86-64 wine64",
)
MACHINES = {
    "aarch64": _ARM,
    "aarch64 without futex": _ARM._replace(system=_ARM.system._replace(is_portable=True)),
    "windows": _WINDOWS,
}


@pytest.mark.parametrize("name", MACHINES)
def test_the_pool_runs_many_small_launches(name: str, tmp_path: Path) -> None:
    machine = MACHINES[name]
    content = compile_object(runtime_text(machine.system), machine.target("large"))
    (tmp_path / "runtime.o").write_bytes(content)
    machine.run(tmp_path, str(Path(__file__).with_name("pool.c")), "runtime.o")


def results_on(
    machine: Machine, target: Target, model: Any, inputs: Sequence[np.ndarray], folder: Path
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """What a model computes on another machine, and here."""
    program = metaop.export(model, tuple(map(metaop.from_numpy, inputs)), folder / "model.mo")
    made = made_library(program, "program", target, {}, embed=False)
    (folder / "program.o").write_bytes(made.content)
    (folder / "libprogram.h").write_text(made.header)
    (folder / "libprogram.weights").write_bytes(made.weights or b"")
    wanted = outputs(model, inputs)
    for number, array in enumerate(inputs):
        array.tofile(folder / str(number))
    text = c_program(inputs, wanted, (), len(made.weights or b""))
    (folder / "main.c").write_text(text)
    machine.run(folder, "main.c", "program.o")
    found = [
        np.fromfile(folder / str(k), one.dtype).reshape(one.shape)
        for k, one in enumerate(wanted, len(inputs))
    ]
    return found, wanted


def products(x: metaop.Tensor, y: metaop.Tensor) -> list[metaop.Tensor]:
    """Packed panels of several types, and reductions of rows."""
    whole = (x * 9).to(metaop.int32), (y * 9).to(metaop.int32)
    small = [one.to(metaop.bfloat16) for one in (x, y)]
    return [
        x @ y,
        x.double() @ y.double(),
        (small[0] @ small[1]).float(),
        whole[0] @ whole[1],
        (x @ y).softmax(1),
        x.sort(1)[0],
        x.cumsum(0),
    ]


def network() -> nn.Module:
    """Convolutions of several kinds, norms and attention."""
    metaop.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.GELU(),
        nn.Conv2d(16, 16, 3, padding=1, groups=16),
        nn.MaxPool2d(2),
        nn.Flatten(2),
        nn.TransformerEncoderLayer(16, 4, 32, batch_first=True),
        nn.Flatten(),
        nn.Linear(256, 10),
        nn.LogSoftmax(1),
    ).eval()


_random = np.random.default_rng(0)
MODELS: dict[str, tuple[Callable[[], Any], list[np.ndarray]]] = {
    "products": (
        lambda: products,
        [_random.standard_normal(shape, np.float32) for shape in ((37, 65), (65, 53))],
    ),
    "network": (network, [_random.standard_normal((2, 3, 8, 8), np.float32)]),
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", ["aarch64", "windows"])
def test_programs_compute_what_they_do_here(name: str, model: str, tmp_path: Path) -> None:
    make, inputs = MODELS[model]
    machine = MACHINES[name]
    same(*results_on(machine, machine.target("small"), make(), inputs, tmp_path))


@pytest.mark.parametrize("name", ["aarch64", "windows"])
def test_vector_functions_are_right(name: str, tmp_path: Path) -> None:
    """To the rounding of float32, against PyTorch in float64."""
    x = _random.uniform(0.05, 3, 203).astype(np.float32)
    machine = MACHINES[name]
    found, here = results_on(machine, machine.target("large"), functions, [x], tmp_path)
    exact = torch.from_numpy(x).double()
    special = {"lgamma": torch.lgamma, "digamma": torch.digamma}
    for function, values in zip(UNARY, found):
        wanted = special.get(function, getattr(torch, function))(exact).numpy()
        np.testing.assert_allclose(values, wanted, rtol=3e-6, atol=3e-7, err_msg=function)
    for values, wanted in zip(found[len(UNARY) :], here[len(UNARY) :], strict=True):
        np.testing.assert_allclose(values, wanted, rtol=3e-6)


def test_objects_for_another_processor(tmp_path: Path) -> None:
    """The command makes them, and refuses what takes the tools of that processor."""
    program = metaop.export(nn.Linear(3, 2), metaop.rand(4, 3), tmp_path / "model.mo")
    with pytest.raises(UnsupportedError, match=r"a library for aarch64[\s\S]*-o model\.o"):
        compile_library(program, tmp_path / "libprogram.so", "aarch64")
    with pytest.raises(UnsupportedError, match=r"embedded[\s\S]*--weights-beside"):
        compile_library(program, tmp_path / "program.o", "aarch64")
    compile_library(program, tmp_path / "program.o", "aarch64", embed=False)
    assert (tmp_path / "program.o").read_bytes()[18:20] == b"\xb7\0"
    assert (tmp_path / "program.weights").stat().st_size
