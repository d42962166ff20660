"""The LLVM IR text of the thread pool.

The pool runs one job at a time. Participants (the caller and workers) take chunks of tasks from a
shared counter. A worker joins an open job by counting itself in. The caller closes the job when no
chunk is left and waits only for workers that are still inside, so a worker that wakes too late
costs nothing. Workers without a job spin for a few microseconds, or longer while a program runs,
because its next job is near. Then they sleep in the operating system on the word `generation`
(`waiting_text.py`).
"""

from __future__ import annotations

from metaop.codegen.llvm.system import System
from metaop.codegen.llvm.waiting_text import waiting_text

# Rounds of spinning before a thread sleeps: while no program runs, and between the kernels of one,
# because waking takes longer than most kernels. A round is a pause instruction, 15 to 45 ns.
_SPIN_ROUNDS = 150
_SPIN_ROUNDS_INSIDE = 3000

# The instructions `pause` and `yield`.
_PAUSE = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}

# The word `state`: workers inside the job in the low bits, and these flags.
_OPEN = 1 << 30  # workers may enter
_AWAITED = 1 << 29  # the caller sleeps until the last worker leaves
_INSIDE = _AWAITED - 1

_DATA = """
; a counter alone on its pair of cache lines
%line = type { i64, [120 x i8] }

; first task nobody has taken
@next = internal global %line zeroinitializer, align 128
; counts jobs; workers sleep on it
@generation = internal global %bed zeroinitializer, align 128
; OPEN, AWAITED, workers inside
@state = internal global %bed zeroinitializer, align 128
; workers in or near the kernel's wait
@sleepers = internal global %line zeroinitializer, align 128
; programs that are running
@running = internal global %line zeroinitializer, align 128
; 1 while a caller owns the pool
@busy = internal global %line zeroinitializer, align 128
; participants allowed, caller included
@threads = internal global i64 1
; workers started so far
@workers = internal global i64 0

; the job, written while it is closed
@kernel = internal global ptr null
@buffers = internal global ptr null
@scalars = internal global ptr null
@error = internal global ptr null
@tasks = internal global i64 0
@grain = internal global i64 0

declare i64 @llvm.umin.i64(i64, i64)
"""

_WORK = """
; Takes chunks of the job until none is left.
define internal void @work() {
  %kernel = load ptr, ptr @kernel
  %buffers = load ptr, ptr @buffers
  %scalars = load ptr, ptr @scalars
  %error = load ptr, ptr @error
  %tasks = load i64, ptr @tasks
  %grain = load i64, ptr @grain
  br label %take
take:
  %begin = atomicrmw add ptr @next, i64 %grain monotonic
  %left = icmp slt i64 %begin, %tasks
  br i1 %left, label %chunk, label %done
chunk:
  %after = add i64 %begin, %grain
  %end = call i64 @llvm.umin.i64(i64 %after, i64 %tasks)
  call void %kernel(ptr %buffers, ptr %scalars, i64 %begin, i64 %end, ptr %error)
  br label %take
done:
  ret void
}

; Counts the calling worker into the job if it is open and has room.
define internal i1 @enter() {
  %threads = load atomic i64, ptr @threads monotonic, align 8
  %room = trunc i64 %threads to i32
  br label %look
look:
  %old = load atomic i32, ptr @state acquire, align 4
  %open = and i32 %old, $OPEN
  %closed = icmp eq i32 %open, 0
  %inside = and i32 %old, $INSIDE
  %with_me = add i32 %inside, 2 ; the caller takes part too
  %full = icmp sgt i32 %with_me, %room
  %refused = or i1 %closed, %full
  br i1 %refused, label %no, label %try
try:
  %new = add i32 %old, 1
  %swap = cmpxchg ptr @state, i32 %old, i32 %new acq_rel acquire
  %entered = extractvalue { i32, i1 } %swap, 1
  br i1 %entered, label %yes, label %look
yes:
  ret i1 true
no:
  ret i1 false
}

define internal void @leave() {
  %old = atomicrmw sub ptr @state, i32 1 seq_cst
  %new = sub i32 %old, 1
  %last = icmp eq i32 %new, $AWAITED
  br i1 %last, label %tell, label %done
tell:
  call void @wake(ptr @state, i64 1)
  br label %done
done:
  ret void
}
"""

