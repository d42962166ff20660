"""Programs kept on disk: found by another process, never wrong, never trusted blindly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import metaop
from metaop import compiler
from metaop.codegen.caches.disk import shared_cache
from metaop.codegen.caches.fingerprint import graph_fingerprint, subgraph_fingerprint
from metaop.codegen.llvm import program_store
from metaop.codegen.llvm.layout import from_bytes, layout_of, to_bytes
from metaop.codegen.llvm.machine import host_machine
from metaop.codegen.llvm.objects.stored import store_object, stored
from metaop.compiler import schedule
from metaop.execution.executor import pending_subgraph
from metaop.reduce.replacement import replace_rows
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.node import input_node, topological

_STEP = """
import json, sys
import numpy as np
import metaop
import metaop.nn.functional as F
from metaop import compiler

if sys.argv[1] == "other order":
    # Signatures, gradients and index atoms are numbered differently in this process.
    y = metaop.rand(3, 5, requires_grad=True)
    (F.layer_norm(y, (5,)).sum() + F.softmax(y, 0).max()).backward()
    y.grad.tolist()
scheduled = []
original = compiler.schedule
compiler.schedule = lambda *arguments: scheduled.append(1) or original(*arguments)
random = np.random.default_rng(0)
x = metaop.tensor(random.standard_normal((6, 7)).astype("f"))
w = metaop.tensor(random.standard_normal((4, 7)).astype("f"), requires_grad=True)
loss = (F.softmax(F.layer_norm(F.linear(x, w), (4,)), 1) ** 2).sum()
loss.backward()
print(json.dumps([w.grad.tolist(), loss.item(), len(scheduled)]))
"""


def _run(folder: Path, mode: str = "") -> tuple[np.ndarray, float, int]:
    return _result(_started(folder, mode))


def _started(folder: Path, mode: str = "") -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "METAOP_CACHE_DIR": str(folder),
        "METAOP_DISK_CACHE": "1",
        "METAOP_BACKEND": "llvm",
        "PYTHONPATH": str(Path(metaop.__file__).parent.parent),
    }
    command = [sys.executable, "-c", _STEP, mode]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def _result(process: subprocess.Popen[str]) -> tuple[np.ndarray, float, int]:
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    gradient, loss, scheduled = json.loads(output)
    return np.array(gradient), loss, scheduled


def test_second_process_compiles_nothing(tmp_path: Path) -> None:
    first = _run(tmp_path)
    second = _run(tmp_path)
    other = _run(tmp_path, "other order")
    assert first[2] > 0 and second[2] == 0 and other[2] == 0
    for again in (second, other):
        np.testing.assert_array_equal(first[0], again[0])
        assert first[1] == again[1]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no locks of files")
def test_of_processes_that_start_together_one_makes_each_program(tmp_path: Path) -> None:
    together = [_result(process) for process in [_started(tmp_path) for _ in range(3)]]
    alone = _run(tmp_path)
    assert sum(scheduled for _, _, scheduled in together) == _run(tmp_path / "other")[2]
    for gradient, loss, _ in together:
        np.testing.assert_array_equal(gradient, alone[0])
        assert loss == alone[1]
    assert not list(tmp_path.glob("*.lock"))


def test_kernels_of_which_another_process_left_the_text_are_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the process that made the program had ended before all kernels were compiled."""
    monkeypatch.setenv("METAOP_CACHE_DIR", str(tmp_path))
    # Entries of quick code have the text.
    monkeypatch.setenv("METAOP_TIERS", "1")
    first = _run(tmp_path)
    quick = list(tmp_path.glob("*-quick.object"))
    assert quick
    for path in quick:
        key = path.name.removesuffix("-quick.object")
        found = stored(key, shared_cache())
        assert found is not None and found.packed is not None
        store_object(key, b"", found.packed, shared_cache())
    second = _run(tmp_path)
    assert second[2] == 0
    np.testing.assert_array_equal(first[0], second[0])


def test_parts_of_distributed_programs_are_found_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("METAOP_CACHE_DIR", str(tmp_path))
    scheduled: list[int] = []
    original = compiler.schedule
    monkeypatch.setattr(
        compiler, "schedule", lambda *arguments: scheduled.append(1) or original(*arguments)
    )
    numbers = np.random.default_rng(0).standard_normal((7, 5, 2)).view(np.complex128)[..., 0]
    x = metaop.tensor(numbers)
    inputs, outputs = pending_subgraph([(x.exp() * x).sum(1)._call]).expand()
    part = compiler.local_compiler(metaop.device("cpu"))
    first, second = (part(inputs, outputs)([numbers])[0] for _ in range(2))
    assert len(scheduled) == 1
    assert first.shape == (7,) and first.dtype == np.complex128
    np.testing.assert_allclose(first, (np.exp(numbers) * numbers).sum(1), rtol=1e-12)
    np.testing.assert_array_equal(first, second)


def test_damaged_and_missing_entries_count_as_absent(tmp_path: Path) -> None:
    first = _run(tmp_path)
    for path in tmp_path.glob("program-*"):
        path.write_bytes(path.read_bytes()[:-3])
    damaged = _run(tmp_path)
    for path in tmp_path.glob("*.object"):
        if not path.name.startswith("program-"):
            path.unlink()
    evicted = _run(tmp_path)
    assert damaged[2] == first[2] and evicted[2] == first[2]
    np.testing.assert_array_equal(first[0], damaged[0])
    np.testing.assert_array_equal(first[0], evicted[0])


