"""NVRTC compiles every kernel, within its budget of registers and without spills."""

from __future__ import annotations

import pytest

from metaop.codegen.cuda import nvrtc
from metaop.codegen.cuda.emit import emit
from metaop.compiler import schedule
from metaop.errors import InternalError
from tests.cuda.cases import CASES, inputs_of, machine_of

pytestmark = pytest.mark.skipif(
    not nvrtc.is_available(), reason="NVRTC is missing: pip install 'nvidia-cuda-nvrtc==13.0.*'"
)

_ARCHITECTURES = (pytest.param("sm_80", marks=pytest.mark.nightly), "sm_90")
_REGISTERS = 64
# Two blocks of 256 threads fit a multiprocessor with 128 registers a thread, three of 128 with 168.
_MOST_REGISTERS = {"contraction": 168}
# With tensor cores, threads have as many as there are, and one block of 256 fits.
_REGISTERS_OF_TENSOR_CORES = 255
# What a block may have without asking the driver for more.
_SHARED = 48 << 10
_ELF = b"\x7fELF"


@pytest.mark.parametrize("architecture", _ARCHITECTURES)
@pytest.mark.parametrize("name", CASES)
def test_budget(name: str, architecture: str) -> None:
    outputs = CASES[name]()
    for launch in schedule(inputs_of(outputs), outputs, machine_of(name)).launches:
        text = emit(launch.nest, "kernel")
        compiled = nvrtc.compile_text(text, architecture)
        usage = compiled.usage["kernel"]
        kinds = (kind for kind in _MOST_REGISTERS if launch.nest.name.startswith(kind))
        assert compiled.cubin.startswith(_ELF)
        most = _MOST_REGISTERS.get(next(kinds, ""), _REGISTERS)
        assert usage.registers <= (_REGISTERS_OF_TENSOR_CORES if "mma.sync" in text else most)
        assert usage.spill_stores == usage.spill_loads == 0
        assert usage.shared <= _SHARED


def test_an_illegal_kernel_is_refused_with_its_text() -> None:
    with pytest.raises(InternalError, match='identifier "y" is undefined') as caught:
        nvrtc.compile_text('extern "C" __global__ void kernel(float* x)\n{ *x = y; }\n', "sm_90")
    assert "   2 { *x = y; }" in str(caught.value)


def test_usage_is_read_from_the_log() -> None:
    log = """\
ptxas info    : Compiling entry function 'first' for 'sm_90'
ptxas info    : Function properties for first
    0 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 9216 bytes smem
ptxas info    : Compiling entry function 'second' for 'sm_90'
ptxas info    : Used 8 registers
"""
    assert nvrtc.parse_usage(log) == {
        "first": nvrtc.Usage(40, 8, 12, 9216),
        "second": nvrtc.Usage(8, 0, 0, 0),
    }
