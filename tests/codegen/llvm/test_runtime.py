"""The thread pool and the loop that runs a table of steps."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from metaop.codegen.llvm import pool_text
from metaop.codegen.llvm.objects import engine
from metaop.codegen.llvm.runtime import ERROR_WORDS, Runtime, Step, StepTable, runtime
from metaop.codegen.llvm.system import host_system
from metaop.errors import ArgumentError

# Adds scalars[0] to buffer 0 at each task; the task that scalars[1] names reports an error.
ADD = """
define void @add(ptr %buffers, ptr %scalars, i64 %begin, i64 %end, ptr %error) {
entry:
  %counts = load ptr, ptr %buffers
  %amount = load i64, ptr %scalars
  %bad.at = getelementptr i64, ptr %scalars, i64 1
  %bad = load i64, ptr %bad.at
  %any = icmp slt i64 %begin, %end
  br i1 %any, label %loop, label %done
loop:
  %task = phi i64 [ %begin, %entry ], [ %next, %continue ]
  %place = getelementptr i64, ptr %counts, i64 %task
  %old = load i64, ptr %place
  %new = add i64 %old, %amount
  store i64 %new, ptr %place
  %is.bad = icmp eq i64 %task, %bad
  br i1 %is.bad, label %report, label %continue
report:
  %swap = cmpxchg ptr %error, i64 0, i64 7 acq_rel monotonic
  %value.at = getelementptr i64, ptr %error, i64 2
  store i64 %task, ptr %value.at
  br label %continue
continue:
  %next = add i64 %task, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}"""

# output[task] = left[task] - right[task], so the order of the buffers shows.
SUBTRACT = """
define void @subtract(ptr %buffers, ptr %scalars, i64 %begin, i64 %end, ptr %error) {
entry:
  %output = load ptr, ptr %buffers
  %left.at = getelementptr ptr, ptr %buffers, i64 1
  %left = load ptr, ptr %left.at
  %right.at = getelementptr ptr, ptr %buffers, i64 2
  %right = load ptr, ptr %right.at
  br label %loop
loop:
  %task = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %l.at = getelementptr i64, ptr %left, i64 %task
  %l = load i64, ptr %l.at
  %r.at = getelementptr i64, ptr %right, i64 %task
  %r = load i64, ptr %r.at
  %difference = sub i64 %l, %r
  %o.at = getelementptr i64, ptr %output, i64 %task
  store i64 %difference, ptr %o.at
  %next = add i64 %task, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}"""

NEVER = -1


# Ends only when two participants have come.
MEET = """
declare i32 @sched_yield()
define void @meet(ptr %buffers, ptr %scalars, i64 %begin, i64 %end, ptr %error) {
  %counter = load ptr, ptr %buffers
  %mine = atomicrmw add ptr %counter, i64 1 seq_cst
  br label %wait
wait:
  %a = call i32 @sched_yield()
  %seen = load atomic i64, ptr %counter seq_cst, align 8
  %met = icmp sge i64 %seen, 2
  br i1 %met, label %done, label %wait
done:
  ret void
}"""


@functools.cache
def pool_that_waits(way: str) -> Runtime:
    """A pool that waits as on this system, or as where there is no futex."""
    return Runtime(host_system()._replace(is_portable=way == "conditions"))


@pytest.fixture(params=["futex", "conditions"])
def pool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    one = pool_that_waits(request.param)
    monkeypatch.setitem(globals(), "runtime", lambda: one)
    before = one.get_num_threads()
    yield one
    one.set_num_threads(before)


def add_kernel() -> int:
    return engine.compile_kernel(ADD, "add")


class Launch:
    """A table of steps with its slots and error words, ready to run."""

    def __init__(self, steps: list[Step], arrays: list[np.ndarray]) -> None:
        self.table = StepTable(steps)
        self.arrays = arrays
        self.slots = np.array([array.ctypes.data for array in arrays], np.uint64)
        self.error = np.zeros(ERROR_WORDS, np.int64)

    def run(self, times: np.ndarray | None = None) -> int:
        return runtime().run(
            self.table.address,
            len(self.table),
            self.slots.ctypes.data,
            self.error.ctypes.data,
            0 if times is None else times.ctypes.data,
        )


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_each_task_runs_once(pool: Runtime, threads: int) -> None:
    pool.set_num_threads(threads)
    assert pool.get_num_threads() == threads
    generator = np.random.default_rng(threads)
    for _ in range(300):
        tasks, grain = int(generator.integers(0, 400)), int(generator.integers(1, 60))
        counts = np.zeros(tasks + 1, np.int64)
        steps = [Step(add_kernel(), [0], [k, NEVER], tasks, grain) for k in (1, 10, 100)]
        launch = Launch(steps, [counts])
        assert launch.run() == 0
        assert (counts[:-1] == 111).all() and counts[-1] == 0


def test_workers_wake_from_sleep(pool: Runtime) -> None:
    pool.set_num_threads(3)
    counts = np.zeros(1000, np.int64)
    launch = Launch([Step(add_kernel(), [0], [1, NEVER], 1000, 1)], [counts])
    for _ in range(30):
        time.sleep(0.002)
        assert launch.run() == 0
    assert (counts == 30).all()


def test_work_is_shared_by_threads(pool: Runtime) -> None:
    pool.set_num_threads(2)
    counter = np.zeros(1, np.int64)
    launch = Launch([Step(engine.compile_kernel(MEET, "meet"), [0], [], 2, 1)], [counter])
    assert launch.run() == 0
    assert counter[0] == 2


@pytest.mark.parametrize("way", ["futex", "conditions"])
def test_no_wake_up_is_lost(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All threads sleep at once when they wait, and each of many launches takes a second one.

    Others load the pool meanwhile, and run alone while it is taken.
    """
    monkeypatch.setattr(pool_text, "_SPIN_ROUNDS", 1)
    monkeypatch.setattr(pool_text, "_SPIN_ROUNDS_INSIDE", 1)
    pool = Runtime(host_system()._replace(is_portable=way == "conditions"))
    monkeypatch.setitem(globals(), "runtime", lambda: pool)
    pool.set_num_threads(2)
    # Between two jobs the caller works for a while, from nothing to longer than it takes to sleep.
    counters, counts = np.zeros((100, 1), np.int64), np.zeros(4000, np.int64)
    kernel, pause = engine.compile_kernel(MEET, "meet"), add_kernel()
    steps = []
    for k in range(100):
        steps += [Step(kernel, [k], [], 2, 1), Step(pause, [100], [1, NEVER], 40 * k, 4000)]
    meeting = Launch(steps, [*counters, counts])

    def meet() -> None:
        for _ in range(300):
            counters[:] = 0
            assert meeting.run() == 0
            assert (counters == 2).all()

    in_time(meet)
    pool.set_num_threads(6)
    owned = np.zeros((3, 400), np.int64)

    def work(own: np.ndarray) -> None:
        launch = Launch([Step(add_kernel(), [0], [1, NEVER], 400, 7)] * 10, [own])
        for _ in range(1000):
            assert launch.run() == 0

    in_time(*(functools.partial(work, own) for own in owned))
    assert (owned == 10_000).all()


