"""Modules that are compiled by worker processes: the same objects, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from metaop.codegen.llvm.objects import compile_queue, object_code
from metaop.codegen.llvm.objects.compile_queue import CompileQueue
from metaop.codegen.llvm.objects.job import Job
from metaop.codegen.llvm.objects.stored import packed_text
from metaop.codegen.llvm.target import host_target
from metaop.errors import InternalError

# More than the pipe between two processes holds.
_LONG = 3000
_COMPILE = "metaop.codegen.llvm.objects.job.compile_object"


def text(number: int, length: int = 1) -> str:
    """A function that adds numbers to an argument one after another."""
    lines = [f"%v{k + 1} = mul i64 %v{k}, {number + k + 2}" for k in range(length)]
    body = "\n".join(["%v0 = add i64 %x, 1", *lines, f"ret i64 %v{length}"])
    return f"define i64 @f(i64 %x) {{\n{body}\n}}"


def job_of(text: str, key: str | None = None, quick: bool = False) -> Job:
    """A job for this processor."""
    packed = packed_text(text)
    stored = {} if key is None else {key: packed if quick else None}
    return Job(packed, host_target(), stored)


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[CompileQueue]:
    """A queue of its own, whose workers must have ended when it is closed."""
    monkeypatch.setattr(compile_queue, "_WORTH_A_WORKER", 1)
    made = CompileQueue()
    yield made
    made.close()
    wait_for(lambda: not made._workers)


@pytest.fixture
def only_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process does not compile."""

    def refused(*_: object) -> bytes:
        pytest.fail("compiled here")

    monkeypatch.setattr(_COMPILE, refused)


