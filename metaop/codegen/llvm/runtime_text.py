"""The LLVM IR text of the loop that runs a table of steps, on top of the thread pool."""

from __future__ import annotations

from metaop.codegen.llvm.pool_text import pool_text
from metaop.codegen.llvm.system import System

SYMBOLS = ("metaop_run", "metaop_set_threads", "metaop_start")
STEP_FIELDS = 6  # words of 8 bytes in %step, see below

_RUN = """
; kernel, slot numbers, their count, scalars, tasks, grain
%step = type { ptr, ptr, i64, ptr, i64, i64 }

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

; What the integer arguments of a step without a kernel say: from here to the first row of what it
; repeats, how often (negative: no bound), the slot of the guard (negative: none), the slot of the
; position, its first value and its stride; how many rows run once, and how many every time; how
; many rules there are of each list that follows: addresses that are set once, addresses that move,
; copies after every step, copies at the end.
%plan = type { i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64 }
; slot, slot of the base, offset
%place = type { i64, i64, i64 }
; slot, slot of the base, start, stride, mask, first: at step t, start + (t & mask) * stride; at the
; first step the address in the slot first, unless that is negative
%move = type { i64, i64, i64, i64, i64, i64 }
; slot to, slot from, bytes
%copy = type { i64, i64, i64 }

; Writes the time in nanoseconds to %times[%index] unless %times is null.
define internal void @stamp(ptr %times, i64 %index) {
  %unwanted = icmp eq ptr %times, null
  br i1 %unwanted, label %done, label %read
read:
  %time = call i64 @nanoseconds()
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
  %repeats = icmp eq ptr %kernel, null
  br i1 %repeats, label %again, label %launch
again:
  call void @repeat(ptr %at, ptr %scalars, ptr %slots, ptr %error)
  ret void
launch:
  %buffers = alloca ptr, i64 %count
  %empty = icmp sle i64 %count, 0
  br i1 %empty, label %go, label %gather
gather:
  %k = phi i64 [ 0, %launch ], [ %k_next, %gather ]
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

; Whether some steps in order met an error, after which none runs.
define internal i1 @run_rows(ptr %steps, i64 %count, ptr %slots, ptr %error) {
entry:
  br label %check
check:
  %k = phi i64 [ 0, %entry ], [ %k_next, %one ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %one, label %fine
one:
  %at = getelementptr %step, ptr %steps, i64 %k
  call void @run_step(ptr %at, ptr %slots, ptr %error)
  %k_next = add i64 %k, 1
  %code = load i64, ptr %error
  %ok = icmp eq i64 %code, 0
  br i1 %ok, label %check, label %failed
fine:
  ret i1 false
failed:
  ret i1 true
}

; Whether the flag in a slot is set; a negative number of a slot counts as set.
define internal i1 @goes_on(i64 %guard, ptr %slots) {
  %unguarded = icmp slt i64 %guard, 0
  br i1 %unguarded, label %yes, label %look
look:
  %guard_at = getelementptr ptr, ptr %slots, i64 %guard
  %flag_at = load ptr, ptr %guard_at
  %flag = load i8, ptr %flag_at
  %set = icmp ne i8 %flag, 0
  ret i1 %set
yes:
  ret i1 true
}

define internal void @repeat(ptr %at, ptr %arguments, ptr %slots, ptr %error) {
entry:
  %plan = load %plan, ptr %arguments
  %way = extractvalue %plan %plan, 0
  %length = extractvalue %plan %plan, 1
  %guard = extractvalue %plan %plan, 2
  %index = extractvalue %plan %plan, 3
  %first = extractvalue %plan %plan, 4
  %stride = extractvalue %plan %plan, 5
  %once = extractvalue %plan %plan, 6
  %every = extractvalue %plan %plan, 7
  %place_count = extractvalue %plan %plan, 8
  %move_count = extractvalue %plan %plan, 9
  %between_count = extractvalue %plan %plan, 10
  %after_count = extractvalue %plan %plan, 11
  %places = getelementptr %plan, ptr %arguments, i64 1
  %moves = getelementptr %place, ptr %places, i64 %place_count
  %between = getelementptr %move, ptr %moves, i64 %move_count
  %after = getelementptr %copy, ptr %between, i64 %between_count
  %rows = getelementptr %step, ptr %at, i64 %way
  %rest = getelementptr %step, ptr %rows, i64 %once
  call void @set_places(ptr %places, i64 %place_count, ptr %slots)
  call void @move_along(ptr %moves, i64 %move_count, ptr %slots, i64 0)
  %empty = icmp eq i64 %length, 0
  br i1 %empty, label %finish, label %ask
ask:
  %starts = call i1 @goes_on(i64 %guard, ptr %slots)
  br i1 %starts, label %prepare, label %finish
prepare:
  %bad = call i1 @run_rows(ptr %rows, i64 %once, ptr %slots, ptr %error)
  br i1 %bad, label %done, label %one
one:
  %t = phi i64 [ 0, %prepare ], [ %t_next, %go_on ]
  %index_at = getelementptr ptr, ptr %slots, i64 %index
  %position_at = load ptr, ptr %index_at
  %steps = mul i64 %t, %stride
  %position = add i64 %first, %steps
  store i64 %position, ptr %position_at
  %failed = call i1 @run_rows(ptr %rest, i64 %every, ptr %slots, ptr %error)
  br i1 %failed, label %done, label %go_on
go_on:
  call void @copy_all(ptr %between, i64 %between_count, ptr %slots)
  %t_next = add i64 %t, 1
  call void @move_along(ptr %moves, i64 %move_count, ptr %slots, i64 %t_next)
  %reached = icmp eq i64 %t_next, %length
  %more = call i1 @goes_on(i64 %guard, ptr %slots)
  %not_reached = xor i1 %reached, true
  %again = and i1 %more, %not_reached
  br i1 %again, label %one, label %finish
finish:
  call void @copy_all(ptr %after, i64 %after_count, ptr %slots)
  br label %done
done:
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

_SET_PLACE = """
  %slot = extractvalue %place %rule, 0
  %base = extractvalue %place %rule, 1
  %offset = extractvalue %place %rule, 2
  %base_at = getelementptr i64, ptr %slots, i64 %base
  %start = load i64, ptr %base_at
  %address = add i64 %start, %offset
  %slot_at = getelementptr i64, ptr %slots, i64 %slot
  store i64 %address, ptr %slot_at