def in_time(*calls: Callable[[], None]) -> None:
    """Makes calls at the same time; fails where one does not come back."""
    threads = [threading.Thread(target=call, daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=300)
        assert not thread.is_alive()


def test_caller_sleeps_until_the_last_worker_is_done(pool: Runtime) -> None:
    """One of two tasks is long, so whoever has the other one waits past the spinning."""
    text = """
    define void @slow(ptr %buffers, ptr %scalars, i64 %begin, i64 %end, ptr %error) {
    entry:
      %counts = load ptr, ptr %buffers
      %place = getelementptr i64, ptr %counts, i64 %begin
      %long = mul i64 %begin, 1000000
      br label %loop
    loop:
      %k = phi i64 [ 0, %entry ], [ %next, %loop ]
      store volatile i64 %k, ptr %place
      %next = add i64 %k, 1
      %more = icmp sle i64 %next, %long
      br i1 %more, label %loop, label %done
    done:
      ret void
    }"""
    pool.set_num_threads(2)
    counts = np.zeros(2, np.int64)
    launch = Launch([Step(engine.compile_kernel(text, "slow"), [0], [], 2, 1)], [counts])
    for _ in range(50):
        counts[:] = -1
        assert launch.run() == 0
        assert counts.tolist() == [0, 1_000_000]


def test_slots_scalars_and_sizes(pool: Runtime) -> None:
    generator = np.random.default_rng(1)
    left, right = generator.integers(-100, 100, (2, 50))
    output, unused = np.zeros((2, 50), np.int64)
    steps = [
        Step(engine.compile_kernel(SUBTRACT, "subtract"), [3, 0, 2], [], 50, 7),
        Step(add_kernel(), [3], [5, NEVER], 50, 100),
    ]
    launch = Launch(steps, [left, unused, right, output])
    assert launch.run() == 0
    np.testing.assert_array_equal(output, left - right + 5)
    launch.table.tasks[:] = 20
    launch.table.scalars(1)[0] = 9
    output[:] = 0
    assert launch.run() == 0
    np.testing.assert_array_equal(output[:20], (left - right)[:20] + 9)
    assert not output[20:].any() and not unused.any()


def test_many_buffers(pool: Runtime) -> None:
    counts = np.zeros(10, np.int64)
    step = Step(add_kernel(), [0] * 3000, [1, NEVER], 10, 3)
    launch = Launch([step] * 500, [counts])
    assert launch.run() == 0
    assert (counts == 500).all()


@pytest.mark.parametrize("threads", [1, 2])
def test_stops_after_an_error(pool: Runtime, threads: int) -> None:
    pool.set_num_threads(threads)
    counts = np.zeros((3, 100), np.int64)
    bad = (NEVER, 42, NEVER)
    steps = [Step(add_kernel(), [k], [1, bad[k]], 100, 5) for k in range(3)]
    launch = Launch(steps, list(counts))
    times = np.zeros(4, np.int64)
    assert launch.run(times) == 2
    assert launch.error[0] == 7 and launch.error[2] == 42
    assert counts[0].all() and not counts[2].any()
    assert 0 < times[0] <= times[1] <= times[2] and times[3] == 0
    launch.error[:] = 0
    launch.table.scalars(1)[1] = NEVER
    assert launch.run() == 0 and counts[2].all()


def test_times(pool: Runtime) -> None:
    counts = np.zeros(200_000, np.int64)
    launch = Launch([Step(add_kernel(), [0], [1, NEVER], 200_000, 5000)] * 5, [counts])
    times = np.zeros(6, np.int64)
    before = time.monotonic_ns()
    assert launch.run(times) == 0
    assert before <= times[0] and times[-1] <= time.monotonic_ns()
    assert (np.diff(times) > 0).all()


def test_no_steps(pool: Runtime) -> None:
    times = np.zeros(1, np.int64)
    assert Launch([], []).run(times) == 0
    assert times[0] > 0


def test_concurrent_callers(pool: Runtime) -> None:
    pool.set_num_threads(3)
    failures: list[object] = []

    def caller(seed: int) -> None:
        generator = np.random.default_rng(seed)
        for _ in range(200):
            tasks = int(generator.integers(1, 3000))
            counts = np.zeros(tasks, np.int64)
            launch = Launch([Step(add_kernel(), [0], [1, NEVER], tasks, 16)] * 3, [counts])
            if launch.run() != 0 or not (counts == 3).all():
                failures.append((seed, tasks))

    threads = [threading.Thread(target=caller, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_thread_count_changes_between_runs(pool: Runtime) -> None:
    counts = np.zeros(500, np.int64)
    launch = Launch([Step(add_kernel(), [0], [1, NEVER], 500, 3)], [counts])
    for threads in [4, 1, 2, 5, 3, 1, 2] * 20:
        pool.set_num_threads(threads)
        assert launch.run() == 0
    assert (counts == 140).all()


def test_illegal_arguments(pool: Runtime) -> None:
    with pytest.raises(ArgumentError, match="0 threads"):
        pool.set_num_threads(0)
    with pytest.raises(ArgumentError, match="grain 0"):
        StepTable([Step(1, [], [], 10, 0)])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork(pool: Runtime) -> None:
    pool.set_num_threads(2)
    counts = np.zeros(1000, np.int64)
    launch = Launch([Step(add_kernel(), [0], [1, NEVER], 1000, 10)], [counts])
    assert launch.run() == 0
    child = os.fork()
    if child == 0:
        results = [launch.run() for _ in range(100)]
        os._exit(0 if not any(results) and (counts == 101).all() else 1)
    assert launch.run() == 0
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (counts == 2).all()


_EXIT = f'''
import sys, threading
import numpy as np
from metaop.codegen.llvm.objects import engine
from metaop.codegen.llvm.runtime import Step, StepTable, runtime
runtime().set_num_threads(3)
counts, error = np.zeros(3000, np.int64), np.zeros(4, np.int64)
slots = np.array([counts.ctypes.data])
kernel = engine.compile_kernel("""{ADD}""", "add")
table = StepTable([Step(kernel, [0], [1, -1], 3000, 10)] * 100)
def run():
    return runtime().run(table.address, 100, slots.ctypes.data, error.ctypes.data, 0)
def forever():
    while True:
        run()
run()
if sys.argv[1] == "busy":
    threading.Thread(target=forever, daemon=True).start()
run()
'''


@pytest.mark.parametrize("mode", ["idle", "busy"])
def test_interpreter_exit(mode: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for _ in range(3):
        subprocess.run(
            [sys.executable, "-c", _EXIT, mode], env=environment, check=True, timeout=300
        )


def test_environment_sets_the_thread_count() -> None:
    code = "from metaop.codegen.llvm.runtime import runtime; print(runtime().get_num_threads())"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "METAOP_NUM_THREADS": "5",
    }
    output = subprocess.check_output([sys.executable, "-c", code], env=environment, timeout=300)
    assert int(output) == 5
