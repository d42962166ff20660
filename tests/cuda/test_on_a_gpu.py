"""The same graphs and kernels as on the emulator, on a GPU that is there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import metaop
from metaop.codegen.cuda.device import runtime
from metaop.codegen.cuda.program import CudaProgram
from metaop.codegen.cuda.runtime import Runtime
from metaop.codegen.memory.buffers import Buffer
from metaop.compiler import schedule
from metaop.unified_graph.node import Node
from tests.cuda.cases import CASES, inputs_of, machine_of
from tests.cuda.test_emulated import TOLERANCE, assert_close, expected_values, values_by_slot
from tests.kernels.programs import PROGRAMS, as_tensors, assert_means, operands_of

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not metaop.cuda.is_available(), reason="no GPU that cupy can use"),
]


@pytest.fixture(scope="module")
def device() -> Runtime:
    return runtime(0)


def computed(
    inputs: list[Node],
    outputs: list[Node],
    arrays: Sequence[np.ndarray],
    device: Runtime,
    name: str = "",
) -> list[np.ndarray]:
    """The values of a graph, from a program of its own."""
    program = CudaProgram(schedule(inputs, outputs, machine_of(name)), device)
    results = program.run([Buffer.from_numpy(array) for array in arrays])
    return [x.view(node.shape, node.dtype.numpy) for x, node in zip(results, outputs)]


@pytest.mark.parametrize("name", CASES)
def test_value(name: str, device: Runtime) -> None:
    outputs = CASES[name]()
    values = values_by_slot(outputs, name)
    expected = expected_values(name)
    inputs = inputs_of(outputs)
    given = [values[node.op.slot] for node in inputs]  # type: ignore[union-attr]
    for found, wanted in zip(computed(inputs, outputs, given, device, name), expected, strict=True):
        if wanted.dtype.kind == "f" and wanted.dtype.itemsize >= 4:
            # Fused multiplications and additions round otherwise: relative to what cancels.
            largest = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=1.0))
            bound = TOLERANCE[wanted.dtype.name]
            np.testing.assert_allclose(found, wanted, rtol=bound, atol=bound * largest)
        else:
            assert_close(found, wanted)


@pytest.mark.parametrize("name", PROGRAMS)
def test_custom_kernel(name: str) -> None:
    program, operands = PROGRAMS[name], operands_of(name)
    moved = [x.to("cuda") if isinstance(x, metaop.Tensor) else x for x in as_tensors(operands)]
    result = program.kernel(*moved)
    here = tuple(x.cpu() for x in result) if isinstance(result, tuple) else result.cpu()
    assert_means(here, program.meaning(*operands))