"""

_MOVE_ALONG = """
  %slot = extractvalue %move %rule, 0
  %base = extractvalue %move %rule, 1
  %start = extractvalue %move %rule, 2
  %stride = extractvalue %move %rule, 3
  %mask = extractvalue %move %rule, 4
  %first_slot = extractvalue %move %rule, 5
  %base_at = getelementptr i64, ptr %slots, i64 %base
  %whole = load i64, ptr %base_at
  %turn = and i64 %t, %mask
  %way = mul i64 %turn, %stride
  %begin = add i64 %whole, %start
  %later = add i64 %begin, %way
  %is_later = icmp ne i64 %t, 0
  %has_none = icmp slt i64 %first_slot, 0
  %moves = or i1 %is_later, %has_none
  %first_number = select i1 %has_none, i64 %base, i64 %first_slot
  %first_at = getelementptr i64, ptr %slots, i64 %first_number
  %first = load i64, ptr %first_at
  %address = select i1 %moves, i64 %later, i64 %first
  %slot_at = getelementptr i64, ptr %slots, i64 %slot
  store i64 %address, ptr %slot_at
"""

_COPY = """
  %to = extractvalue %copy %rule, 0
  %from = extractvalue %copy %rule, 1
  %bytes = extractvalue %copy %rule, 2
  %to_at = getelementptr ptr, ptr %slots, i64 %to
  %target = load ptr, ptr %to_at
  %from_at = getelementptr ptr, ptr %slots, i64 %from
  %source = load ptr, ptr %from_at
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %source, i64 %bytes, i1 false)
"""


def _for_each(name: str, rule: str, body: str, further: str = "") -> str:
    """A function that carries out a text for each of some rules, with `further` parameters."""
    return f"""
define internal void @{name}(ptr %rules, i64 %count, ptr %slots{further}) {{
entry:
  br label %check
check:
  %k = phi i64 [ 0, %entry ], [ %k_next, %one ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %one, label %done
one:
  %at = getelementptr %{rule}, ptr %rules, i64 %k
  %rule = load %{rule}, ptr %at
{body}
  %k_next = add i64 %k, 1
  br label %check
done:
  ret void
}}
"""


def runtime_text(system: System) -> str:
    """The module with the functions named in `SYMBOLS`, for a system."""
    rules = (
        _for_each("set_places", "place", _SET_PLACE),
        _for_each("move_along", "move", _MOVE_ALONG, ", i64 %t"),
        _for_each("copy_all", "copy", _COPY),
    )
    return "".join((pool_text(system), _RUN, *rules))
