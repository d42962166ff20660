"""Probes: kernels that measure a processor, as LLVM IR text, and their run times.

Each iteration repeats one thing: multiply-adds in registers, loads, stores or copies of vectors, or
dependent reads. A task does a number of iterations, and threads share the tasks.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Sequence
from typing import NamedTuple

from metaop.codegen.llvm.objects import engine
from metaop.codegen.llvm.runtime import ERROR_WORDS, Step, StepTable, runtime
from metaop.codegen.llvm.target import Target
from metaop.codegen.memory.buffers import Buffer

# Independent chains: enough to hide the latency of a multiply-add.
CHAINS = 16
# The vectors loaded, stored or copied per iteration.
VECTORS = 8
PAGE = 4096

_LOOP = """
{declarations}
define void @probe(ptr %buffers, ptr %scalars, i64 %begin, i64 %end, ptr %error) {{
entry:
  %to = load ptr, ptr %buffers
  %from_at = getelementptr ptr, ptr %buffers, i64 1
  %from = load ptr, ptr %from_at
  %factor = load {vector}, ptr %to, align 4
  %kept = load i64, ptr %to, align 8
  %first = mul i64 %begin, {span}
  %last = mul i64 %end, {span}
  br label %pass
pass:
  %round = phi i64 [ 0, %entry ], [ %next_round, %passed ]
  br label %loop
loop:
  %i = phi i64 [ %first, %pass ], [ %next, %loop ]
{phis}
{body}
  %next = add i64 %i, {step}
  %more = icmp slt i64 %next, %last
  br i1 %more, label %loop, label %passed
passed:
  %next_round = add i64 %round, 1
  %again = icmp slt i64 %next_round, {rounds}
  br i1 %again, label %pass, label %done
done:
{after}
  ret void
}}
!0 = !{{ i32 1 }}
"""


def _text(
    target: Target,
    body: Sequence[str],
    span: int,
    step: int,
    *,
    rounds: int = 1,
    phis: Sequence[str] = (),
    after: Sequence[str] = (),
    declarations: str = "",
) -> str:
    return _LOOP.format(
        declarations=declarations,
        vector=_vector(target),
        span=span,
        step=step,
        rounds=rounds,
        phis="\n".join(phis),
        body="\n".join(body),
        after="\n".join(after),
    )


def _vector(target: Target) -> str:
    return f"<{target.vector_bytes // 4} x float>"


def multiply_add(target: Target, turns: int) -> str:
    """`CHAINS` multiply-adds of vectors per iteration; buffer 0 holds the factor."""
    vector, suffix = _vector(target), f"v{target.vector_bytes // 4}f32"
    call = f"call {vector} @llvm.fma.{suffix}"
    sort = f"{vector}, {vector}, {vector}"
    if not target.has_fma:
        # Without the instruction a library would be called; two instructions count as one here.
        call = f"call {vector} @llvm.fmuladd.{suffix}"
    name = call.rpartition("@")[2]
    return _text(
        target,
        [
            f"  %b{k} = {call}({vector} %a{k}, {vector} %factor, {vector} %factor)"
            for k in range(CHAINS)
        ],
        turns,
        1,
        phis=[
            f"  %a{k} = phi {vector} [ %factor, %pass ], [ %b{k}, %loop ]" for k in range(CHAINS)
        ],
        after=[f"  store volatile {vector} %b{k}, ptr %to, align 4" for k in range(CHAINS)],
        declarations=f"declare {vector} @{name}({sort})",
    )


def additions(target: Target, turns: int) -> str:
    """Two dependent integer additions per iteration: two cycles."""
    return _text(
        target,
        ["  %c = xor i64 %a, %i", "  %b = add i64 %c, %first"],
        turns,
        1,
        phis=["  %a = phi i64 [ %first, %pass ], [ %b, %loop ]"],
        after=["  store volatile i64 %b, ptr %to, align 8"],
    )


def loads(target: Target, turns: int) -> str:
    """`VECTORS` loads of the first vectors of buffer 0 per iteration."""
    return _text(target, _at_places(target, "%v{k} = load volatile {vector}, ptr %p{k}"), turns, 1)


def stores(target: Target, turns: int) -> str:
    """`VECTORS` stores to the first vectors of buffer 0 per iteration."""
    body = _at_places(target, "store volatile {vector} %factor, ptr %p{k}")
    return _text(target, body, turns, 1)


def _at_places(target: Target, access: str) -> list[str]:
    lines = []
    for k in range(VECTORS):
        lines.append(f"  %p{k} = getelementptr i8, ptr %to, i64 {k * target.vector_bytes}")
        lines.append(f"  {access.format(k=k, vector=_vector(target))}, align 4")
    return lines


def copy(target: Target, chunk: int, *, rounds: int = 1, around: bool = False) -> str:
    """Copies buffer 1 to buffer 0 `rounds` times, `chunk` bytes per task, or around the caches."""
    lanes, vector = target.vector_bytes, _vector(target)
    hint = ", !nontemporal !0" if around else ""
    body = []
    for k in range(VECTORS):
        body += [
            f"  %at{k} = add i64 %i, {k * lanes}",
            f"  %source{k} = getelementptr i8, ptr %from, i64 %at{k}",
            f"  %value{k} = load {vector}, ptr %source{k}, align {lanes}",
            f"  %target{k} = getelementptr i8, ptr %to, i64 %at{k}",
            f"  store {vector} %value{k}, ptr %target{k}, align {lanes}{hint}",
        ]
    return _text(target, body, chunk, VECTORS * lanes, rounds=rounds)


def chase(target: Target, turns: int, nbytes: int, line_bytes: int) -> str:
    """Dependent reads of lines of buffer 1, which holds zeros, in an unpredictable order.

    Each address depends on the value read before. Buffer 0 keeps the last position, at which the
    next launch continues; initially it is 0. `nbytes` is a power of two.
    """
    return _text(
        target,
        [
            "  %p = getelementptr i8, ptr %from, i64 %a",
            "  %read = load volatile i64, ptr %p, align 8",
            "  %m = mul i64 %a, 2862933555777941757",
            f"  %s = add i64 %m, {3037000493 * line_bytes}",
            "  %t = add i64 %s, %read",
            f"  %b = and i64 %t, {nbytes - line_bytes}",
        ],
        turns,
        1,
        phis=["  %a = phi i64 [ %kept, %pass ], [ %b, %loop ]"],
        after=["  store volatile i64 %b, ptr %to, align 8"],
    )


def touch(target: Target) -> str:
    """Writes to buffer 0, one task per page."""
    return _text(
        target,
        ["  %p = getelementptr i8, ptr %to, i64 %i", "  store volatile i8 1, ptr %p"],
        PAGE,
        PAGE,
    )


class Launch(NamedTuple):
    """A probe, the addresses of its buffers 0 and 1, its tasks, and the `grain` per thread."""

    text: str
    addresses: Sequence[int]
    tasks: int = 1
    grain: int = 1


def launched(*launches: Launch) -> Callable[[], float]:
    """A function that runs launches one after another as a program, and returns its seconds.

    For a single thread they are processor time, which other processes hardly affect.
    """
    steps, addresses = [], list(dict.fromkeys(x for one in launches for x in one.addresses))
    for text, buffers, tasks, grain in launches:
        slots = [addresses.index(one) for one in buffers]
        steps.append(Step(engine.compile_kernel(text, "probe"), slots, [], tasks, grain))
    table = StepTable(steps)
    places, error = array("q", addresses), array("q", bytes(8 * ERROR_WORDS))
    run, count = runtime().run, len(table)
    shared = any(one.tasks > one.grain for one in launches)
    is_alone = runtime().get_num_threads() == 1 or not shared
    clock = time.thread_time if is_alone else time.perf_counter

    def launch() -> float:
        start = clock()
        run(table.address, count, places.buffer_info()[0], error.buffer_info()[0], 0)
        return clock() - start

    return launch


def addresses_of(*buffers: Buffer) -> list[int]:
    """The addresses of two buffers; a probe that needs only one gets it twice."""
    found = [buffer.address for buffer in buffers]
    return found if len(found) > 1 else found * 2