def wait_for(condition: Callable[[], object]) -> None:
    """Waits until something is true, for at most half a minute."""
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The worker processes that will be started."""
    processes = []

    class Watched(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *arguments: object, **options: object) -> None:
            super().__init__(*arguments, **options)  # type: ignore
            processes.append(self)

    monkeypatch.setattr(subprocess, "Popen", Watched)
    return processes


@pytest.mark.usefixtures("only_workers")
@pytest.mark.parametrize("workers", [1, 2])
def test_workers_make_the_same_objects(queue: CompileQueue, workers: int) -> None:
    texts = [text(k, length) for k, length in enumerate([1, 1, _LONG, 1, 1, 1])]
    jobs = [queue.submit(job_of(one), workers) for one in texts]
    wait_for(lambda: all(job.content for job in jobs))
    for made, one in zip(jobs, texts):
        assert queue.result(made) == object_code.compile_object(one, host_target())


def test_without_workers_everything_is_compiled_on_demand(queue: CompileQueue) -> None:
    jobs = [queue.submit(job_of(text(k))) for k in range(4)]
    assert not queue._workers and not any(job.content for job in jobs)
    for k, job in enumerate(jobs):
        assert queue.result(job) == object_code.compile_object(text(k), host_target())


def test_both_sides_share_the_work(queue: CompileQueue) -> None:
    jobs = [queue.submit(job_of(text(k, 40)), 1) for k in range(60)]
    contents = [queue.result(job) for job in jobs]
    assert contents[7] == object_code.compile_object(text(7, 40), host_target())
    assert not queue._waiting and not queue._elsewhere


@pytest.mark.parametrize("workers", [0, 1])
def test_an_illegal_module_is_told_to_who_asks_for_it(queue: CompileQueue, workers: int) -> None:
    bad = queue.submit(job_of("define nonsense"), workers)
    good = queue.submit(job_of(text(1)), workers)
    assert queue.result(good)
    for _ in range(2):
        with pytest.raises(InternalError, match="LLVM refuses"):
            queue.result(bad)


def test_a_worker_that_is_killed_leaves_its_work(
    queue: CompileQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = started(monkeypatch)
    monkeypatch.setattr(compile_queue, "BOOT", "import time; time.sleep(60)")
    jobs = [queue.submit(job_of(text(k)), 1) for k in range(3)]
    wait_for(lambda: processes and queue._elsewhere)
    processes[0].send_signal(signal.SIGKILL)
    assert all(queue.result(job) for job in jobs)
    wait_for(lambda: not queue._workers)
    assert processes[0].returncode == -signal.SIGKILL
    queue.submit(job_of(text(9)), 1)
    assert not queue._workers


def test_a_worker_that_hangs_is_not_waited_for(
    queue: CompileQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = started(monkeypatch)
    monkeypatch.setattr(compile_queue, "_PATIENCE", 0.1)
    monkeypatch.setattr(compile_queue, "BOOT", "import time; time.sleep(60)")
    job = queue.submit(job_of(text(1)), 1)
    wait_for(lambda: processes and queue._elsewhere)
    assert queue.result(job)
    processes[0].kill()


def test_a_worker_that_cannot_be_started_is_no_error(
    queue: CompileQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_queue.spawn, "get_executable", lambda: b"/nowhere/python")
    jobs = [queue.submit(job_of(text(k)), 1) for k in range(3)]
    assert all(queue.result(job) for job in jobs)


def test_an_idle_worker_ends(queue: CompileQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    processes = started(monkeypatch)
    monkeypatch.setattr(compile_queue, "_IDLE", 0.05)
    assert queue.result(queue.submit(job_of(text(1)), 1))
    wait_for(lambda: not queue._workers)
    assert [process.returncode for process in processes] == [0]


def test_a_forked_process_compiles_what_was_with_a_worker(queue: CompileQueue) -> None:
    job = job_of(text(1))
    queue._elsewhere.add(job)
    queue._workers.append(threading.current_thread())
    child = os.fork()
    if not child:
        os._exit(0 if queue.result(job) and not queue._workers else 1)
    queue._start_anew()
    assert os.waitpid(child, 0)[1] == 0


def test_what_another_process_has_stored_is_not_compiled(
    queue: CompileQueue, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("METAOP_CACHE_DIR", str(tmp_path))
    jobs = [job_of(text(k), f"key {k}") for k in range(8)]
    # Two processes that start together: what one of them has compiled, the other one reads.
    for job in jobs:
        queue.submit(job)
    twins = [queue.submit(job_of(text(k), f"key {k}")) for k in range(8)]
    assert [queue.result(job) for job in jobs] == [queue.result(twin) for twin in twins]
    assert sorted(job.was_stored + twin.was_stored for job, twin in zip(jobs, twins)) == [1] * 8
    # Quick code will not do for a job that wants code for speed.
    quick = queue.submit(job_of(text(9), "another key", quick=True))
    for will_do, was_stored in ((True, True), (False, False), (True, True)):
        assert queue.result(quick)
        wanted = queue.submit(job_of(text(9), "another key", will_do))
        assert queue.result(wanted) and wanted.was_stored == was_stored


@pytest.mark.skipif(sys.platform == "win32", reason="there are no locks of files")
def test_what_another_process_is_compiling_comes_last(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("METAOP_CACHE_DIR", str(tmp_path))
    queue = CompileQueue()
    first, *others = [queue.submit(job_of(text(k), f"key {k}", quick=True)) for k in range(8)]
    # The other process: its lock is one of another file descriptor.
    with first.cache.alone(first._name):
        left = [left for job in others for left in queue._do_one(job)]
        left += queue._do_one(others[0])
        assert left == [first] and first.content is None
        assert all(job.content for job in others)
        other = job_of(text(0), "key 0", quick=True)
        other._compile()
    assert queue.result(first) == other.content and first.was_stored


def test_who_has_waited_too_long_compiles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("METAOP_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("metaop.codegen.llvm.objects.job._PATIENCE", 0.05)
    job = job_of(text(0), "key")
    with job.cache.alone(job._name):
        assert CompileQueue().result(job) and not job.was_stored


def test_quick_code_of_several_texts_is_compiled_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("METAOP_CACHE_DIR", str(tmp_path))

    def job_of_two() -> Job:
        packed = packed_text(text(0))
        return Job(packed, host_target(), {"one": packed, "two": packed})

    queue, first = CompileQueue(), job_of_two()
    assert queue.result(first) and not first.was_stored
    again = job_of_two()
    assert queue.result(again) == first.content and again.was_stored
    # One of them has better code by now, which is not for both.
    assert queue.result(job_of(text(1), "one"))
    again = job_of_two()
    assert queue.result(again) == first.content and not again.was_stored


def test_processes_compile_in_orders_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def order(process: int) -> list[str]:
        monkeypatch.setattr(os, "getpid", lambda: process)
        done: list[str] = []
        monkeypatch.setattr(_COMPILE, lambda text, *_, **__: done.append(text) or b"object")
        queue = CompileQueue()
        jobs = [queue.submit(job_of(str(k))) for k in range(40)]
        assert all(map(queue.result, jobs))
        queue.close()
        return done

    first, second = order(1), order(2)
    assert sorted(first) == sorted(second) and sum(map(str.__eq__, first, second)) < 10


_PROGRAM = """
import subprocess
import metaop
from metaop.codegen.llvm.objects.engine import statistics
processes = []
class Watched(subprocess.Popen):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        processes.append(self.pid)
subprocess.Popen = Watched
x = metaop.randn(40, 30)
values = [metaop.cumsum(x, 0), x @ x.T, x.softmax(1), metaop.cumprod(x, 1), x.exp().sum(0),
          x.var(1), x.argmax(0), x.sum(), metaop.cat([x, x], 1).mean(0), x.log_softmax(0)]
total = float(sum(value.sum() for value in values))
print(len(processes), statistics.compiled, *processes)
"""


@pytest.mark.parametrize("helpers", [0, 2])
def test_a_whole_program_with_and_without_helpers(helpers: int) -> None:
    environment = {
        **os.environ,
        "METAOP_DISK_CACHE": "0",
        "METAOP_COMPILE_PROCESSES": str(helpers),
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _PROGRAM],
        env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0 and not done.stderr, done.stderr
    count, compiled, *processes = map(int, done.stdout.split())
    assert compiled > 6 and bool(count) == bool(helpers)
    wait_for(lambda: not any(os.path.exists(f"/proc/{process}") for process in processes))
