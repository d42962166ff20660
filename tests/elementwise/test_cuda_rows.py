"""The CUDA expression of every row, compiled as C++ for the host, against the NumPy reference."""

from __future__ import annotations

import ctypes
import shutil
import subprocess

import pytest

from metaop.codegen.cuda.types import compute_type
from metaop.elementwise.functions import CUDA_HELPERS, FUNCTIONS
from tests.elementwise import kernels
from tests.elementwise.test_compiled import COUNT, ROWS, accepted, check, operands_of

# The C++ library has no erfinv; the device has.
_ROWS = [name for name in ROWS if name != "erfinv"]
_PRELUDE = """\
#include <cmath>
using namespace std;
#define __device__
static int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
static long long __double_as_longlong(double x) { return __builtin_bit_cast(long long, x); }
"""


def _types(name):
    """The types that are their own compute type; the emitter widens the others."""
    return [dtype for dtype in accepted(name) if dtype.compute is dtype]


def _function(name, dtype):
    operands = kernels.operand_types(name, dtype)
    parameters = [f"const {compute_type(kind)}* x{k}" for k, kind in enumerate(operands)]
    loads = " ".join(
        f"const {compute_type(kind)} a{k} = x{k}[i];" for k, kind in enumerate(operands)
    )
    expression = FUNCTIONS[name].cuda.format(*(f"a{k}" for k in range(len(operands))))
    result = compute_type(kernels.result_type(name, dtype))
    head = f"void {name}_{dtype.name}({result}* y, {', '.join(parameters)}, long long n)"
    loop = f"for (long long i = 0; i < n; ++i) {{ {loads} y[i] = {expression}; }}"
    return f'extern "C" {head}\n{{ {loop} }}'


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    folder = tmp_path_factory.mktemp("rows")
    functions = [_function(name, dtype) for name in _ROWS for dtype in _types(name)]
    source = folder / "rows.cpp"
    source.write_text("\n".join([_PRELUDE, *CUDA_HELPERS.values(), *functions]))
    options = ["-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-ffp-contract=off"]
    subprocess.run([compiler, *options, "-o", folder / "rows.so", source], check=True)
    return ctypes.CDLL(str(folder / "rows.so"))


@pytest.mark.parametrize("name", _ROWS)
def test_matches_reference(name, library):
    for dtype in _types(name):
        operands = operands_of(name, dtype)
        function = getattr(library, f"{name}_{dtype.name}")
        address = ctypes.cast(function, ctypes.c_void_p).value
        check(name, dtype, operands, kernels.run(address, name, dtype, operands, (COUNT,)))
