"""The CUDA text of kernels: NVRTC compiles it, and run on the CPU it computes what NumPy does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.codegen.cuda import nvrtc
from metaop.codegen.cuda.emit import emit
from metaop.codegen.cuda.schedules import CUDA
from metaop.codegen.schedule import Schedule
from metaop.compiler import schedule
from metaop.errors import KernelError
from metaop.kernels import copy, scratch, task
from tests.cuda import emulator
from tests.kernels.programs import PROGRAMS, as_tensors, assert_means, operands_of


def plan_of(name: str) -> Schedule:
    """The launches of a program on a GPU."""
    call = PROGRAMS[name].kernel._recorded(as_tensors(operands_of(name)))
    signature = call.signature
    assert signature is not None
    return schedule(signature.inputs, signature.outputs, CUDA)


@pytest.mark.skipif(not nvrtc.is_available(), reason="pip install 'nvidia-cuda-nvrtc==13.0.*'")
@pytest.mark.parametrize("name", PROGRAMS)
def test_nvrtc_compiles_it(name: str) -> None:
    for launch in plan_of(name).launches:
        usage = nvrtc.compile_text(emit(launch.nest, "kernel"), "sm_90").usage["kernel"]
        assert usage.spill_stores == usage.spill_loads == 0


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> emulator.Emulator:
    if not emulator.is_available():
        pytest.skip("the emulator needs g++")
    nests = [launch.nest for name in PROGRAMS for launch in plan_of(name).launches]
    return emulator.Emulator(nests, Path(tmp_path_factory.mktemp("emulated")))


@pytest.mark.parametrize("order", emulator.ORDERS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_emulated(name: str, order: str, device: emulator.Emulator) -> None:
    program, operands = PROGRAMS[name], operands_of(name)
    arrays = [one for one in operands if isinstance(one, np.ndarray)]
    numbers = [np.array(one) for one in operands if isinstance(one, float)]
    results = emulator.evaluate(device, plan_of(name), [*arrays, *numbers], order)
    tensors = tuple(metaop.tensor(one) for one in results)
    assert_means(tensors if len(tensors) > 1 else tensors[0], program.meaning(*operands))


@metaop.kernel(tasks=lambda x: x.shape[0], outputs=lambda x: x)
def wide_rows(x: Any, y: Any) -> None:
    line = scratch(x.shape[1], x.dtype)
    copy(line, x[task()])
    copy(y[task()], line)


def test_scratch_memory_beyond_that_of_a_block_is_refused() -> None:
    call = wide_rows._recorded([metaop.empty(2, 20000)])
    assert call.signature is not None
    with pytest.raises(KernelError, match="80000 bytes of scratch memory"):
        schedule(call.signature.inputs, call.signature.outputs, CUDA)
