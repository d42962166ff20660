"""The LLVM IR text of system-specific functions: waiting, waking, threads and the clock.

`sleep_while(word, value)` returns at once if the word has another value, else when it is woken, or
spuriously. `wake(word, count)` wakes at most `count` threads. A waker changes the word first, so no
thread sleeps on a stale value. Words on which threads sleep are `%bed`s.
"""

from __future__ import annotations

from metaop.codegen.llvm.system import System

# The stack of each worker on every system: kernels keep buffers of more than 64 KiB elsewhere.
_STACK_BYTES = 8 << 20

_FUTEX_NUMBER = {"x86_64": 202, "aarch64": 98}
# SIG_SETMASK, and the clock of Python's perf_counter: CLOCK_MONOTONIC, CLOCK_UPTIME_RAW.
_SET_MASK = {"linux": 2, "macos": 3}
_CLOCK = {"linux": 1, "macos": 8}

_FUTEX = """
%bed = type { i64, [120 x i8] }

declare i64 @syscall(i64, ...)

define internal void @sleep_while(ptr %word, i32 %value) {
  call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %word, i64 128, i32 %value, ptr null, ptr null,
                               i64 0) ; 128 is FUTEX_WAIT | FUTEX_PRIVATE_FLAG
  ret void
}

define internal void @wake(ptr %word, i64 %count) {
  call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %word, i64 129, i64 %count, ptr null, ptr null,
                               i64 0) ; 129 is FUTEX_WAKE | FUTEX_PRIVATE_FLAG
  ret void
}

define internal void @make_bed(ptr %word) {
  ret void
}
"""

# A mutex and a condition follow the word; neither has more than 64 bytes on any of these systems.
_CONDITIONS = """
%bed = type { i64, [120 x i8], [64 x i8], [64 x i8] }

declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)

define internal void @sleep_while(ptr %word, i32 %value) {
  %mutex = getelementptr %bed, ptr %word, i32 0, i32 2
  %condition = getelementptr %bed, ptr %word, i32 0, i32 3
  %a = call i32 @pthread_mutex_lock(ptr %mutex)
  %now = load atomic i32, ptr %word seq_cst, align 4
  %same = icmp eq i32 %now, %value
  br i1 %same, label %wait, label %done
wait:
  %b = call i32 @pthread_cond_wait(ptr %condition, ptr %mutex)
  br label %done
done:
  %c = call i32 @pthread_mutex_unlock(ptr %mutex)
  ret void
}

; Under the mutex, because a sleeper may have read the word and not wait yet.
define internal void @wake(ptr %word, i64 %count) {
entry:
  %mutex = getelementptr %bed, ptr %word, i32 0, i32 2
  %condition = getelementptr %bed, ptr %word, i32 0, i32 3
  %a = call i32 @pthread_mutex_lock(ptr %mutex)
  br label %check
check:
  %k = phi i64 [ 0, %entry ], [ %next, %one ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %one, label %done
one:
  %b = call i32 @pthread_cond_signal(ptr %condition)
  %next = add i64 %k, 1
  br label %check
done:
  %c = call i32 @pthread_mutex_unlock(ptr %mutex)
  ret void
}

define internal void @make_bed(ptr %word) {
  %mutex = getelementptr %bed, ptr %word, i32 0, i32 2
  %condition = getelementptr %bed, ptr %word, i32 0, i32 3
  %a = call i32 @pthread_mutex_init(ptr %mutex, ptr null)
  %b = call i32 @pthread_cond_init(ptr %condition, ptr null)
  ret void
}
"""

_ADDRESSES = """
%bed = type { i64, [120 x i8] }

declare i32 @WaitOnAddress(ptr, ptr, i64, i32)
declare void @WakeByAddressSingle(ptr)

define internal void @sleep_while(ptr %word, i32 %value) {
  %place = alloca i32
  store i32 %value, ptr %place
  %a = call i32 @WaitOnAddress(ptr %word, ptr %place, i64 4, i32 -1)
  ret void
}

define internal void @wake(ptr %word, i64 %count) {
entry:
  br label %check
check:
  %k = phi i64 [ 0, %entry ], [ %next, %one ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %one, label %done
one:
  call void @WakeByAddressSingle(ptr %word)
  %next = add i64 %k, 1
  br label %check
done:
  ret void
}

define internal void @make_bed(ptr %word) {
  ret void
}
"""

