"""The driver: which passes run, what is kept of them, and what METAOP_DUMP writes."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import metaop
from metaop import compiler
from metaop.codegen.cuda.schedules import CUDA
from metaop.codegen.nest.verify import VerificationError
from metaop.codegen.reference import ReferenceProgram
from metaop.codegen.schedule import PLAIN_MACHINE, Schedule
from metaop.compiler import PASSES, compile_subgraph, schedule
from metaop.elementwise import apply
from metaop.execution.executor import clear_programs, pending_subgraph
from metaop.reduce import reduce_axes
from metaop.unified_graph.dtype import float32
from metaop.unified_graph.node import Node, input_node

NAMES = [one.name for one in PASSES]


def softmax() -> tuple[list[Node], list[Node]]:
    x = input_node(0, (40, 30), float32)
    powers = apply("exp", x)
    sums = reduce_axes("add", powers, (1,))
    return [x], [powers, sums]


def watched(
    monkeypatch: pytest.MonkeyPatch, saw: Callable[[str, Schedule, Schedule], Schedule]
) -> None:
    """Lets `saw` look at, and change, what each pass makes."""

    def watch(one: compiler.Pass) -> compiler.Pass:
        return one._replace(function=lambda before: saw(one.name, before, one.function(before)))

    monkeypatch.setattr(compiler, "PASSES", tuple(map(watch, PASSES)))


def pending() -> metaop.Tensor:
    return metaop.softmax(metaop.from_numpy(np.ones((4, 6), np.float32)), 1)


@pytest.mark.parametrize("machine", [PLAIN_MACHINE, CUDA], ids=lambda machine: machine.backend)
def test_every_pass_runs_once_on_what_the_one_before_has_made(
    machine, monkeypatch: pytest.MonkeyPatch
) -> None:  # type: ignore[no-untyped-def]
    ran: list[str] = []
    last: list[Schedule] = []

    def saw(name: str, before: Schedule, after: Schedule) -> Schedule:
        assert not last or before is last[-1]
        assert before.machine is after.machine is machine
        ran.append(name)
        last.append(after)
        return after

    watched(monkeypatch, saw)
    assert schedule(*softmax(), machine) is last[-1]
    assert ran == NAMES


def test_no_pass_runs_for_the_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    def saw(name: str, before: Schedule, after: Schedule) -> Schedule:
        raise AssertionError(name)

    watched(monkeypatch, saw)
    monkeypatch.setenv("METAOP_BACKEND", "reference")
    assert isinstance(compile_subgraph(pending_subgraph([pending().call])), ReferenceProgram)


def test_a_run_forgets_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    def alive() -> list[Schedule]:
        # Its type: other packages' objects warn when `isinstance` asks for their class.
        return [one for one in gc.get_objects() if type(one) is Schedule]

    gc.collect()
    # Held here, so that those of other tests stay as many as they are.
    others = alive()
    found: list[int] = []

    def saw(name: str, before: Schedule, after: Schedule) -> Schedule:
        found.append(len(alive()) - len(others))
        return after

    watched(monkeypatch, saw)
    result = schedule(*softmax())
    assert len(found) == len(PASSES) and max(found) <= 3
    assert len(alive()) == len(others) + 1 and result.launches


def test_a_pass_that_makes_a_wrong_program_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def saw(name: str, before: Schedule, after: Schedule) -> Schedule:
        return after._replace(launches=()) if name == "lower" else after

    watched(monkeypatch, saw)
    monkeypatch.setenv("METAOP_VERIFY", "1")
    with pytest.raises(VerificationError, match="no kernel writes element 0"):
        schedule(*softmax())


def test_every_stage_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAOP_DUMP", str(tmp_path / "new"))
    graph, kernels, text = (
        show(pending())
        for show in (metaop.inspect.graph, metaop.inspect.kernels, metaop.inspect.llvm)
    )
    for _ in range(2):
        clear_programs()
        pending().numpy()
    first, second = sorted((tmp_path / "new").iterdir())
    assert [first.name, second.name] == ["program-001", "program-002"]
    files = [f"{k:02}-{name}.txt" for k, name in enumerate(["expand", *NAMES, "source"])]
    for folder in (first, second):
        assert sorted(path.name for path in folder.iterdir()) == files
        assert (folder / files[0]).read_text().endswith(f"\n\n{graph}")
        assert (folder / files[-2]).read_text().endswith(f"\n\n{kernels}")
        assert (folder / files[-1]).read_text() == text
    for one, file in zip(PASSES, files[1:]):
        assert (first / file).read_text().startswith(f"{one.name}: {one.why}\n\n")


def test_symbols_are_arguments_in_what_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("METAOP_DUMP", str(tmp_path))
    clear_programs()
    for size in (40, 52, 61):
        metaop.nn.functional.adaptive_avg_pool2d(metaop.ones(2, 3, size, size), 7).numpy()
    exact, general = sorted(tmp_path.iterdir())
    texts = [next(folder.glob("*-source.txt")).read_text() for folder in (exact, general)]
    assert all("define void @kernel" in text and "s0" not in text for text in texts)
    assert "%a0" not in texts[0] and "%a0" in texts[1]


def test_what_a_failing_pass_was_given_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def saw(name: str, before: Schedule, after: Schedule) -> Schedule:
        if name == "group":
            raise KeyError("a fault of the pass")
        return after

    watched(monkeypatch, saw)
    monkeypatch.setenv("METAOP_DUMP", str(tmp_path))
    with pytest.raises(KeyError, match="a fault of the pass"):
        schedule(*softmax())
    before = NAMES[: NAMES.index("group")]
    (folder,) = tmp_path.iterdir()
    names = [path.name for path in sorted(folder.iterdir())]
    assert names == [f"{k:02}-{name}.txt" for k, name in enumerate(["expand", *before])]


def test_the_oracle_writes_its_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAOP_BACKEND", "reference")
    monkeypatch.setenv("METAOP_DUMP", str(tmp_path))
    compile_subgraph(pending_subgraph([pending().call]))
    assert [path.name for path in tmp_path.glob("*/*")] == ["00-expand.txt"]


def test_decisions_of_grouping_have_reasons(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, (powers, sums) = softmax()
    columns = reduce_axes("add", powers, (0,))
    decisions = schedule(inputs, [powers, sums, columns]).decisions
    found = {decision.root: decision for decision in decisions}
    assert found[sums].kernel is found[powers].kernel and found[sums].refused is None
    apart = [one.refused for one in decisions if one.root is columns]
    assert apart == ["it iterates over another box, or reduces other axes", None]
    assert not capsys.readouterr().err
    monkeypatch.setenv("METAOP_EXPLAIN", "1")
    schedule(inputs, [powers, sums, columns])
    printed = capsys.readouterr().err.splitlines()
    assert sum(line.startswith("[fusion]") for line in printed) == len(decisions)
    assert sum(line.startswith("[fusion] apart: ") and apart[0] in line for line in printed) == 1
