"""C++ for the CPU: compiled by the compiler of the machine, and loaded into this process."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

from metaop.codegen.caches.disk import shared_cache
from metaop.codegen.llvm.target import host_target
from metaop.errors import DTypeError, KernelError
from metaop.unified_graph.dtype import DType

_COMPILERS = ("c++", "g++", "clang++")
_ENTRY = "metaop_entry"
# An exception would leave a thread that runs no Python code, which ends the process.
_OPTIONS = ("-std=c++17", "-O3", "-shared", "-fPIC", "-fno-exceptions")
_TYPES = {
    **{f"int{bits}": f"std::int{bits}_t" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"std::uint{bits}_t" for bits in (8, 16, 32, 64)},
    **{"bool": "bool", "float16": "_Float16", "bfloat16": "__bf16"},
    **{"float32": "float", "float64": "double"},
}


def type_name(dtype: DType) -> str:
    """The C++ type of an element; raises DTypeError if there is none."""
    if dtype.name not in _TYPES:
        raise DTypeError(f"C++ has no type for {dtype.name}", fix="pass the values as floats")
    return _TYPES[dtype.name]


def function_of(
    name: str,
    text: str,
    inputs: Sequence[DType],
    outputs: Sequence[DType],
    flags: Sequence[str] = (),
) -> int:
    """The address of the function `body(in0, …, out0, …, task)` that a C++ text defines.

    The machine code is cached on disk like that of other kernels. Raises `KernelError` with the
    compiler's message, or if the machine has no compiler.

    Example:
        >>> function_of("double", "void body(const float* x, float* y, long long task) "
        ...             "{ y[task] = 2 * x[task]; }", [float32], [float32])
    """
    named = [(f"const {type_name(one)}*", f"in{k}") for k, one in enumerate(inputs)]
    named += [(f"{type_name(one)}*", f"out{k}") for k, one in enumerate(outputs)]
    named.append(("long long", "task"))
    declared = ", ".join(f"{kind} {word}" for kind, word in named)
    passed = ", ".join(word for _, word in named)
    source = (
        f"#include <cmath>\n#include <cstdint>\n#line 1 {json.dumps(name)}\n{text}\n"
        '#line 1 "the call"\n'
        f'extern "C" void {_ENTRY}({declared}) {{ body({passed}); }}\n'
    )
    return _address(name, source, (*_options(), *flags))


@functools.cache
def _address(name: str, source: str, options: tuple[str, ...]) -> int:
    compiler = find_compiler()
    if compiler is None:
        raise KernelError(
            f"{name}: there is no C++ compiler on this machine",
            fix="install g++ or clang++, or name one with CXX=; python= and llvm= need none",
        )
    words = (source, *compiler, *options, _version(compiler))
    key = "cpp-" + blake2b("\n".join(words).encode(), digest_size=20).hexdigest()
    cache = shared_cache()
    library = None if cache is None else cache.get(key)
    if library is None:
        library = _compiled(name, source, (*compiler, *options))
        if cache is not None:
            cache.put(key, library)
    loaded = _loaded(library)
    return int(ctypes.cast(getattr(loaded, _ENTRY), ctypes.c_void_p).value or 0)


def find_compiler() -> tuple[str, ...] | None:
    """The command of the C++ compiler: that in CXX, or one that is installed."""
    named = tuple(shlex.split(os.environ.get("CXX", "")))
    found = next(filter(None, map(shutil.which, _COMPILERS)), None)
    return named or (None if found is None else (found,))


def _options() -> tuple[str, ...]:
    """The options of the compiler, with the processor of METAOP_TARGET."""
    target = host_target()
    if target.name != "native":
        return (*_OPTIONS, f"-march={target.cpu}")
    return (*_OPTIONS, "-mcpu=native" if target.is_arm else "-march=native")


@functools.cache
def _version(compiler: tuple[str, ...]) -> str:
    try:
        return subprocess.run((*compiler, "--version"), capture_output=True, text=True).stdout
    except OSError as error:
        raise KernelError(f"CXX={shlex.join(compiler)}: {error}", fix="correct CXX") from None


def _compiled(name: str, source: str, command: tuple[str, ...]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path, made = Path(folder) / "body.cpp", Path(folder) / "body.so"
        path.write_text(source)
        done = subprocess.run((*command, "-o", made, path), capture_output=True, text=True)
        if done.returncode:
            raise KernelError(
                f"{name}: the C++ compiler refuses the text\n{done.stderr.rstrip()}",
                fix="correct the text that was passed as cpp=; it defines body(in0, …, out0, …, "
                "long long task)",
            )
        return made.read_bytes()


def _loaded(library: bytes) -> ctypes.CDLL:
    descriptor, path = tempfile.mkstemp(".so")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(library)
        return ctypes.CDLL(path)
    finally:
        # Some systems cannot remove the file of a loaded library; it stays in the temporary folder.
        with contextlib.suppress(OSError):
            os.unlink(path)
