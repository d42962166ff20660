"""The doctor: every finding is found where it is, and nowhere else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import metaop
from metaop import nn, optim
from metaop.codegen.backend import observers
from metaop.codegen.estimate import KernelWork
from metaop.data import DataLoader, loader
from metaop.execution import executor
from metaop.inspect import machine_checks, program_checks
from metaop.inspect.by_line import Place
from metaop.inspect.findings import Check, findings_of
from metaop.inspect.limits import Limits
from metaop.inspect.machine_checks import MachineFacts
from metaop.inspect.program_checks import Compilation, KernelTime, ProgramFacts

HERE = Place("train.py", "step", 7)


def found(program: Callable[[], Any]) -> dict[str, str]:
    """The findings in a program and their texts, one of each kind."""
    with metaop.inspect.doctor() as examination:
        program()
    return {finding.name: finding.text for finding in examination.program_findings()}


def train(
    steps: int, read_early: bool = False, parameters: Any = None, net: nn.Module | None = None
) -> None:
    net = net or nn.Linear(4, 3)
    optimizer = optim.SGD(parameters or net.parameters(), lr=0.1)
    x = metaop.ones(5, 4)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        if read_early:
            loss.item()
        loss.backward()
        optimizer.step()
        loss.item()


# --- programs ---------------------------------------------------------------------------------


def test_values_read_between_forward_and_backward() -> None:
    text = found(lambda: train(12, read_early=True))["values read in the middle of a step"]
    assert text.startswith("12 times ") and "test_doctor.py" in text and " in train " in text
    assert "values read in the middle of a step" not in found(lambda: train(12))


def test_a_value_that_no_backward_pass_follows_cuts_nothing() -> None:
    net, x = nn.Linear(4, 3), metaop.ones(5, 4)

    def evaluate() -> None:
        for _ in range(12):
            net(x).sum().item()

    assert "values read in the middle of a step" not in found(evaluate)


def test_ever_new_programs() -> None:
    def longer(lengths: list[int]) -> None:
        executor.clear_programs()
        for length in lengths:
            x = metaop.ones(3)
            for _ in range(length):
                x = x.sin()
            x.numpy()

    text = found(lambda: longer([1, 2, 3, 4, 5, 6]))["repeated compilation"]
    assert text.startswith("6 programs ") and text.endswith("6 operators, then 7")
    assert "in longer" in text
    assert "repeated compilation" not in found(lambda: longer([3] * 6))


def test_sizes_that_one_program_serves_are_no_new_programs() -> None:
    def varied(sizes: range) -> None:
        executor.clear_programs()
        for size in sizes:
            metaop.ones(size, 3).sin().sum(1).numpy()

    assert "repeated compilation" not in found(lambda: varied(range(5, 15)))


def test_what_changed_between_programs() -> None:
    first = Compilation(HERE, 0.1, ("add",), ((3, 4), (4,)))
    assert program_checks._change(first, first._replace(shapes=((3, 5), (4,)))) == (
        "input 0 has shape [3, 4], then [3, 5]"
    )
    assert program_checks._change(first, first._replace(shapes=((3, 4),))) == "2 inputs, then 1"
    assert "other attributes" in program_checks._change(first, first)


def test_elements_read_one_by_one() -> None:
    x = metaop.rand(250)
    x.numpy()

    def one_by_one() -> None:
        assert len([(x[k] * 2).item() for k in range(250)]) == 250

    text = found(one_by_one)["elements read one by one"]
    assert text.startswith("250 times ") and "test_doctor.py" in text
    assert "elements read one by one" not in found(lambda: x.tolist())


def test_a_python_loop_over_elements() -> None:
    x = metaop.rand(250)
    x.numpy()

    def loop() -> None:
        total = x[0]
        for _ in range(220):
            total = total * 0.5
        total.item()

    text = found(loop)["Python loop over elements"]
    assert "test_doctor.py" in text and " 220 operators" in text
    assert "Python loop over elements" not in found(lambda: (x * 2).sum().item())


def test_float64_by_accident() -> None:
    x, double = metaop.rand(5), metaop.from_numpy(np.ones(5))
    text = found(lambda: (x * double).sum().item())["float64"]
    assert "test_float64_by_accident" in text or "lambda" in text
    assert "float64" not in found(lambda: (x * 2).sum().item())
    assert "float64" not in found(lambda: (double * 2).sum().item())


def test_gradients_that_no_optimizer_has() -> None:
    other = nn.Linear(2, 2)
    other(metaop.ones(1, 2)).sum().backward()  # before the block, and no part of it
    net = nn.Sequential(nn.Linear(4, 30), nn.Linear(30, 3))
    last = list(net[1].parameters())
    text = found(lambda: train(2, parameters=last, net=net))["gradients without an optimizer"]
    assert text.startswith(f"{(4 * 30 + 30) * 4} of ")
    for parameter in net.parameters():
        parameter.grad = None
    net[0].requires_grad_(False)
    assert "gradients without an optimizer" not in found(lambda: train(2, parameters=last, net=net))


def test_the_loader_is_watched() -> None:
    with metaop.inspect.doctor() as examination:
        batches = list(DataLoader(range(6), batch_size=2))
    assert len(batches) == 3 and not loader.watchers
    (place,) = examination.facts().waits
    assert place.function == "test_the_loader_is_watched"


def test_a_profile_without_programs_finds_nothing() -> None:
    with metaop.inspect.doctor() as examination:
        pass
    assert examination.program_findings() == []
    assert "nothing found" in examination.report()


def test_everything_is_switched_off_again() -> None:
    with pytest.raises(ZeroDivisionError), metaop.inspect.doctor():
        raise ZeroDivisionError
    assert not observers and not executor.watchers and not loader.watchers


# --- what depends on the clock or on large memory: facts instead of programs --------------------


def test_compiling() -> None:
    compilation = Compilation(HERE, 3.0, ("add",), ())
    slow = ProgramFacts(seconds=4.0, compilations=[compilation])
    assert "75% of the time" in texts(program_checks.CHECKS, slow)["compiling"]
    assert not texts(program_checks.CHECKS, slow._replace(seconds=40.0))


def test_waiting_for_data() -> None:
    slow = ProgramFacts(seconds=4.0, waits={HERE: 2.0}, workers=1)
    text = texts(program_checks.CHECKS, slow)["waiting for data"]
    assert "waited 2.00 s, 50%" in text and "train.py:7" in text and "1 workers" in text
    assert not texts(program_checks.CHECKS, slow._replace(waits={HERE: 0.1}))


def test_tiny_programs() -> None:
    slow = ProgramFacts(seconds=1.0, kernel_seconds=0.004, cuts={HERE: 1000})
    text = texts(program_checks.CHECKS, slow)["tiny programs"]
    assert text.startswith("1000 programs ran kernels for 4.00 ms with 996.0 ms of overhead")
    assert not texts(program_checks.CHECKS, slow._replace(kernel_seconds=0.9))
    assert not texts(program_checks.CHECKS, slow._replace(waits={HERE: 0.01}, cuts={HERE: 3}))


def test_memory() -> None:
    whole = program_checks.machine_bytes()
    assert "memory" in texts(program_checks.CHECKS, ProgramFacts(peak=whole * 3 // 4))
    assert not texts(program_checks.CHECKS, ProgramFacts(peak=whole // 4))


def test_slow_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_checks, "_limits", lambda: Limits(1e9, 1e12))
    kernel = KernelTime(KernelWork("rows_add", 100, 10**6), 5, 0.01, HERE)
    text = texts(program_checks.CHECKS, ProgramFacts(kernels=[kernel]))["slow kernel"]
    assert "rows_add ran 5 times" in text and "allow 1.000 ms" in text and "train.py:7" in text
    quick = kernel._replace(seconds=0.002)
    assert not texts(program_checks.CHECKS, ProgramFacts(kernels=[quick]))


def test_kernels_have_their_estimate() -> None:
    executor.clear_programs()
    left, right = metaop.rand(40, 30), metaop.rand(30, 20)
    left.numpy(), right.numpy()  # products of constants take less work
    with metaop.inspect.doctor() as examination:
        (left @ right).numpy()
    works = [kernel.work for kernel in examination.facts().kernels]
    assert max(work.operations for work in works) >= 40 * 30 * 20
    assert {work.name for work in works} == {
        k.name for run in examination.runs for k in run.kernels
    }


def test_the_limits_of_this_machine_are_plausible() -> None:
    limits = metaop.inspect.limits.limits()
    assert 1e7 < limits.bandwidth < 1e14 and 1e6 < limits.arithmetic < 1e16


# --- the machine ------------------------------------------------------------------------------


def texts(checks: tuple[Check, ...], facts: Any) -> dict[str, str]:
    return {finding.name: finding.text for finding in findings_of(checks, facts)}


def good() -> MachineFacts:
    values = {setting.name: _default(setting) for setting in metaop.settings.SETTINGS}
    return MachineFacts("znver5", 64, 64, 4.0, 4, "/cache", True, 1000, "", values, {})


def _default(setting: Any) -> Any:
    return metaop.settings._PARSERS[setting.type](setting.default)


def test_a_good_machine_has_no_findings() -> None:
    assert texts(machine_checks.CHECKS, good()) == {}


@pytest.mark.parametrize(
    "name, change, words",
    [
        ("narrow vectors", {"vectors": 32}, "vectors of 32 bytes"),
        ("more threads than cores", {"cores": 1.5}, "4 threads share 1.5 cores"),
        ("fewer threads than cores", {"threads": 2}, "2 threads on 4 cores"),
        ("threads of other libraries", {"environment": {"OMP_NUM_THREADS": "1"}}, "uses 4"),
        ("no disk cache", {"METAOP_DISK_CACHE": False}, "METAOP_DISK_CACHE is off"),
        ("disk cache is not writable", {"is_cache_writable": False}, "/cache"),
        ("full disk cache", {"cached_bytes": 1 << 30}, "1073741824 of 1073741824"),
        ("no bytecode", {"bytecode": "it cannot be written"}, "it cannot be written"),
        ("small memory cache", {"METAOP_MEMORY_CACHE_BYTES": 0}, "BYTES=0"),
        ("setting that costs time", {"METAOP_DUMP": "folder"}, "METAOP_DUMP=folder"),
        *(
            ("setting that costs time", {setting: value}, setting)
            for setting, value, _ in machine_checks._COSTLY
        ),
    ],
)
def test_what_makes_all_programs_slow(name: str, change: dict[str, Any], words: str) -> None:
    own = {key: value for key, value in change.items() if key in MachineFacts._fields}
    values = {**good().values, **{key: change[key] for key in change if key not in own}}
    facts = good()._replace(values=values)._replace(**own)
    result = texts(machine_checks.CHECKS, facts)
    assert set(result) == {name} and words in result[name]


@pytest.mark.parametrize(
    "files, expected",
    [
        ({"cpu.max": "150000 100000"}, 1.5),
        ({"cpu.max": "max 100000"}, float("inf")),
        ({"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, 0.5),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, float("inf")),
        ({}, float("inf")),
        ({"cpu.max": "nonsense"}, float("inf")),
    ],
)
def test_what_a_container_may_use(files: dict[str, str], expected: float, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert machine_checks._quota(tmp_path) == expected


def test_the_facts_of_this_machine() -> None:
    facts = machine_checks.facts()
    assert facts.own_vectors >= facts.vectors >= 16 and facts.threads >= 1 and facts.cores > 0
    tools = dict(machine_checks.tools())
    assert tools["llvmlite"][0].isdigit() and "mpirun" in tools


# --- the command ------------------------------------------------------------------------------


def doctor(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "metaop", "doctor", *arguments]
    root = str(Path(metaop.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": root}
    return subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=300
    )


def test_the_command_without_a_program(tmp_path: Path) -> None:
    done = doctor(folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "tools\n" in done.stdout and "this machine\n" in done.stdout
    assert doctor("absent.py", folder=tmp_path).returncode == 2
    assert doctor("--lines", folder=tmp_path).returncode == 2


def test_the_command_watches_a_program(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("import metaop\nx = metaop.rand(300)\n")
    program = """
import sys
from helper import x

print(sys.argv, __name__)
for k in range(250):
    (x[k] * 2).item()
sys.exit(int(sys.argv[1]))
"""
    (tmp_path / "program.py").write_text(program)
    flags = ("--lines", "--flame", "flame.svg")
    done = doctor(*flags, "program.py", "0", "--lines", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['program.py', '0', '--lines'] __main__\n"
    assert "program.py:7 in <module> ran a program for a single number" in done.stderr
    assert "Python between programs" in done.stderr
    ElementTree.parse(tmp_path / "flame.svg")
    assert doctor("-m", "program", "3", folder=tmp_path).returncode == 3
    (tmp_path / "program.py").write_text("raise KeyError('gone')")
    failed = doctor("program.py", folder=tmp_path)
    assert failed.returncode == 1 and "KeyError: 'gone'" in failed.stderr
    assert "nothing found" in failed.stderr
