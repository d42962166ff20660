"""Gradients of strided convolutions on a GPU multiply nothing that is zero anyway."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from metaop.codegen.cuda.schedules import CUDA
from metaop.codegen.schedule import Schedule
from metaop.compiler import schedule
from metaop.elementwise.meta_op import apply
from metaop.operators.convolution import transposed_convolution
from metaop.reindex import views
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType
from tests.cuda import emulator
from tests.cuda.cases import inputs_of, tensor

# A GPU of one multiprocessor, for which small graphs are work enough.
SINGLE = replace(CUDA, threads=1)


class Case(NamedTuple):
    """The gradient of a convolution with a stride by its input, and how many contractions
    it becomes."""

    batch: int
    channels: int
    outputs: int
    image: int
    window: int
    stride: int
    padding: int
    extra: int
    contractions: int
    is_fused: bool = False
    dtype: DType = dtypes.float32


CASES = {
    "windows of one": Case(2, 128, 72, 12, 1, 2, 0, 0, 1),
    "one with more behind": Case(2, 128, 72, 12, 1, 2, 0, 1, 4, True),
    "windows of three": Case(3, 128, 70, 11, 3, 2, 1, 0, 4),
    "three with more behind": Case(3, 128, 70, 11, 3, 2, 1, 1, 4, True),
    "steps of three": Case(2, 96, 40, 9, 5, 3, 1, 0, 9),
    "float64": Case(3, 96, 66, 10, 3, 2, 0, 0, 4, dtype=dtypes.float64),
    "bfloat16": Case(4, 256, 72, 16, 1, 2, 0, 0, 1, dtype=dtypes.bfloat16),
    "too small": Case(2, 16, 16, 8, 3, 2, 1, 0, 1),
}
_TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "bfloat16": 1e-2}


def plan_of(case: Case) -> Schedule:
    x = tensor(0, case.batch, case.channels, case.image, case.image, dtype=case.dtype)
    w = tensor(1, case.channels, case.outputs, case.window, case.window, dtype=case.dtype)
    pairs = [(n, n) for n in (case.stride, case.padding, case.extra, 1)]
    y = transposed_convolution(x, w, None, *pairs, 1)
    outputs = [y]
    if case.is_fused:
        image = case.image, case.stride, case.image, case.stride
        residues = views.reshape(y, (case.batch, case.outputs, *image))
        outputs = [apply("exp", residues * 0.01)]
    return schedule(inputs_of(outputs), outputs, SINGLE)


@pytest.fixture(scope="module")
def plans() -> dict[str, Schedule]:
    return {name: plan_of(case) for name, case in CASES.items()}


@pytest.fixture(scope="module")
def device(plans: dict[str, Schedule], tmp_path_factory: pytest.TempPathFactory) -> object:
    if not emulator.is_available():
        pytest.skip("the emulator needs g++")
    nests = [launch.nest for plan in plans.values() for launch in plan.launches]
    return emulator.Emulator(nests, Path(tmp_path_factory.mktemp("emulated")))


@pytest.mark.parametrize("name", CASES)
def test_launches(name: str, plans: dict[str, Schedule]) -> None:
    """Each residue has a launch where that is less work; residues without windows are filled."""
    names = [launch.nest.name for launch in plans[name].launches]
    assert sum(name.startswith("contraction") for name in names) == CASES[name].contractions
    assert names.count("fill") == (CASES[name].contractions == 1 and CASES[name].window == 1)


@pytest.mark.parametrize("order", emulator.ORDERS)
@pytest.mark.parametrize("name", CASES)
def test_value(
    name: str, order: str, plans: dict[str, Schedule], device: emulator.Emulator
) -> None:
    torch = pytest.importorskip("torch")
    case, plan, generator = CASES[name], plans[name], np.random.default_rng(len(name))
    by_slot = [np.zeros(0)] * 2
    for node in plan.inputs:
        value = generator.standard_normal(node.shape).astype(node.dtype.numpy)
        by_slot[node.op.slot] = value  # type: ignore[attr-defined]
    (found,) = emulator.evaluate(device, plan, by_slot, order)
    x, w = (torch.from_numpy(value.astype(np.float64)) for value in by_slot)
    steps = case.stride, case.padding, case.extra
    wanted = torch.nn.functional.conv_transpose2d(x, w, None, *steps).numpy()
    wanted = np.exp(wanted * 0.01).reshape(found.shape) if case.is_fused else wanted
    scale = np.abs(wanted).max()
    assert np.abs(found.astype(np.float64) - wanted).max() <= _TOLERANCE[case.dtype.name] * scale
