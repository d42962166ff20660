"""Contractions of 16-bit floats: what tensor cores multiply, and what is prepared for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from metaop.codegen.cuda import nvrtc
from metaop.codegen.cuda.emit import emit
from metaop.codegen.cuda.schedules import CUDA
from metaop.codegen.nest.generalise import generalise, skeleton
from metaop.compiler import schedule
from metaop.elementwise import cast
from metaop.operators import convolution
from metaop.reduce import reduce_axes
from metaop.reindex import views
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.node import Node
from tests.codegen.lowering.test_lowering import gradients, matmul
from tests.cuda import emulator
from tests.cuda.cases import inputs_of, random_values, tensor

BF16, F16, F32 = dtypes.bfloat16, dtypes.float16, dtypes.float32
# A GPU of one multiprocessor, for which small products are work enough.
SINGLE = replace(CUDA, threads=1)
needs_emulator = pytest.mark.skipif(not emulator.is_available(), reason="the emulator needs g++")


def texts_of(output: Node) -> list[str]:
    plan = schedule(inputs_of([output]), [output], SINGLE)
    return [emit(launch.nest, "kernel") for launch in plan.launches]


def uses_tensor_cores(output: Node) -> bool:
    return any("mma.sync" in text for text in texts_of(output))


def product(left: DType, right: DType, to: DType) -> Node:
    x, y = tensor(0, 40, 24, dtype=left), tensor(1, 24, 33, dtype=right)
    return matmul(cast(x, to), cast(y, to))


@pytest.mark.parametrize("dtype", (BF16, F16))
def test_factors_of_one_narrow_type_are_multiplied_as_they_are(dtype: DType) -> None:
    assert uses_tensor_cores(product(dtype, dtype, dtype))
    # The products of wider ones are those of narrow ones.
    assert uses_tensor_cores(product(dtype, dtype, F32))


@pytest.mark.parametrize("left, right", [(F32, F32), (BF16, F32), (BF16, F16)])
def test_others_are_not(left: DType, right: DType) -> None:
    assert not uses_tensor_cores(product(left, right, F32))


def test_what_is_made_wider_for_several_products_is_read_as_it_is() -> None:
    """The cotangent of a convolution of points, of which both gradients are deep sums."""

    def points(x: Node, w: Node) -> Node:
        return convolution.convolution(x, w, None, (1, 1), (0, 0), (0, 0), (1, 1), 1)

    image, weight = tensor(0, 8, 64, 28, 28, dtype=BF16), tensor(1, 64, 64, 1, 1, dtype=BF16)
    outputs = gradients(points, image, weight)
    plan = schedule(inputs_of(outputs), outputs, CUDA)
    texts = [emit(launch.nest, "kernel") for launch in plan.launches]
    kernels = [text[text.index("__global__") :] for text in texts if "mma.sync" in text]
    assert len(kernels) == 2
    assert not any("to_float(" in kernel for kernel in kernels)


@needs_emulator
@pytest.mark.parametrize("order", emulator.ORDERS)
@pytest.mark.parametrize(
    "rows, depth, columns, dtype, prepared",
    [
        (264, 200, 272, F32, 2),  # converted to bfloat16
        (263, 199, 271, BF16, 2),  # whose rows are not whole parts
        (264, 199, 272, BF16, 1),  # whose columns are, but not the depth
        (264, 200, 272, BF16, 0),
        (30, 400, 1200, F32, 1),  # of which one is read once
    ],
)
def test_factors_that_are_read_often_are_prepared(
    rows: int, depth: int, columns: int, dtype: DType, prepared: int, order: str, tmp_path: Path
) -> None:
    left, right = tensor(0, rows, depth, dtype=dtype), tensor(1, depth, columns, dtype=dtype)
    output = matmul(cast(left, BF16), cast(right, BF16))
    plan = schedule(inputs_of([output]), [output], SINGLE)
    names = [launch.nest.name.partition("_")[0] for launch in plan.launches]
    assert names == ["order"] * prepared + ["contraction"]
    device = emulator.Emulator([launch.nest for launch in plan.launches], tmp_path)
    arrays = random_values(inputs_of([output]), "product")
    (found,) = emulator.evaluate(device, plan, arrays, order)
    x, y = (array.astype(BF16.numpy).astype(np.float64) for array in arrays)
    np.testing.assert_allclose(found.astype(np.float64), x @ y, rtol=1e-2, atol=1e-2)


@needs_emulator
def test_batches_of_prepared_factors(tmp_path: Path) -> None:
    left, right = tensor(0, 2, 140, 99, dtype=F16), tensor(1, 2, 99, 150, dtype=F16)
    shape = (2, 140, 150, 99)
    a = views.broadcast_to(views.reshape(left, (2, 140, 1, 99)), shape)
    b = views.reshape(views.transpose(right, 1, 2), (2, 1, 150, 99))
    output = reduce_axes("add", a * views.broadcast_to(b, shape), [3])
    plan = schedule(inputs_of([output]), [output], SINGLE)
    assert len(plan.launches) == 3
    device = emulator.Emulator([launch.nest for launch in plan.launches], tmp_path)
    arrays = random_values(inputs_of([output]), "product")
    (found,) = emulator.evaluate(device, plan, arrays)
    x, y = (array.astype(np.float64) for array in arrays)
    np.testing.assert_allclose(found.astype(np.float64), x @ y, rtol=2e-3, atol=2e-3)


# --- the emulator sees what would go wrong on a GPU -----------------------------------------------


def run_changed(change: Callable[[str], str], folder: Path) -> None:
    output = matmul(tensor(0, 40, 200, dtype=BF16), tensor(1, 200, 40, dtype=BF16))
    plan = schedule(inputs_of([output]), [output], SINGLE)
    device = emulator.Emulator([launch.nest for launch in plan.launches], folder, change)
    arrays = random_values(inputs_of([output]), "product")
    for order in emulator.ORDERS:
        (found,) = emulator.evaluate(device, plan, arrays, order)
        x, y = (array.astype(np.float64) for array in arrays)
        np.testing.assert_allclose(found.astype(np.float64), x @ y, rtol=1e-2, atol=1e-2)


def replaced(old: str, new: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    return change


@needs_emulator
def test_gpus_without_these_instructions_compute_the_same(tmp_path: Path) -> None:
    run_changed(replaced("#define BEFORE_AMPERE 0", "#define BEFORE_AMPERE 1"), tmp_path)


@pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is missing")
@pytest.mark.parametrize("dtype", (BF16, F16))
def test_gpus_without_these_instructions_have_kernels(dtype: DType) -> None:
    for text in texts_of(product(dtype, dtype, dtype)):
        assert nvrtc.compile_text(text, "sm_75").cubin


@needs_emulator
def test_missing_barriers_are_seen(tmp_path: Path) -> None:
    with pytest.raises(emulator.KernelFault, match="a race: .* shared"):
        run_changed(replaced("__syncthreads();", ""), tmp_path)


@needs_emulator
@pytest.mark.parametrize(
    "old, new",
    [
        ("low = lane % 16", "low = lane % 8"),  # other places
        ("load_matrices<!RIGHT_ALONG>", "load_matrices<RIGHT_ALONG>"),  # not turned
        ("(chunk + line / (8 / group)) % group", "chunk % group"),  # not rotated
        ("columns[j / 2] + j % 2 * 2", "columns[j / 2]"),  # the left half twice
    ],
)
def test_other_fragments_are_seen(old: str, new: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        run_changed(replaced(old, new), tmp_path)


@needs_emulator
@pytest.mark.parametrize("sizes", [(136, 200, 264), (40, 77, 50)])
def test_sizes_may_be_arguments(sizes: tuple[int, int, int], tmp_path: Path) -> None:
    """Kernels of several sizes are one kernel whose integers are arguments."""
    rows, depth, columns = sizes
    output = matmul(tensor(0, rows, depth, dtype=F16), tensor(1, depth, columns, dtype=F16))
    plan = schedule(inputs_of([output]), [output], SINGLE)
    (launch,) = plan.launches
    _, integers = skeleton(launch.nest)
    general = generalise(launch.nest, frozenset(range(len(integers))), reals=False)
    assert len(general.arguments) > 10
    plan = plan._replace(launches=(replace(launch, nest=general),))
    device = emulator.Emulator([general], tmp_path)
    arrays = random_values(inputs_of([output]), "product")
    (found,) = emulator.evaluate(device, plan, arrays)
    x, y = (array.astype(np.float64) for array in arrays)
    np.testing.assert_allclose(found.astype(np.float64), x @ y, rtol=2e-3, atol=2e-3)