_WORKER = """
; Returns the number of the first job that is newer than %seen.
define internal i32 @await_job(i32 %seen) {
entry:
  br label %spin
spin:
  %round = phi i32 [ 0, %entry ], [ %next_round, %pause ]
  %now = load atomic i32, ptr @generation acquire, align 4
  %same = icmp eq i32 %now, %seen
  br i1 %same, label %pause, label %fresh
pause:
  $PAUSE
  %next_round = add i32 %round, 1
  %programs = load atomic i32, ptr @running monotonic, align 4
  %idle = icmp eq i32 %programs, 0
  %rounds = select i1 %idle, i32 $SPIN_ROUNDS, i32 $SPIN_INSIDE
  %patient = icmp slt i32 %next_round, %rounds
  br i1 %patient, label %spin, label %sleep
sleep:
  %a = atomicrmw add ptr @sleepers, i32 1 seq_cst
  call void @sleep_while(ptr @generation, i32 %seen)
  %b = atomicrmw sub ptr @sleepers, i32 1 seq_cst
  %later = load atomic i32, ptr @generation acquire, align 4
  %again = icmp eq i32 %later, %seen
  br i1 %again, label %sleep, label %awake
fresh:
  ret i32 %now
awake:
  ret i32 %later
}

define internal ptr @worker(ptr %born) {
entry:
  %first = ptrtoint ptr %born to i32
  br label %rest
rest:
  %seen = phi i32 [ %first, %entry ], [ %now, %waken ], [ %now, %job ]
  %now = call i32 @await_job(i32 %seen)
  br label %waken
waken:
  %entered = call i1 @enter()
  br i1 %entered, label %job, label %rest
job:
  call void @work()
  call void @leave()
  br label %rest
}

define internal void @hire(i64 %wanted) {
entry:
  br label %check
check:
  %have = load i64, ptr @workers
  %enough = icmp sge i64 %have, %wanted
  br i1 %enough, label %done, label %create
create:
  ; a worker starts from the job before the one about to be published, so it joins that one
  %born = load atomic i32, ptr @generation monotonic, align 4
  %wide = zext i32 %born to i64
  %argument = inttoptr i64 %wide to ptr
  %ok = call i1 @start_worker(ptr %argument)
  br i1 %ok, label %count, label %done
count:
  %more = add i64 %have, 1
  store i64 %more, ptr @workers
  br label %check
done:
  ret void
}
"""

