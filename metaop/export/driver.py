"""The library function that runs a program: its launches in order, as LLVM IR.

Its arguments are the addresses of an arena, the inputs and the results. The arena holds the
program's temporaries, followed by scratch memory for one kernel at a time; nothing is allocated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from metaop.codegen.llvm.emission.scratch import SCRATCH
from metaop.export.integers import IntegerWriter
from metaop.unified_graph.shape_env import Guard, ShapeEnv

ALIGNMENT = 64
# The function's error codes besides 0; kernels report the first two.
REFUSED_VALUE, NO_SCRATCH, MISALIGNED, OTHER_SIZES = 1, 2, 3, 4

_DECLARATIONS = f"""
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare double @llvm.ceil.f64(double)
declare double @llvm.floor.f64(double)
declare double @llvm.pow.f64(double, double)

; The error block of a run: a code, three words about it, scratch memory and its bytes.
define ptr @{SCRATCH}(ptr %error, i64 %bytes) {{
  %room_at = getelementptr i64, ptr %error, i64 5
  %room = load i64, ptr %room_at
  %fits = icmp sle i64 %bytes, %room
  %block_at = getelementptr ptr, ptr %error, i64 4
  %block = load ptr, ptr %block_at
  %found = select i1 %fits, ptr %block, ptr null
  ret ptr %found
}}
"""


class Place(NamedTuple):
    """The location of a buffer: a parameter, or a global beginning with @, plus a byte offset."""

    base: str
    offset: Any = 0


class Launch(NamedTuple):
    """One launch of a kernel over all its tasks."""

    kernel: str
    buffers: Sequence[Place]
    arguments: Sequence[Any]
    tasks: Any


class Copy(NamedTuple):
    """Bytes that a result shares with an input or another result."""

    target: Place
    source: Place
    nbytes: Any


class Driver(NamedTuple):
    """The contents of the function: its first parameters are `sizes`, with bounds, then `pointers`.

    `symbols` has the operand of each symbol of `env`, by name. The arena has `arena_bytes` for
    temporaries, followed by `scratch_bytes`.
    """

    name: str
    sizes: Sequence[tuple[str, int, int | None, int]]
    pointers: Sequence[str]
    launches: Sequence[Launch]
    copies: Sequence[Copy]
    arena_bytes: Any
    scratch_bytes: Any
    env: ShapeEnv | None
    symbols: dict[str, str]

    @property
    def guards(self) -> list[Guard]:
        """The conditions on sizes, each once."""
        return [] if self.env is None else list(dict.fromkeys(self.env.guards))


def driver_text(driver: Driver) -> str:
    """The module of a driver: `NAME_run` and, with sizes, `NAME_arena_bytes`."""
    kernels = dict.fromkeys(launch.kernel for launch in driver.launches)
    parts = [f"declare void @{kernel}(ptr, ptr, i64, i64, ptr)" for kernel in kernels]
    parts += [_DECLARATIONS, _run(driver)]
    if driver.sizes:
        parts.append(_arena_bytes(driver))
    return "\n".join(parts)


def _arena_bytes(driver: Driver) -> str:
    parameters = ", ".join(f"i64 %{name}" for name, *_ in driver.sizes)
    lines = [f"define i64 @{driver.name}_arena_bytes({parameters}) {{", "entry:"]
    writer = IntegerWriter(lines, driver.symbols)
    total = writer.integer(driver.arena_bytes + driver.scratch_bytes)
    return "\n".join([*lines, f"  ret i64 {total}", "}", ""])


_ENDS = f"""  ret i32 0
misaligned:
  ret i32 {MISALIGNED}
sizes:
  ret i32 {OTHER_SIZES}
