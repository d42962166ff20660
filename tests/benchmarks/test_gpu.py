"""Predictions for GPUs: hand-computed launches, counts of loop nests, what the command prints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import metaop
from benchmarks.frameworks import Framework
from benchmarks.gpu import __main__ as command
from benchmarks.gpu import on_gpu, steps
from benchmarks.gpu.demand import declared
from benchmarks.gpu.machines import MACHINES
from benchmarks.gpu.model import Demand, predict, resident_blocks
from benchmarks.whole_steps import training
from benchmarks.workload import Prepared, Workload
from metaop.codegen.cuda import backend, nvrtc
from metaop.codegen.cuda import device as devices
from metaop.codegen.nest.ir import LoopNest
from metaop.compiler import schedule
from metaop.elementwise import apply
from metaop.execution.executor import clear_programs
from metaop.reindex import views
from metaop.tensor import devices as moving
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.node import Node
from tests.codegen.lowering.test_lowering import matmul
from tests.cuda import emulator
from tests.cuda.cases import inputs_of, tensor
from tests.cuda.emulator.runtime import EmulatedRuntime

H100, A100 = MACHINES["H100"], MACHINES["A100"]
# Nothing but what is replaced: a launch of many blocks that takes nothing.
NOTHING = Demand("nothing", 132, 132, 256, 32, 0, 0, 0, 0, 0)


@pytest.fixture(autouse=True)
def _no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registers and shared memory are those that nests declare, unless a test wants others."""
    monkeypatch.setattr(nvrtc, "is_available", lambda: False)
    steps._kernels.cache_clear()


def test_rates_are_the_published_ones() -> None:
    assert A100.flops == pytest.approx(19.5e12, rel=0.01)
    assert H100.flops == pytest.approx(67e12, rel=0.01)
    assert MACHINES["H200"]._replace(name="H100", bandwidth=H100.bandwidth) == H100


def test_each_limit() -> None:
    cases = {
        "memory": (NOTHING._replace(nbytes=3_350_000_000), 1e-3),
        "arithmetic": (NOTHING._replace(operations=132 * 256 * 1.98e6), 1e-3),
        "issue": (NOTHING._replace(instructions=132 * 4 * 1.98e6), 1e-3),
        "requests": (NOTHING._replace(sectors=132 * 4 * 1.98e6), 1e-3),
        "products": (
            NOTHING._replace(operations=989.4e9, tensor_operations=989.4e9, products="bfloat16"),
            1e-3,
        ),
        "launch": (NOTHING._replace(nbytes=3350), 1e-9),
    }
    for name, (demand, seconds) in cases.items():
        found = predict(demand, H100)
        assert found.limit == name
        assert found.seconds == pytest.approx(seconds + H100.gap)


def test_doubles_have_fewer_cores() -> None:
    demand = NOTHING._replace(operations=1e12)
    once, twice = (predict(demand._replace(is_double=d), H100).limits for d in (False, True))
    assert twice["arithmetic"] == pytest.approx(2 * once["arithmetic"])


def test_tail_and_idle_multiprocessors() -> None:
    def arithmetic(pieces: int) -> float:
        demand = NOTHING._replace(pieces=pieces, blocks=pieces, operations=1e6 * pieces)
        return predict(demand, H100).limits["arithmetic"]

    one = arithmetic(1)
    assert one == pytest.approx(1e6 / (256 * 1.98e9))
    assert arithmetic(132) == pytest.approx(one)
    assert arithmetic(133) == arithmetic(264) == pytest.approx(2 * one)
    # A multiprocessor alone takes 64 bytes a clock.
    alone = predict(NOTHING._replace(pieces=1, blocks=1, nbytes=1 << 20), H100)
    assert alone.limits["memory"] == pytest.approx((1 << 20) / (64 * 1.98e9))
    assert not alone.fills and predict(NOTHING, H100).fills