_PARALLEL = """
; Publishes the job written to the globals and wakes at most %helpers sleeping workers.
define internal void @open(i64 %helpers) {
  store atomic i64 0, ptr @next monotonic, align 8
  store atomic i32 $OPEN, ptr @state release, align 4
  %g = atomicrmw add ptr @generation, i32 1 seq_cst
  %asleep = load atomic i32, ptr @sleepers seq_cst, align 4
  %none = icmp eq i32 %asleep, 0
  br i1 %none, label %done, label %rouse
rouse:
  call void @wake(ptr @generation, i64 %helpers)
  br label %done
done:
  ret void
}

; Lets nobody else in and returns when the last worker has left.
define internal void @close() {
entry:
  %o = atomicrmw and ptr @state, i32 $INSIDE seq_cst
  br label %spin
spin:
  %round = phi i32 [ 0, %entry ], [ %next_round, %pause ]
  %now = load atomic i32, ptr @state acquire, align 4
  %empty = icmp eq i32 %now, 0
  br i1 %empty, label %done, label %pause
pause:
  $PAUSE
  %next_round = add i32 %round, 1
  %patient = icmp slt i32 %next_round, $SPIN_INSIDE
  br i1 %patient, label %spin, label %announce
announce:
  %f = atomicrmw or ptr @state, i32 $AWAITED seq_cst
  br label %look
look:
  %then = load atomic i32, ptr @state acquire, align 4
  %left = icmp eq i32 %then, $AWAITED
  br i1 %left, label %done, label %sleep
sleep:
  call void @sleep_while(ptr @state, i32 %then)
  br label %look
done:
  ret void
}

define internal void @run_parallel(ptr %kernel, ptr %buffers, ptr %scalars, i64 %tasks,
                                   i64 %grain, i64 %helpers, ptr %error) {
  store ptr %kernel, ptr @kernel
  store ptr %buffers, ptr @buffers
  store ptr %scalars, ptr @scalars
  store ptr %error, ptr @error
  store i64 %tasks, ptr @tasks
  store i64 %grain, ptr @grain
  %have = load i64, ptr @workers
  %few = icmp slt i64 %have, %helpers
  br i1 %few, label %more, label %start
more:
  call void @hire(i64 %helpers)
  br label %start
start:
  call void @open(i64 %helpers)
  call void @work()
  call void @close()
  ret void
}

; Runs one kernel over all its tasks: on the pool, or here when the work is small, one thread is
; allowed, or another caller owns the pool.
define internal void @run_kernel(ptr %kernel, ptr %buffers, ptr %scalars, i64 %tasks, i64 %grain,
                                 ptr %error) {
  %threads = load atomic i64, ptr @threads monotonic, align 8
  %alone = icmp sle i64 %threads, 1
  %small = icmp sle i64 %tasks, %grain
  %serial = or i1 %alone, %small
  br i1 %serial, label %here, label %ask
ask:
  %swap = cmpxchg ptr @busy, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %swap, 1
  br i1 %mine, label %pool, label %here
pool:
  %last_task = sub i64 %tasks, 1
  %other_chunks = udiv i64 %last_task, %grain
  %other_threads = sub i64 %threads, 1
  %helpers = call i64 @llvm.umin.i64(i64 %other_chunks, i64 %other_threads)
  call void @run_parallel(ptr %kernel, ptr %buffers, ptr %scalars, i64 %tasks, i64 %grain,
                          i64 %helpers, ptr %error)
  store atomic i32 0, ptr @busy release, align 4
  ret void
here:
  %any = icmp sgt i64 %tasks, 0
  br i1 %any, label %all, label %done
all:
  call void %kernel(ptr %buffers, ptr %scalars, i64 0, i64 %tasks, ptr %error)
  br label %done
done:
  ret void
}

define void @metaop_set_threads(i64 %count) {
  store atomic i64 %count, ptr @threads monotonic, align 8
  ret void
}

; Makes a pool without workers, at first and in the child of a fork: that has none of its parent's
; threads and forgets what they were doing.
define void @metaop_start() {
  store i64 0, ptr @workers
  store i64 0, ptr @sleepers
  store i64 0, ptr @state
  store i64 0, ptr @busy
  store i64 0, ptr @running
  call void @make_bed(ptr @generation)
  call void @make_bed(ptr @state)
  ret void
}
"""


def pool_text(system: System) -> str:
    """Definitions for a system.

    `run_kernel(kernel, buffers, scalars, tasks, grain, error)` runs all tasks of a kernel,
    `metaop_set_threads(count)` bounds the participants of a job. `metaop_start()` must be called
    first, and gives a forked child a pool of its own.
    """
    declaration, pause = _PAUSE[system.processor]
    values = {
        "$PAUSE": pause,
        "$OPEN": _OPEN,
        "$AWAITED": _AWAITED,
        "$INSIDE": _INSIDE,
        "$SPIN_ROUNDS": _SPIN_ROUNDS,
        "$SPIN_INSIDE": _SPIN_ROUNDS_INSIDE,
    }
    text = _DATA + _WORK + _WORKER + _PARALLEL
    for name, value in values.items():
        text = text.replace(name, str(value))
    return "\n".join((waiting_text(system), declaration, text))
