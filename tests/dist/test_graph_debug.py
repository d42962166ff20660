"""`nn.Graph.debug`: every level says what the one before says, and what is its own."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

import metaop
from metaop import nn
from metaop.dist.placement import Placement
from metaop.dist.sbp import BROADCAST, Split
from metaop.distributed import distribute_tensor
from metaop.errors import ArgumentError
from tests.dist.jobs import needs_mpi, run

ROW = Placement("cpu", range(2), simulate=True)


class Step(nn.Graph):
    def __init__(self, model: nn.Module, micro_batches: int = 1) -> None:
        super().__init__()
        self.model = model
        self.config.set_gradient_accumulation_steps(micro_batches)
        self.add_optimizer(metaop.optim.SGD(model.parameters(), lr=0.1))

    def build(self, x: metaop.Tensor) -> metaop.Tensor:
        loss = self.model(x).square().mean()
        loss.backward()
        return loss


def printed(
    level: int, placement: Placement | None, capfd: pytest.CaptureFixture[str], *more: int
) -> tuple[list[str], float]:
    """What the first of two steps prints, without its time, and the loss of the second."""
    metaop.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 8)), metaop.randn(32, 64)
    if placement is not None:
        model.to_global(placement, BROADCAST)
        x = distribute_tensor(x, placement, Split(0))
    graph = Step(model, *more)
    graph.debug(level)
    graph(x)
    text = capfd.readouterr().err
    loss = graph(x).item()
    assert capfd.readouterr().err == ""
    return re.sub(r"\d+\.\d+ s$", "… s", text, flags=re.MULTILINE).splitlines(), loss


def contains(longer: list[str], shorter: list[str]) -> bool:
    """Whether all lines of one are lines of the other, in their order."""
    rest = iter(longer)
    return all(line in rest for line in shorter)


@pytest.mark.parametrize("placement", [None, ROW], ids=["one", "two ranks"])
@pytest.mark.parametrize("micro_batches", [1, 2])
def test_every_level_says_more(
    placement: Placement | None, micro_batches: int, capfd: pytest.CaptureFixture[str]
) -> None:
    levels = [printed(level, placement, capfd, micro_batches) for level in (-1, 0, 1, 2, 3)]
    assert len({loss for _, loss in levels}) == 1
    texts = [lines for lines, _ in levels]
    assert not texts[0]
    for less, more in pairwise(texts):
        assert len(less) < len(more)
        assert contains(more, less)
    assert texts[1][0] == "Step: building starts"
    assert texts[1][-1] == "Step: building ended after … s"


def test_a_level_says_what_is_its_own_on_one_device(capfd: pytest.CaptureFixture[str]) -> None:
    (_, modules, operators, programs) = (printed(k, None, capfd)[0] for k in (0, 1, 2, 3))
    where = "on cpu"
    assert f"Step: module model.2: float32[32, 96] {where} -> float32[32, 8] {where}" in modules
    sources = f"float32[32, 64] {where}, float32[96, 64] {where}, float32[96] {where}"
    line = f"Step:   operator linear in model.0: ({sources}) -> float32[32, 96] {where}"
    assert line in operators
    assert any("operator linear.gradient: " in line for line in operators)
    assert any(re.fullmatch(r"Step:   \d+ kernels, temporaries of \d+ bytes", x) for x in programs)


def test_a_level_says_how_global_tensors_lie(capfd: pytest.CaptureFixture[str]) -> None:
    (_, modules, operators, programs) = (printed(k, ROW, capfd)[0] for k in (0, 1, 2, 3))
    line = f"Step: module model.0: float32[32, 64] on {ROW} S0 -> float32[32, 96] on {ROW} S0"
    assert line in modules
    weight = f"float32[96, 64] on {ROW} B, float32[96] on {ROW} B"
    assert (
        f"Step:   operator linear in model.0: (float32[32, 64] on {ROW} S0, {weight}) -> "
        f"float32[32, 96] on {ROW} S0" in operators
    )
    text = "\n".join(programs)
    for rank in range(2):
        assert re.search(rf"rank {rank}: [1-9]\d* kernels, temporaries of \d+ bytes", text)
    moves = re.findall(r"moves \S+ -> \S+ +float32\[(\d+), (\d+)\] +all-gather, (\d+) bytes", text)
    assert moves
    for rows, columns, sent in moves:
        assert int(sent) == 4 * int(rows) * int(columns) // 2
    total = sum(map(int, re.findall(r", (\d+) bytes$", text, re.MULTILINE)))
    assert f"its first rank sends {total} bytes" in text


def test_an_error_in_build_comes_after_the_modules_before_it(
    capfd: pytest.CaptureFixture[str],
) -> None:
    graph = Step(nn.Sequential(nn.Linear(6, 4), nn.Linear(5, 4)))
    graph.debug(1)
    with pytest.raises(metaop.errors.ShapeError):
        graph(metaop.ones(2, 6))
    text = capfd.readouterr().err
    assert "module model.0: float32[2, 6] on cpu -> float32[2, 4] on cpu" in text
    assert "building failed" in text


def test_levels_and_ranks_that_there_are_not_are_refused() -> None:
    graph = Step(nn.Linear(2, 2))
    for level in (-2, 4):
        with pytest.raises(ArgumentError, match=f"debug level {level}"):
            graph.debug(level)
    with pytest.raises(ArgumentError, match="debug on ranks"):
        graph.debug(0, ranks=[0, -3])


@needs_mpi
@pytest.mark.mpi
def test_the_ranks_that_were_chosen_print() -> None:
    done = run("graph_debug.py", 2)
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        assert f"rank {rank} has said what it should" in done.stdout
