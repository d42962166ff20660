"""Random training programs against PyTorch, and patterns that once trained wrongly.

`METAOP_FUZZ_COUNT` and `METAOP_FUZZ_SEED` are those of the random programs. A failure prints a
smaller program; `python -m tests.fuzz.training --seed S --count 1 --minimise` makes it again, with
`--schedules` under the thresholds that `schedules.py` drew for it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from tests.cuda import emulator
from tests.fuzz.test_programs import COUNT, FIRST_SEED

pytest.importorskip("torch")

from tests.fuzz.training.catalogue import ENTRIES
from tests.fuzz.training.compare import failure, truth
from tests.fuzz.training.generator import Generator
from tests.fuzz.training.loops import (
    BACKWARDS,
    BETWEEN,
    CLIPS,
    LOSSES,
    OPTIMIZERS,
    PREPARATIONS,
    SCHEDULERS,
    TERMS,
)
from tests.fuzz.training.program import Operation, Program, Unfit, text
from tests.fuzz.training.schedules import SETTINGS, draw
from tests.fuzz.training.worker import DEVICE, Worker


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    found = Worker({})
    yield found
    found.close()


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + COUNT))
def test_random_training(seed: int, worker: Worker) -> None:
    check(Generator(seed).program(), worker)


@pytest.fixture(scope="module")
def changing() -> Iterator[Worker]:
    """A worker whose compiler changes its thresholds."""
    found = Worker(SETTINGS)
    yield found
    found.close()


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + COUNT // 10))
def test_random_schedules(seed: int, changing: Worker) -> None:
    changing.changes = draw(np.random.default_rng(seed))
    check(Generator(seed).program(), changing)


@pytest.fixture(scope="module")
def on_a_gpu() -> Iterator[Worker]:
    """A worker with an emulated GPU: g++ compiles each kernel, so that few programs run."""
    if not emulator.is_available():
        pytest.skip("the emulator needs g++")
    found = Worker({DEVICE: "cuda"})
    yield found
    found.close()


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + COUNT // 100))
def test_random_training_on_a_gpu(seed: int, on_a_gpu: Worker) -> None:
    check(Generator(seed).program(), on_a_gpu)


KERNELS_OF_A_PRODUCT = """
def run(T, seed=0):
    from metaop.codegen.llvm.backend import LLVM
    from metaop.compiler import schedule
    from metaop.execution.executor import pending_subgraph

    product = T.rand(4, 8) @ T.rand(8, 6)
    graph = pending_subgraph([product.call]).expand()
    launches = schedule(*graph, LLVM.machine(0)).launches
    return {launch.nest.name: launch.nest.grain for launch in launches}
"""


def test_changed_thresholds_change_schedules(changing: Worker) -> None:
    found = []
    small = {
        "fusion.recognise.LEAST_WORK": 1,
        "codegen.lowering.contractions.tiling.SHORTEST_RUN": 1,
    }
    for changes in ({}, small, {"processor.chunk_work": 16}, {}):
        changing.changes = changes
        found.append(changing.run(KERNELS_OF_A_PRODUCT))
    assert found[0] == found[3] and found[0] not in found[1:3], found


def check(program: Program, worker: Worker) -> None:
    written = text(program)
    found = failure(written, worker)
    assert found is None, f"{found.kind}\n{found.report}\n{written}"


def alone(name: str) -> Iterator[Program]:
    """Programs with an operation behind a layer, for every rank that it takes."""
    entry = ENTRIES[name]
    for rank in entry.ranks:
        shape = {2: (4,), 3: (4, 4), 4: (4, 4, 4), 5: (1, 4, 2, 4)}[rank]
        for choices in itertools.product(*entry.options.values()):
            options = tuple(zip(entry.options, choices))
            layer = Operation("Weight", (("out", 4),))
            yield Program(shape, (layer, Operation(name, options)), "power", SGD, batches=(2,))


def test_pytorch_runs_every_row() -> None:
    """A row that PyTorch refuses would never be drawn."""
    plain = next(alone("tanh"))
    programs: dict[tuple[str, str], Iterable[Program]] = {
        (name, row): [replace(plain, **{name: row})]
        for name, rows in (
            *(("term", TERMS.values()), ("backward", BACKWARDS), ("prepare", PREPARATIONS)),
            *(("between", BETWEEN), ("clip", CLIPS), ("optimizer", OPTIMIZERS)),
            *(("scheduler", SCHEDULERS), ("loss", LOSSES)),
        )
        for row in rows
    } | {("operation", name): alone(name) for name in ENTRIES}
    assert not [row for row, tried in programs.items() if not any(map(is_drawn, tried))]


def is_drawn(program: Program) -> bool:
    try:
        return truth(text(program), 0) is not None
    except Unfit:
        return False


def convolution(out: int, kernel: int, stride: int = 1, padding: int = 0) -> Operation:
    window = {"kernel": kernel, "stride": stride, "padding": padding, "dilation": 1, "groups": 1}
    return Operation("Conv2d", tuple({"out": out, **window, "bias": True, "mode": "zeros"}.items()))


def fire(squeezed: int, wide: int) -> tuple[Operation, ...]:
    """The module of SqueezeNet."""
    relu = Operation("relu")
    near = (convolution(wide, 1), relu)
    far = (convolution(wide, 3, padding=1), relu)
    return (
        convolution(squeezed, 1),
        relu,
        Operation("branch", text="cat", branches=(near, far)),
    )


SGD, ADAM = "SGD(parameters, lr=0.1)", "Adam(parameters, lr=0.02, eps=1e-2)"
PATTERNS = {
    "the flat result of a function whose gradient uses it": Program(
        (5,), (Operation("Weight", (("out", 4),)), Operation("tanh")), "mse", SGD,
        flat=True,
    ),
    **{
        f"windows wider than {high} x {wide}": Program(
            (8, high, wide), (convolution(1, 3, padding=1),), "power", SGD,
            batches=(1, 1),
        )
        for high, wide in ((1, 1), (2, 2), (1, 3))
    },
    **{
        f"Fire modules on {high} x {wide}": Program(
            (64, high, wide), fire(64, 64), "mse", ADAM, batches=(n, n)
        )
        for high, wide, n in ((1, 1, 2), (2, 1, 8), (1, 3, 1), (5, 1, 2))
    },
    **{
        f"windows of {kernel} in steps of {stride} on {size} pixels": Program(
            (64, size, size),
            (convolution(64, 1), Operation("tanh"), convolution(64, kernel, stride)),
            "power", SGD, batches=(2, 2), input_gradient=True,
        )
        for kernel, stride, size in ((1, 2, 6), (2, 3, 7), (2, 2, 7), (1, 3, 5))
    },
    "gathered channels behind a norm of their neighbours": Program(
        (2, 2, 1),
        (Operation("indexed"), Operation("LocalResponseNorm", (("size", 2),)), convolution(3, 1)),
        "power", SGD, batches=(1, 1),
    ),
    "a read between the passes of a second gradient": Program(
        (3,),
        (Operation("LayerNormAll"), Operation("read", text="float(x.sum())")),
        "mse", SGD, term=TERMS["slope of a parameter"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PATTERNS)
def test_pattern(name: str, worker: Worker) -> None:
    program = PATTERNS[name]
    assert truth(text(program), 0) is not None, "PyTorch refuses it"
    check(program, worker)
