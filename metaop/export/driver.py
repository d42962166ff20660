"""The library function that runs a program: its launches in order, as LLVM IR.

Its arguments are the addresses of an arena, the inputs and the results. The arena holds the
program's temporaries, followed by scratch memory for one kernel at a time; nothing is allocated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from metaop.codegen.llvm.emission.scratch import SCRATCH
from metaop.export.integers import IntegerWriter
from metaop.export.launches import Launch, Place, Repeat, address, copy, every_launch, go_on, write
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


class Copy(NamedTuple):
    """Bytes that a result shares with an input or another result."""

    target: Place
    source: Place
    nbytes: Any


class Driver(NamedTuple):
    """A variant of the function, for sizes of which some are `fixed`.

    Its first parameters are all `sizes`, with bounds, then `pointers`. `symbols` has the operand of
    each symbol of `env`, by name. The arena has `arena_bytes` for temporaries, followed by
    `scratch_bytes`. The `loops` keep so many addresses in `slots`.
    """

    fixed: Mapping[str, int]
    sizes: Sequence[tuple[str, int, int | None, int]]
    pointers: Sequence[str]
    launches: Sequence[Launch | Repeat]
    copies: Sequence[Copy]
    arena_bytes: Any
    scratch_bytes: Any
    env: ShapeEnv | None
    symbols: dict[str, str]
    loops: int
    slots: int

    @property
    def guards(self) -> list[Guard]:
        """The conditions on sizes, each once."""
        return [] if self.env is None else list(dict.fromkeys(self.env.guards))


def driver_text(name: str, drivers: Sequence[Driver]) -> str:
    """The module of the drivers of a library: `NAME_run` and, with sizes, `NAME_arena_bytes`.

    A call runs the first driver whose fixed sizes it has; the last one has none.
    """
    launches = (launch for driver in drivers for launch in every_launch(driver.launches))
    kernels = dict.fromkeys(launch.kernel for launch in launches)
    parts = [f"declare void @{kernel}(ptr, ptr, i64, i64, ptr)" for kernel in kernels]
    parts.append(_DECLARATIONS)
    if len(drivers) == 1:
        parts.append(_run(f"{name}_run", drivers[0]))
    else:
        runs = [f"{name}_run_{number}" for number, _ in enumerate(drivers)]
        parts += map(_run, runs, drivers)
        parts.append(_chosen("i32", f"{name}_run", runs, drivers, drivers[0].pointers))
    if drivers[0].sizes:
        totals = [f"{name}_arena_bytes_{number}" for number, _ in enumerate(drivers)]
        parts += map(_arena_bytes, totals, drivers)
        parts.append(_chosen("i64", f"{name}_arena_bytes", totals, drivers, ()))
    return "\n".join(parts)


def _chosen(
    result: str,
    name: str,
    functions: Sequence[str],
    drivers: Sequence[Driver],
    pointers: Sequence[str],
) -> str:
    """The function that calls the first one whose driver has the sizes of the call."""
    sizes = [f"i64 %{size}" for size, *_ in drivers[0].sizes]
    parameters = ", ".join([*sizes, *(f"ptr %{pointer}" for pointer in pointers)])
    lines = [f"define {result} @{name}({parameters}) {{", "entry:"]
    for number, (function, driver) in enumerate(zip(functions, drivers)):
        fits = "true"
        for place, (size, value) in enumerate(driver.fixed.items()):
            here = f"%is_{number}_{place}"
            lines.append(f"  {here} = icmp eq i64 %{size}, {value}")
            lines.append(f"  %fits_{number}_{place} = and i1 {fits}, {here}")
            fits = f"%fits_{number}_{place}"
        lines += [
            f"  br i1 {fits}, label %found_{number}, label %other_{number}",
            f"found_{number}:",
            f"  %result_{number} = call {result} @{function}({parameters})",
            f"  ret {result} %result_{number}",
            f"other_{number}:",
        ]
    return "\n".join([*lines, "  unreachable", "}", ""])


def _arena_bytes(name: str, driver: Driver) -> str:
    parameters = ", ".join(f"i64 %{size}" for size, *_ in driver.sizes)
    lines = [f"define i64 @{name}({parameters}) {{", "entry:"]
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


def _run(name: str, driver: Driver) -> str:
    parameters = [f"i64 %{size}" for size, *_ in driver.sizes]
    parameters += [f"ptr %{pointer}" for pointer in driver.pointers]
    launches = list(every_launch(driver.launches))
    widest = max([len(launch.buffers) for launch in launches], default=1)
    most = max([len(launch.arguments) for launch in launches], default=0)
    lines = [
        f"define i32 @{name}({', '.join(parameters)}) {{",
        "entry:",
        f"  %error = alloca [6 x i64], align {ALIGNMENT}",
        f"  %buffers = alloca [{max(widest, 1)} x ptr], align {ALIGNMENT}",
        f"  %scalars = alloca [{max(most, 1)} x i64], align {ALIGNMENT}",
    ]
    if driver.loops:
        lines.append(f"  %slots = alloca [{driver.slots} x ptr], align {ALIGNMENT}")
        lines.append(f"  %steps = alloca [{driver.loops} x i64], align {ALIGNMENT}")
    writer = IntegerWriter(lines, driver.symbols)
    number = writer.fresh("ptrtoint ptr %arena to i64")
    rest = writer.fresh(f"and i64 {number}, {ALIGNMENT - 1}")
    go_on(writer, writer.fresh(f"icmp eq i64 {rest}, 0"), "misaligned")
    _check_sizes(driver, writer)
    _give_scratch(driver, writer)
    write(driver.launches, writer)
    for one in driver.copies:
        copy(writer, *one)
    return "\n".join([*lines, _ENDS])


def _give_scratch(driver: Driver, writer: IntegerWriter) -> None:
    """Fills the error block: no error yet, and scratch memory after the temporaries."""
    block = address(writer, Place("arena", driver.arena_bytes))
    room = writer.integer(driver.scratch_bytes)
    writer.lines.append("  store i64 0, ptr %error")
    for word, value in ((4, f"ptr {block}"), (5, f"i64 {room}")):
        place = writer.fresh(f"getelementptr i64, ptr %error, i64 {word}")
        writer.lines.append(f"  store {value}, ptr {place}")


def _check_sizes(driver: Driver, writer: IntegerWriter) -> None:
    for name, least, most, multiple in driver.sizes:
        go_on(writer, writer.fresh(f"icmp sge i64 %{name}, {least}"), "sizes")
        if most is not None:
            go_on(writer, writer.fresh(f"icmp sle i64 %{name}, {most}"), "sizes")
        if multiple > 1:
            over = writer.fresh(f"srem i64 %{name}, {multiple}")
            go_on(writer, writer.fresh(f"icmp eq i64 {over}, 0"), "sizes")
    for guard in driver.guards:
        go_on(writer, writer.holds(guard), "sizes")