failed:
  %code = load i64, ptr %error
  %short = trunc i64 %code to i32
  ret i32 %short
}}
"""


def _run(driver: Driver) -> str:
    parameters = [f"i64 %{name}" for name, *_ in driver.sizes]
    parameters += [f"ptr %{name}" for name in driver.pointers]
    widest = max([len(launch.buffers) for launch in driver.launches], default=1)
    most = max([len(launch.arguments) for launch in driver.launches], default=0)
    lines = [
        f"define i32 @{driver.name}_run({', '.join(parameters)}) {{",
        "entry:",
        f"  %error = alloca [6 x i64], align {ALIGNMENT}",
        f"  %buffers = alloca [{max(widest, 1)} x ptr], align {ALIGNMENT}",
        f"  %scalars = alloca [{max(most, 1)} x i64], align {ALIGNMENT}",
    ]
    writer = IntegerWriter(lines, driver.symbols)
    address = writer.fresh("ptrtoint ptr %arena to i64")
    rest = writer.fresh(f"and i64 {address}, {ALIGNMENT - 1}")
    _go_on(writer, writer.fresh(f"icmp eq i64 {rest}, 0"), "misaligned")
    _check_sizes(driver, writer)
    _give_scratch(driver, writer)
    for launch in driver.launches:
        _launch(launch, writer)
    for copy in driver.copies:
        target, source = _address(writer, copy.target), _address(writer, copy.source)
        operands = f"ptr {target}, ptr {source}, i64 {writer.integer(copy.nbytes)}, i1 false"
        lines.append(f"  call void @llvm.memcpy.p0.p0.i64({operands})")
    return "\n".join([*lines, _ENDS])


def _give_scratch(driver: Driver, writer: IntegerWriter) -> None:
    """Fills the error block: no error yet, and scratch memory after the temporaries."""
    block = _address(writer, Place("arena", driver.arena_bytes))
    room = writer.integer(driver.scratch_bytes)
    writer.lines.append("  store i64 0, ptr %error")
    for word, value in ((4, f"ptr {block}"), (5, f"i64 {room}")):
        place = writer.fresh(f"getelementptr i64, ptr %error, i64 {word}")
        writer.lines.append(f"  store {value}, ptr {place}")


def _check_sizes(driver: Driver, writer: IntegerWriter) -> None:
    for name, least, most, multiple in driver.sizes:
        _go_on(writer, writer.fresh(f"icmp sge i64 %{name}, {least}"), "sizes")
        if most is not None:
            _go_on(writer, writer.fresh(f"icmp sle i64 %{name}, {most}"), "sizes")
        if multiple > 1:
            over = writer.fresh(f"srem i64 %{name}, {multiple}")
            _go_on(writer, writer.fresh(f"icmp eq i64 {over}, 0"), "sizes")
    for guard in driver.guards:
        _go_on(writer, writer.holds(guard), "sizes")


def _go_on(writer: IntegerWriter, condition: str, otherwise: str) -> None:
    """Continues if a condition holds."""
    label = f"on{len(writer.lines)}"
    writer.lines += [f"  br i1 {condition}, label %{label}, label %{otherwise}", f"{label}:"]


def _address(writer: IntegerWriter, place: Place) -> str:
    offset = writer.integer(place.offset)
    base = place.base if place.base.startswith("@") else f"%{place.base}"
    return base if offset == "0" else writer.fresh(f"getelementptr i8, ptr {base}, i64 {offset}")


def _launch(launch: Launch, writer: IntegerWriter) -> None:
    for number, place in enumerate(launch.buffers):
        address = _address(writer, place)
        at = writer.fresh(f"getelementptr ptr, ptr %buffers, i64 {number}")
        writer.lines.append(f"  store ptr {address}, ptr {at}")
    for number, argument in enumerate(launch.arguments):
        value = writer.integer(argument)
        at = writer.fresh(f"getelementptr i64, ptr %scalars, i64 {number}")
        writer.lines.append(f"  store i64 {value}, ptr {at}")
    tasks = writer.integer(launch.tasks)
    writer.lines.append(
        f"  call void @{launch.kernel}(ptr %buffers, ptr %scalars, i64 0, i64 {tasks}, ptr %error)"
    )
    code = writer.fresh("load i64, ptr %error")
    _go_on(writer, writer.fresh(f"icmp eq i64 {code}, 0"), "failed")
