"""The LLVM IR text of the loop that runs a table of steps, on top of the thread pool."""

from __future__ import annotations

from metaop.codegen.llvm.pool_text import pool_text

SYMBOLS = ("metaop_run", "metaop_set_threads", "metaop_after_fork")
STEP_FIELDS = 6  # words of 8 bytes in %step, see below

_RUN = """
; kernel, slot numbers, their count, scalars, tasks, grain
%step = type { ptr, ptr, i64, ptr, i64, i64 }

declare i32 @clock_gettime(i32, ptr)

; Writes the time in nanoseconds to %times[%index] unless %times is null.
define internal void @stamp(ptr %times, i64 %index) {
  %now = alloca { i64, i64 }
  %unwanted = icmp eq ptr %times, null
  br i1 %unwanted, label %done, label %read
read:
  %g = call i32 @clock_gettime(i32 1, ptr %now)
  %seconds = load i64, ptr %now
  %place_of_rest = getelementptr { i64, i64 }, ptr %now, i32 0, i32 1
  %rest = load i64, ptr %place_of_rest
  %whole = mul i64 %seconds, 1000000000
  %time = add i64 %whole, %rest
  %place = getelementptr i64, ptr %times, i64 %index
  store i64 %time, ptr %place
  br label %done
done:
  ret void
}

define internal void @run_step(ptr %at, ptr %slots, ptr %error) {
entry:
  %step = load %step, ptr %at
  %kernel = extractvalue %step %step, 0
  %numbers = extractvalue %step %step, 1
  %count = extractvalue %step %step, 2
  %scalars = extractvalue %step %step, 3
  %tasks = extractvalue %step %step, 4
  %grain = extractvalue %step %step, 5
  %buffers = alloca ptr, i64 %count
  %empty = icmp sle i64 %count, 0
  br i1 %empty, label %go, label %gather
gather:
  %k = phi i64 [ 0, %entry ], [ %k_next, %gather ]
  %number_at = getelementptr i32, ptr %numbers, i64 %k
  %number = load i32, ptr %number_at
  %wide = sext i32 %number to i64
  %slot = getelementptr ptr, ptr %slots, i64 %wide
  %buffer = load ptr, ptr %slot
  %buffer_at = getelementptr ptr, ptr %buffers, i64 %k
  store ptr %buffer, ptr %buffer_at
  %k_next = add i64 %k, 1
  %more = icmp slt i64 %k_next, %count
  br i1 %more, label %gather, label %go
go:
  call void @run_kernel(ptr %kernel, ptr %buffers, ptr %scalars, i64 %tasks, i64 %grain,
                        ptr %error)
  ret void
}

; Runs the steps in order; returns 0, or 1 + the number of the step that reported an error.
define i64 @metaop_run(ptr %steps, i64 %count, ptr %slots, ptr %error, ptr %times) {
entry:
  %before = atomicrmw add ptr @running, i32 1 monotonic
  call void @stamp(ptr %times, i64 0)
  br label %check
check:
  %k = phi i64 [ 0, %entry ], [ %done_steps, %one ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %one, label %finished
one:
  %at = getelementptr %step, ptr %steps, i64 %k
  call void @run_step(ptr %at, ptr %slots, ptr %error)
  %done_steps = add i64 %k, 1
  call void @stamp(ptr %times, i64 %done_steps)
  %code = load i64, ptr %error
  %fine = icmp eq i64 %code, 0
  br i1 %fine, label %check, label %failed
failed:
  br label %finished
finished:
  %result = phi i64 [ 0, %check ], [ %done_steps, %failed ]
  %during = atomicrmw sub ptr @running, i32 1 monotonic
  ret i64 %result
}
"""


def runtime_text() -> str:
    """The module with the functions named in `SYMBOLS`."""
    return pool_text() + _RUN
