"""The function that gives kernels their scratch memory, and keeps it for the next ones.

The C library returns large blocks to the system, which clears each page again when it is next
touched. That takes longer than most kernels.
"""

from __future__ import annotations

SYMBOL = "metaop_scratch_block"
# As many blocks as threads may run kernels at a time, and the most bytes of one that is kept.
_KEPT, _MOST_BYTES = 64, 64 << 20
# Before a block comes its size, on a cache line of its own.
_HEADER = 64

_TEXT = """
@blocks = internal global [$KEPT x i64] zeroinitializer, align 64

declare ptr @malloc(i64)
declare void @free(ptr)

; Writes the address of so many bytes to %place, null if there are none; with 0 bytes, takes the
; block that it wrote there before back.
define void @metaop_scratch_block(ptr %place, i64 %bytes) {
entry:
  %gives = icmp eq i64 %bytes, 0
  br i1 %gives, label %given, label %look
look:
  %number = phi i64 [ 0, %entry ], [ %following, %next ]
  %slot = getelementptr i64, ptr @blocks, i64 %number
  %seen = load atomic i64, ptr %slot monotonic, align 8
  %none = icmp eq i64 %seen, 0
  br i1 %none, label %next, label %take
take:
  %mine = atomicrmw xchg ptr %slot, i64 0 acq_rel
  %gone = icmp eq i64 %mine, 0
  br i1 %gone, label %next, label %compare
compare:
  %old = inttoptr i64 %mine to ptr
  %room = load i64, ptr %old
  %fits = icmp uge i64 %room, %bytes
  br i1 %fits, label %found, label %drop
drop:
  call void @free(ptr %old)
  br label %next
next:
  %following = add i64 %number, 1
  %more = icmp ult i64 %following, $KEPT
  br i1 %more, label %look, label %fresh
fresh:
  %whole = add i64 %bytes, $HEADER
  %new = call ptr @malloc(i64 %whole)
  %failed = icmp eq ptr %new, null
  br i1 %failed, label %nothing, label %made
nothing:
  store ptr null, ptr %place
  ret void
made:
  store i64 %bytes, ptr %new
  br label %found
found:
  %block = phi ptr [ %old, %compare ], [ %new, %made ]
  %start = getelementptr i8, ptr %block, i64 $HEADER
  store ptr %start, ptr %place
  ret void

given:
  %inside = load ptr, ptr %place
  %back = getelementptr i8, ptr %inside, i64 -$HEADER
  %size = load i64, ptr %back
  %large = icmp ugt i64 %size, $MOST
  %word = ptrtoint ptr %back to i64
  br i1 %large, label %release, label %put
put:
  %index = phi i64 [ 0, %given ], [ %later, %occupied ]
  %home = getelementptr i64, ptr @blocks, i64 %index
  %swap = cmpxchg ptr %home, i64 0, i64 %word acq_rel monotonic
  %kept = extractvalue { i64, i1 } %swap, 1
  br i1 %kept, label %done, label %occupied
occupied:
  %later = add i64 %index, 1
  %left = icmp ult i64 %later, $KEPT
  br i1 %left, label %put, label %release
release:
  call void @free(ptr %back)
  br label %done
done:
  ret void
}
"""


def text_of(symbol: str) -> str | None:
    """The module that defines the function of this name, or None for another name."""
    if symbol != SYMBOL:
        return None
    values = {"$KEPT": _KEPT, "$MOST": _MOST_BYTES, "$HEADER": _HEADER}
    text = _TEXT
    for name, value in values.items():
        text = text.replace(name, str(value))
    return text