def _fingerprint(result: metaop.Tensor) -> str | None:
    return subgraph_fingerprint(pending_subgraph([result.call]))


def test_fingerprints_tell_programs_apart() -> None:
    x, y = metaop.rand(4, 6), metaop.rand(4, 6)
    metaop.stack([x, y]).tolist()
    results = [
        x + y, y - x, x + x, x * 3.0, x * 0.5, x[1:], x[:3], x.sum(0), x.sum(1), x.amax(1),
        x.t(), x.roll(1, 0), x.roll(2, 0), x.double(), metaop.where(x > y, x, 0.0),
        metaop.gather(x, 1, metaop.zeros(4, 2, dtype=metaop.int64)),
        metaop.nn.functional.pad(x, (1, 1)), metaop.nn.functional.pad(x, (1, 1), value=2.0),
    ]  # fmt: skip
    prints = [_fingerprint(result) for result in results]
    assert None not in prints
    assert len(set(prints)) == len(prints)
    assert _fingerprint(x + y) == prints[0]
    # A number that is an argument does not matter, one that is compiled in does.
    assert _fingerprint(x * 7.0) == prints[3] != prints[4]


@pytest.mark.parametrize("damage", ["[]", "{}", "null", "[1,2,3,4,5,6,7]", "x", "\xff"])
def test_layouts_of_another_form_are_refused(damage: str) -> None:
    assert from_bytes(damage.encode("latin1")) is None


def test_layouts_survive_the_disk() -> None:
    x = metaop.rand(5, 3)
    x.tolist()
    subgraph = pending_subgraph([(x @ x.t()).softmax(1).call])
    layout = layout_of(schedule(*subgraph.expand(), host_machine()))
    assert from_bytes(to_bytes(layout)) == layout
    bad = layout._replace(input_types=("float31",))
    assert from_bytes(to_bytes(bad)) is None
    wild = layout._replace(offsets=(), made=())
    assert from_bytes(to_bytes(wild)) is None


def test_sources_that_change_under_a_process_are_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "room" / "module.py"
    source.parent.mkdir()
    source.write_text("x = 1\n")
    os.utime(source, ns=(1000, 1000))
    monkeypatch.setattr(program_store, "_LOADED", 2000)

    def in_processes() -> list[str]:
        found = []
        for number in (1, 2):
            monkeypatch.setattr(os, "getpid", lambda number=number: number)
            found.append(program_store._state_of(tmp_path))
        return found

    one, other = in_processes()
    assert one == other
    # As when the package is edited, or another version is installed over it.
    os.utime(source, ns=(3000, 3000))
    changed, by_another = in_processes()
    assert len({one, changed, by_another}) == 3
    # A process that starts then shares its programs again.
    monkeypatch.setattr(program_store, "_LOADED", 4000)
    later, other = in_processes()
    assert later == other and later not in (one, changed)


# Functions whose programs hold all meta-operators together.
_OF_EVERY_SORT = {
    "complex numbers": lambda x: (x + 1j * x).exp().abs(),
    "an order": lambda x: x.sort(0)[0].tril() + 1.5,
    "a sum by places": lambda x: x.index_add(0, x[:, 0].long() * 0, x),
    "a loop": lambda x: metaop.fori_loop(0, 3, lambda k, y: y.sin() * k, x),
}


def test_programs_of_every_meta_operator_are_stored() -> None:
    seen = set()
    for name, function in _OF_EVERY_SORT.items():
        result = function(metaop.rand(100, 4))
        assert _fingerprint(result) is not None, name
        _, outputs = pending_subgraph([result.call]).expand()
        seen |= {type(node.op).__name__ for node in topological(outputs)}
    table, rows, values = (
        input_node(0, (5, 2), dtypes.float32),
        input_node(1, (3,), dtypes.int64),
        input_node(2, (3, 2), dtypes.float32),
    )
    replaced = replace_rows(table, rows, values)
    assert graph_fingerprint([table, rows, values], [replaced]) is not None
    seen.add(type(replaced.op).__name__)
    wanted = {"Elementwise", "Reindex", "Reduce", "Index", "Constant", "Input"}
    assert seen == wanted | {"Order", "Replacement", "Reinterpret", "Loop"}


_OTHER_HINTS = """
import metaop
from metaop.codegen.caches.disk import DiskCache

written = []
put = DiskCache.put
DiskCache.put = lambda self, key, *rest: written.append(key) or put(self, key, *rest)
for shape in (5, 4), (6, 4), (40, 3), (3, 3):
    x = metaop.rand(shape, requires_grad=True)
    metaop.cdist(x, x).sum().backward()
    x.grad.numpy()
print(sum(key.startswith("program-") for key in written))
"""


def test_programs_for_any_size_that_differ_by_hints_are_kept_beside_each_other(
    tmp_path: Path,
) -> None:
    run = [sys.executable, "-c", _OTHER_HINTS]
    environment = {**os.environ, "METAOP_CACHE_DIR": str(tmp_path), "METAOP_DISK_CACHE": "1"}
    written = [int(subprocess.check_output(run, env=environment, timeout=300)) for _ in range(2)]
    assert written[0] > 0 and written[1] == 0