_POSIX = """
declare i32 @clock_gettime(i32, ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_attr_destroy(ptr)

; Whether a worker was started, with all signals blocked: Python's handlers run elsewhere.
define internal i1 @start_worker(ptr %born) {
  %thread = alloca i64
  %attributes = alloca [16 x i64]
  %blocked = alloca [16 x i64]
  %previous = alloca [16 x i64]
  store [16 x i64] [$ALL_SIGNALS], ptr %blocked
  %a = call i32 @pthread_attr_init(ptr %attributes)
  %b = call i32 @pthread_attr_setstacksize(ptr %attributes, i64 $STACK_BYTES)
  %c = call i32 @pthread_sigmask(i32 $SET_MASK, ptr %blocked, ptr %previous)
  %failed = call i32 @pthread_create(ptr %thread, ptr %attributes, ptr @worker, ptr %born)
  %d = call i32 @pthread_sigmask(i32 $SET_MASK, ptr %previous, ptr null)
  %e = call i32 @pthread_attr_destroy(ptr %attributes)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %leave_alone, label %done
leave_alone:
  %id = load i64, ptr %thread
  %f = call i32 @pthread_detach(i64 %id)
  br label %done
done:
  ret i1 %ok
}

define internal i64 @nanoseconds() {
  %now = alloca { i64, i64 }
  %g = call i32 @clock_gettime(i32 $CLOCK, ptr %now)
  %seconds = load i64, ptr %now
  %place_of_rest = getelementptr { i64, i64 }, ptr %now, i32 0, i32 1
  %rest = load i64, ptr %place_of_rest
  %whole = mul i64 %seconds, 1000000000
  %time = add i64 %whole, %rest
  ret i64 %time
}
"""

_WINDOWS = """
declare ptr @CreateThread(ptr, i64, ptr, ptr, i32, ptr)
declare i32 @CloseHandle(ptr)
declare i32 @QueryPerformanceCounter(ptr)
declare i32 @QueryPerformanceFrequency(ptr)

; Whether a worker was started.
define internal i1 @start_worker(ptr %born) {
  %thread = call ptr @CreateThread(ptr null, i64 $STACK_BYTES, ptr @worker, ptr %born, i32 65536,
                                   ptr null) ; 65536 is STACK_SIZE_PARAM_IS_A_RESERVATION
  %ok = icmp ne ptr %thread, null
  br i1 %ok, label %leave_alone, label %done
leave_alone:
  %a = call i32 @CloseHandle(ptr %thread)
  br label %done
done:
  ret i1 %ok
}

define internal i64 @nanoseconds() {
  %count_at = alloca i64
  %rate_at = alloca i64
  %a = call i32 @QueryPerformanceCounter(ptr %count_at)
  %b = call i32 @QueryPerformanceFrequency(ptr %rate_at)
  %count = load i64, ptr %count_at
  %rate = load i64, ptr %rate_at
  %seconds = udiv i64 %count, %rate
  %whole = mul i64 %seconds, 1000000000
  %ticks = urem i64 %count, %rate
  %scaled = mul i64 %ticks, 1000000000
  %rest = udiv i64 %scaled, %rate
  %time = add i64 %whole, %rest
  ret i64 %time
}
"""


def waiting_text(system: System) -> str:
    """The definitions for a system; they start `@worker`, which is defined elsewhere."""
    if system.name == "windows":
        return (_ADDRESSES + _WINDOWS).replace("$STACK_BYTES", str(_STACK_BYTES))
    text = (_FUTEX if system.has_futex else _CONDITIONS) + _POSIX
    values = {
        "$FUTEX": _FUTEX_NUMBER[system.processor],
        "$STACK_BYTES": _STACK_BYTES,
        "$SET_MASK": _SET_MASK[system.name],
        "$CLOCK": _CLOCK[system.name],
        "$ALL_SIGNALS": ", ".join(["i64 -1"] * 16),
    }
    for name, value in values.items():
        text = text.replace(name, str(value))
    return text