def test_occupancy_and_waves() -> None:
    # 64 registers for 256 threads: four blocks; 24 KB each: nine; 1024 threads: two.
    for changes, resident in (
        ({"registers": 64}, 4),
        ({"registers": 65}, 3),
        ({"shared": 24 << 10}, 8),
        ({"shared": 48 << 10}, 4),
        ({"threads": 1024}, 2),
        ({"threads": 1}, 32),
    ):
        demand = NOTHING._replace(blocks=660, **changes)
        assert resident_blocks(demand, H100) == resident
        warps = -(-demand.threads // 32)
        found = predict(demand, H100)
        assert found.occupancy == resident * warps / 64
        assert found.waves == pytest.approx(5 / resident)
    with pytest.raises(ValueError, match="no block of nothing fits"):
        predict(NOTHING._replace(shared=228 << 10), H100)


def test_products_at_the_rate_of_tensor_cores() -> None:
    demand = NOTHING._replace(operations=989.4e9, products="bfloat16")
    assert predict(demand, H100).tensor == pytest.approx(1e-3)
    assert predict(demand._replace(products="float32"), H100).tensor == pytest.approx(2e-3)
    assert predict(demand._replace(products=""), H100).tensor == 0


# --- what loop nests ask for ----------------------------------------------------------------------


def demand_of(output: Node) -> Demand:
    (launch,) = steps.launches_of((inputs_of([output]), [output]), H100)
    return launch.demand


def test_a_map_of_neighbours() -> None:
    found = demand_of(apply("exp", tensor(0, 1 << 16)) + 1.0)
    # Four elements at once: 16 bytes of each thread.
    assert (found.pieces, found.blocks, found.threads) == (64, 64, 256)
    assert found.nbytes == 2 * 4 * (1 << 16)
    assert found.sectors == found.nbytes / 32
    warps = (1 << 16) / 32
    # An exponential counts as twelve, then the sum, and two accesses for four elements.
    assert found.instructions == pytest.approx(warps * (12 + 1 + 2 / 4), rel=0.2)


def test_a_part_of_a_buffer() -> None:
    row = views.slice_dimension(tensor(0, 1000, 4096), 0, 5, 1)
    assert demand_of(apply("exp", row)).nbytes == 2 * 4 * 4096


def test_a_map_that_reads_columns() -> None:
    plain = demand_of(apply("exp", tensor(0, 64, 512)))
    strided = demand_of(apply("exp", views.slice_dimension(tensor(0, 64, 8192), 1, 0, 512, 16)))
    turned = demand_of(apply("exp", views.transpose(tensor(0, 64, 512), 0, 1)))
    assert plain.sectors == 2 * 64 * 512 / 8
    # Each of 32 lanes reads a sector of its own; results are neighbours.
    assert strided.sectors == 64 * 512 * (1 + 1 / 8)
    # Elements are written to shared memory and read from it besides.
    assert turned.sectors == 2 * plain.sectors


def test_a_product() -> None:
    size = 1024
    output = matmul(tensor(0, size, size), tensor(1, size, size))
    found = demand_of(output)
    # Tiles of 64: those of 128 would be 64 blocks.
    assert (found.pieces, found.threads) == (256, 128)
    assert found.operations == 2 * size**3 and found.nbytes == 3 * 4 * size**2
    multiplications = size**3 / 32
    # Thirty-two of them for three loads of shared memory, beside what fills it.
    assert 1.09 * multiplications < found.instructions < 1.5 * multiplications
    # Every block reads panels of both factors in whole sectors; shared memory gets and gives more.
    read = 256 * 128 * size * 4 / 32
    assert 4 * read < found.sectors < 5 * read
    assert found.products == "float32"
    # Two slots for two panels of 16 steps, 64 elements and 4 for the sake of banks.
    assert found.shared == 2 * 2 * 16 * 68 * 4


def test_a_product_by_tensor_cores() -> None:
    size = 1024
    factors = (tensor(slot, size, size, dtype=dtypes.bfloat16) for slot in (0, 1))
    found = demand_of(matmul(*factors))
    assert found.tensor_operations == found.operations == 2 * size**3
    products = size**3 / (16 * 8 * 16)
    # A warp with 32 by 32 sums loads four times for 2 by 4 of them, beside what fills the panels.
    assert 1.5 * products < found.instructions < 3.5 * products
    assert found.products == "bfloat16"


@pytest.mark.parametrize("size", (64, 1024))
def test_declared_memory_is_what_the_compiler_gives(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    if not nvrtc.is_available():
        pytest.skip("NVRTC is missing: pip install 'nvidia-cuda-nvrtc==13.0.*'")
    output = matmul(tensor(0, size, size), tensor(1, size, size))
    found, (nest,) = demand_of(output), nests_of(output)
    assert declared(nest).shared == found.shared
    assert 16 < found.registers <= 128


def nests_of(output: Node) -> list[LoopNest]:
    machine = replace(steps.CUDA, threads=H100.multiprocessors)
    plan = schedule(inputs_of([output]), [output], machine)
    return [launch.nest for launch in plan.launches]


# --- the command ----------------------------------------------------------------------------------


def test_a_network_is_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--predict", "LeNet, batch 64", "--machines", "H100", "A100"]) == 0
    text = capsys.readouterr().out
    assert text.count("## LeNet, batch 64, Adam on") == 2
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 2 * (2 + command._SHOWN)
    seconds = [float(line.split(": ")[1].split()[0]) for line in text.splitlines() if "##" in line]
    assert 0 < seconds[0] < seconds[1]


def test_large_launches_that_do_not_fill_are_counted() -> None:
    small = NOTHING._replace(blocks=131, nbytes=8 << 20)
    large = small._replace(nbytes=9 << 20)
    filled = large._replace(blocks=132)
    launches = [
        steps.Predicted("[1]", demand, predict(demand, H100)) for demand in (small, large, filled)
    ]
    text = "\n".join(command.prediction("net", H100, launches))
    assert "3 launches; 1 of them touch more than 8 MB" in text


def test_a_step_that_is_only_planned_computes_nothing() -> None:
    x = metaop.ones(4)
    assert x.tolist() == [1.0] * 4
    with steps.planned_only() as found:
        y = (x * 3 + 1).sum()
        steps.executor.realize(y.call)
    ((_, outputs),) = found
    assert [node.shape for node in outputs] == [()]
    assert (x + 1).tolist() == [2.0] * 4


def test_a_step_is_measured_on_a_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if not emulator.is_available():
        pytest.skip("the emulator needs g++")
    monkeypatch.setattr(on_gpu, "_WARMING", 1)
    monkeypatch.setattr(on_gpu, "_TURNS", 1)
    monkeypatch.setattr(on_gpu, "_STEPS", 2)
    runtime = EmulatedRuntime(tmp_path)
    for module in (devices, backend, moving, metaop.cuda):
        monkeypatch.setattr(module, "runtime", lambda index: runtime)
    losses = []

    def prepare(f: Framework) -> Prepared:
        steps = training(f, f.nn.Linear(3, 2), lambda model, x, y: (model(x) - y).square().mean())
        prepared = steps(f.normal(4, 3), f.normal(4, 2))

        def run() -> metaop.Tensor:
            loss = prepared.run()
            assert loss.device == "cuda:0"
            losses.append(loss)
            return loss

        return Prepared(run)

    clear_programs()
    step = Workload("linear", "training", prepare, 0, 0, 0)
    found = on_gpu.measured(step, on_gpu.OnGpu([]))
    values = [loss.item() for loss in losses]
    clear_programs()
    assert found.seconds > 0 and found.launches > 2
    assert found.observed[0] == values[0] and len(values) == 5
    assert values == sorted(values, reverse=True) and values[-1] < values[0]


@pytest.mark.skipif(metaop.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_nothing_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["MLP"]) == 1
    assert "no GPU that cupy can use was found" in capsys.readouterr().err
