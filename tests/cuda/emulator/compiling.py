"""Kernels as libraries: their unmodified text, compiled by g++, beside what runs their threads."""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.cuda.emulator.races import explained

HERE = Path(__file__).parent
_SOURCES = ("threads.cpp", "races.cpp")
_HEADERS = ("cuda_emulator.h", "launch.h", "races.h")
_COMMON = ("g++", "-std=c++17", "-fPIC", "-w", "-fvisibility=hidden")
_OF_SOURCES = (*_COMMON, "-O2", "-c")
_OF_KERNELS = (
    *(*_COMMON, "-O1", "-g1", "-fwrapv", "-fno-strict-aliasing"),
    # Misaligned parts and indices outside of shared memory end the process with a message.
    *("-fsanitize=alignment,bounds", "-fno-sanitize-recover=all"),
    # Accesses call races.cpp: what stands behind these calls elsewhere is not linked.
    *("-fsanitize=thread", "--param=tsan-distinguish-volatile=1"),
    "--param=tsan-instrument-func-entry-exit=0",
)
_LINKED = ("-shared", "-nodefaultlibs", "-lubsan", "-lstdc++", "-lm", "-lgcc_s", "-lgcc", "-lc")
# The orders in which blocks, and the threads of each, take their turns.
ORDERS = ("forward", "reverse", "random")
_KERNEL = re.compile(r"__global__ void __launch_bounds__\([\d, ]+\) (\w+)\((.*?)\)\n\{", re.S)
_SHARED = re.compile(r"__shared__ (?:__align__\(\d+\) )?([\w ]+) \w+[\[;]")


class KernelFault(Exception):
    """A kernel did what no kernel may do on a GPU."""


class Kernel:
    """A kernel of a library, by the name of the function that launches it."""

    def __init__(self, library: Path, name: str) -> None:
        self._library = library
        self._launch = getattr(ctypes.CDLL(str(library)), name)
        self._launch.restype = ctypes.c_char_p

    def __call__(self, blocks: int, threads: int, words: Sequence[int], order: str) -> None:
        """Runs all blocks; KernelFault when threads never meet or race for memory."""
        given = (ctypes.c_longlong * len(words))(*map(int, words))
        message = self._launch(blocks, threads, given, ORDERS.index(order))
        if message:
            raise KernelFault(explained(message.decode(), self._library))


def parameter_types(text: str, symbol: str) -> list[str]:
    """The types of a kernel's parameters."""
    found = _KERNEL.search(text)
    assert found is not None and found[1] == symbol
    types = [parameter.strip().rpartition(" ")[0] for parameter in found[2].split(",")]
    return [kind.replace("__restrict__", "").strip() for kind in types]


def launcher(text: str, symbol: str, name: str) -> str:
    """The C++ around the text of a kernel: `name` launches it with its parameters as integers."""
    types = parameter_types(text, symbol)
    buffers = [
        f"{{(char*)words[{k}], sizeof(*({kind})0), {int(kind.startswith('const'))}}}"
        for k, kind in enumerate(types)
        if kind.endswith("*")
    ]
    section = f"shared_memory_of_{name}"
    bounds = (f"__start_{section}", f"__stop_{section}")
    elements = [f"sizeof({kind})" for kind in sorted(set(_SHARED.findall(text)))]
    fields = {
        "NAME": name,
        "NAMESPACE": f"of_{name}",
        "SECTION": section,
        "TEXT": text,
        "DECLARED": "".join(
            f'extern "C" char {one}[] __attribute__((weak));\n' for one in bounds if elements
        ),
        "CALL": f"{symbol}({', '.join(f'({kind})words[{k}]' for k, kind in enumerate(types))})",
        "BUFFERS": ", ".join(buffers),
        "WAITS": str(int("sync" in text)),
        "SHARED": ", ".join(bounds if elements else ("nullptr", "nullptr")),
        "ELEMENTS": ", ".join(elements or ["sizeof(char)"]),
    }
    return re.sub(r"\b[A-Z]{4,}\b", lambda word: fields.get(word[0], word[0]), _LAUNCHER)


_LAUNCHER = """
#undef SHARED_MEMORY
#define SHARED_MEMORY "SECTION"
namespace NAMESPACE {
TEXT
DECLARED
static UNWATCHED void call(void* data)
{
    const long long* words = (const long long*)data;
    CALL;
}
extern "C" __attribute__((visibility("default"))) UNWATCHED const char* NAME(
    int blocks, int threads, long long* words, int order)
{
    const Buffer buffers[] = {BUFFERS};
    const Launch launch = {
        call, words, (unsigned)blocks, (unsigned)threads, (bool)WAITS, order, buffers,
        sizeof(buffers) / sizeof(*buffers), SHARED, least({ELEMENTS})};
    return emulate(&launch);
}
}  // namespace
"""


def compiled(code: str, folder: Path) -> Path:
    """The library of some launchers, in a folder where several processes may look for it."""
    parts = [Path(HERE / name).read_text() for name in (*_HEADERS, *_SOURCES)]
    name = hashlib.sha256("\n".join([*parts, *_OF_KERNELS, code]).encode()).hexdigest()[:16]
    library, source = folder / f"{name}.so", folder / f"{name}.cpp"
    with _locked(library):
        if not library.exists():
            source.write_text(f'#include "cuda_emulator.h"\n{code}')
            made = library.with_suffix(".new")
            headers, objects = _tools()
            here = ("-I", str(headers), str(source), *map(str, objects))
            _compile(*_OF_KERNELS, *here, *_LINKED, "-o", str(made))
            made.replace(library)
    return library


@functools.cache
def _tools() -> tuple[Path, list[Path]]:
    """A folder with the headers, compiled in advance, and what runs threads.

    Processes that share a folder of kernels share these too; others have their own.
    """
    named = os.environ.get("EMULATED_KERNELS")
    folder = Path(named, "tools") if named else Path(tempfile.mkdtemp(prefix="emulator-"))
    if not named:
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    objects = [folder / f"{name}.o" for name in _SOURCES]
    with _locked(folder / "complete") as complete:
        if not complete.exists():
            for name in _HEADERS:
                shutil.copy(HERE / name, folder)
            header = folder / _HEADERS[0]
            _compile(*_OF_KERNELS, "-x", "c++-header", str(header), "-o", f"{header}.gch")
            for name, made in zip(_SOURCES, objects):
                _compile(*_OF_SOURCES, str(HERE / name), "-o", str(made))
            complete.touch()
    return folder, objects


@contextmanager
def _locked(path: Path) -> Iterator[Path]:
    """The path of a file that one process makes, while others wait."""
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield path


def _compile(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise KernelFault(re.sub(r"(?m)^.*note:.*$", "", done.stderr)[:4000])
