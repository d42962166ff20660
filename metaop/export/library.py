"""Programs compiled ahead of time: an object file or a shared library, with a header for C."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from metaop.codegen.caches.kernels import KernelCache
from metaop.codegen.llvm.called import called_in, text_of
from metaop.codegen.llvm.emission.emit import emit
from metaop.codegen.llvm.emission.scratch import most_scratch
from metaop.codegen.llvm.machine import machine_for
from metaop.codegen.llvm.objects.object_code import linked_object
from metaop.codegen.llvm.rows import Steps
from metaop.codegen.llvm.system import host_system
from metaop.codegen.llvm.target import Target, target_named
from metaop.codegen.lowering import LoweredKernel
from metaop.codegen.lowering.repetition import flattened
from metaop.codegen.memory.slots import Slots
from metaop.codegen.nest.ir import LoopNest
from metaop.compiler import schedule
from metaop.errors import ArgumentError, UnsupportedError
from metaop.export.driver import ALIGNMENT, Copy, Driver, driver_text
from metaop.export.header import Array, Signature, header_text
from metaop.export.launches import Launch, Place, Repeat, Slot
from metaop.export.program import Program, Size
from metaop.serialization.damage import Damage
from metaop.unified_graph.node import Node
from metaop.unified_graph.shape_env import ShapeEnv
from metaop.unified_graph.symbolic import NotGeneralError, maximum

# Code and constants must be within two gigabytes.
_MOST_EMBEDDED = 1 << 30
# As many sizes may be 1, each in a variant of its own and with any others.
_MOST_ONES = 3


class Library(NamedTuple):
    """The result: an object, a header, and the bytes of the weights if they are a separate file."""

    content: bytes
    header: str
    weights: bytes | None


def compile_library(
    program: Program,
    output: str | os.PathLike[str],
    target: str = "native",
    sizes: Mapping[str, int] | None = None,
    embed: bool = True,
    exact: Sequence[Mapping[str, int]] = (),
) -> None:
    """Compiles a program to `libNAME.so` or `NAME.o`, and writes the header `NAME.h` (`libNAME.h`).

    `target` is "native", a level of x86-64 or "aarch64"; `sizes` fixes sizes by name, the others
    stay parameters. Calls with one of the sizes in `exact` run code of their own, which may be
    faster. With `embed`, the weights are in the library, otherwise in `NAME.weights` next to it.
    Raises ArgumentError for unknown names, and UnsupportedError if there is no linker or the system
    is not Linux.
    """
    path = Path(output)
    if path.suffix not in (".so", ".o"):
        raise ArgumentError(f"{path} is not a library", fix="let its name end in .so or .o")
    processor = target_named(target)
    _check_system(processor, path.suffix == ".o", embed)
    if path.suffix == ".so":
        _linker()
    name = re.sub(r"\W", "_", path.stem.removeprefix("lib")) or "program"
    name = f"_{name}" if name[0].isdigit() else name
    made = made_library(program, name, processor, dict(sizes or {}), embed, exact)
    path.with_suffix(".h").write_text(made.header)
    if made.weights is not None:
        path.with_suffix(".weights").write_bytes(made.weights)
    if path.suffix == ".o":
        path.write_bytes(made.content)
        return
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder) / "program.o"
        part.write_bytes(made.content)
        _link(part, path)


def _check_system(target: Target, is_object: bool, embed: bool) -> None:
    """Raises UnsupportedError if files of this kind cannot be made for a processor."""
    here = host_system()
    if here.name != "linux":
        raise UnsupportedError(f"libraries for C are made on Linux only, and this is {here.name}")
    if target.triple == here.triple:
        return
    if not is_object:
        raise UnsupportedError(
            f"the linker of this machine cannot make a library for {target.name}",
            fix="make an object file, -o model.o, and link it with the tools of that processor",
        )
    if embed:
        raise UnsupportedError(
            f"weights cannot be embedded in code for {target.name} on this machine",
            fix="keep them in a separate file: --weights-beside",
        )


def _linker() -> str:
    """The C compiler that links: `CC`, or one of the usual names."""
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        if name and (found := shutil.which(name)):
            return found
    raise UnsupportedError(
        "a shared library needs a linker, and no C compiler (cc, gcc, clang) was found",
        fix="install one, set CC, or make an object file: -o model.o",
    )


def _link(part: Path, path: Path) -> None:
    options = ("-shared", "-Wl,--no-undefined", "-Wl,-z,noexecstack", f"-Wl,-soname,{path.name}")
    command = [_linker(), *options, "-o", str(path), str(part), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise UnsupportedError(
            f"{command[0]} could not link the library:\n{done.stderr[-2000:]}",
            fix="make an object file, -o model.o, and link it with your own tools",
        )


def made_library(
    program: Program,
    name: str,
    target: Target,
    fixed: Mapping[str, int],
    embed: bool,
    exact: Sequence[Mapping[str, int]] = (),
) -> Library:
    """The object and the header of a program, whose function names begin with `name`."""
    planned = _Planned(program, name, target, fixed, exact)
    if embed and len(planned.weights) > _MOST_EMBEDDED:
        raise UnsupportedError(
            f"{len(planned.weights)} bytes of weights are too many for code to reach",
            fix="keep them in a separate file: --weights-beside",
        )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "weights"
        file.write_bytes(planned.weights)
        texts = [driver_text(name, planned.drivers(embed)), *planned.kernel_texts()]
        if embed and planned.weights:
            texts[0] += _embedded(planned.weights_symbol, file, len(planned.weights))
        exported = {f"{name}_run", f"{name}_arena_bytes"}
        content = linked_object(texts, target, exported)
    beside = planned.weights if planned.weights and not embed else None
    return Library(content, header_text(planned.signature(beside is not None)), beside)


def _embedded(symbol: str, file: Path, count: int) -> str:
    """The weights as constants: the assembler reads them from a file."""
    lines = (
        ".section .rodata.metaop,\\22a\\22,@progbits",
        f".balign {ALIGNMENT}",
        f".hidden {symbol}",
        f".globl {symbol}",
        f"{symbol}:",
        f".incbin \\22{file}\\22",
        ".text",
    )
    text = "".join(f'module asm "{line}"\n' for line in lines)
    return f"\n{text}@{symbol} = external hidden constant [{count} x i8], align {ALIGNMENT}\n"


class _Planned:
    """The variants of a program for a target, and the kernels and weights that they share."""

    def __init__(
        self,
        program: Program,
        name: str,
        target: Target,
        fixed: Mapping[str, int],
        exact: Sequence[Mapping[str, int]],
    ) -> None:
        self.program, self.name, self.target = program, name, target
        _check_values(program.sizes, fixed)
        free = [size for size in program.sizes if size.name not in fixed]
        for values in exact:
            _check_values(free, values)
        may_be_one = [size for size in free if size.admits(1)][:_MOST_ONES]
        self.sizes = [size if size in may_be_one else _not_one(size) for size in free]
        self._variants = [
            _Variant(program, target, {**fixed, **own}, self.sizes)
            for own in _sizes_of_variants(self.sizes, exact)
        ]
        self._kernels: dict[str, str] = {}
        self._cache: KernelCache[str] = KernelCache(self._kernel)
        self.weights, self._weight_offsets = self._packed()

    @property
    def weights_symbol(self) -> str:
        """The symbol of the embedded weights, unique to this library."""
        return f"{self.name}_weights"

    def _kernel(self, nest: LoopNest) -> str:
        symbol = f"{self.name}_kernel_{len(self._kernels)}"
        self._kernels[symbol] = emit(nest, self.target, symbol, given_scratch=True)
        return symbol

    def kernel_texts(self) -> list[str]:
        """The modules of the kernels and of the functions that they call."""
        texts = list(self._kernels.values())
        called = (text_of(name, self.target) for name in called_in(texts))
        return texts + [text for text in called if text is not None]

    def _packed(self) -> tuple[bytes, dict[int, int]]:
        """The weights that launches read, one after another, and the offset of each slot."""
        used = set().union(*(variant.used_slots() for variant in self._variants))
        content, offsets = bytearray(), {}
        for slot, tensor in enumerate(self.program.weights.values(), len(self.program.inputs)):
            if slot in used:
                offsets[slot] = len(content)
                array: np.ndarray = tensor.detach()._array()  # type: ignore[attr-defined]
                content += np.ascontiguousarray(array).tobytes()
                content += bytes(-len(content) % ALIGNMENT)
        return bytes(content), offsets

    def drivers(self, embed: bool) -> list[Driver]:
        """The variants of the library's function, in the order in which they are tried."""
        base = f"@{self.weights_symbol}" if embed else "weights"
        weights = {slot: Place(base, at) for slot, at in self._weight_offsets.items()}
        pointers = ["weights"] if self.weights and not embed else []
        return [
            variant.driver(weights, pointers, self._cache.kernel_for) for variant in self._variants
        ]

    def signature(self, beside: bool) -> Signature:
        """The contents of the header."""
        *_, driver = self.drivers(not beside)
        general = self._variants[-1]
        total = driver.arena_bytes + driver.scratch_bytes
        return Signature(
            self.name,
            self.target.cpu,
            [size.name for size in self.sizes],
            [*map(_bounds, self.sizes), *map(general.named, driver.guards)],
            None if self.sizes else int(total),
            len(self.weights) if beside else None,
            [
                Array(one.name, one.dtype, [general.named(extent) for extent in node.shape])
                for one, node in zip(self.program.inputs, general.inputs)
            ],
            [
                Array(name, node.dtype, [general.named(extent) for extent in node.shape])
                for name, node in zip(self.program.outputs, general.outputs)
            ],
        )


def _check_values(sizes: Sequence[Size], values: Mapping[str, int]) -> None:
    """Raises ArgumentError for a value that no size may have."""
    known = {size.name: size for size in sizes}
    for name, value in values.items():
        if name not in known or not known[name].admits(value):
            listed = ", ".join(known) or "none"
            raise ArgumentError(f"{name} = {value} is not a size of the program ({listed})")


def _not_one(size: Size) -> Size:
    return size._replace(min=max(size.min, 2))


def _sizes_of_variants(
    sizes: Sequence[Size], exact: Sequence[Mapping[str, int]]
) -> list[dict[str, int]]:
    """The sizes that each variant fixes, the most special ones first.

    Size 1 needs different code, so any sizes that may be 1 have variants in which they are.
    """
    found = []
    for wanted in (*exact, {}):
        ones = [size.name for size in sizes if size.admits(1) and size.name not in wanted]
        for flags in itertools.product((True, False), repeat=len(ones)):
            own = {name: 1 for name, is_one in zip(ones, flags) if is_one}
            if {**wanted, **own} not in found:
                found.append({**wanted, **own})
    return sorted(found, key=len, reverse=True)


class _Variant:
    """A program whose launches and memory are planned for some fixed sizes, and any others."""

    def __init__(
        self, program: Program, target: Target, fixed: Mapping[str, int], sizes: Sequence[Size]
    ) -> None:
        self.sizes = [size if size.name in fixed else _not_one(size) for size in sizes]
        free = [size for size in self.sizes if size.name not in fixed]
        self._fixed = fixed
        self._env = ShapeEnv(may_narrow=False) if free else None
        self._symbols = {size.name: self._symbol(size) for size in free}
        try:
            self.inputs, weights, self.outputs = program.nodes({**fixed, **self._symbols})
            leaves = [*self.inputs, *weights]
            self._schedule = schedule(leaves, self.outputs, machine_for(target), self._env)
        except Damage as reason:
            raise ArgumentError(f"the program has no form for {fixed}: {reason}") from None
        except NotGeneralError as reason:
            raise UnsupportedError(
                f"no library can serve all sizes of this program: {reason}",
                fix="fix them: --size name=value",
            ) from None
        self._numbering = Slots(self._schedule)

    def _symbol(self, size: Size) -> Any:
        assert self._env is not None
        return self._env.symbol(max(size.example, 2), size.min)

    def named(self, value: Any) -> str:
        """A number or a guard as text, with the names of sizes in it."""
        texts = {str(symbol): name for name, symbol in self._symbols.items()}
        return re.sub(r"\bs\d+\b", lambda found: texts.get(found[0], found[0]), str(value))

    def used_slots(self) -> set[int]:
        """The slots that launches use, or that are results."""
        nodes = (node for launch in self._schedule.launches for node in launch.buffers)
        used = {self._numbering.of[node] for node in nodes}
        return used | {number for passed, number in self._numbering.results if passed}

    def _places(self, weights: Mapping[int, Place]) -> dict[int, Place]:
        """The location of each slot."""
        found = {k: Place(f"input{k}") for k in range(len(self.inputs))} | dict(weights)
        made: set[int] = set()
        for number, (passed, place) in enumerate(self._numbering.results):
            if not passed and place not in made:
                made.add(place)
                found[self._first_made + place] = Place(f"result{number}")
        temporaries = self._numbering.temporaries
        for slot, offset in zip(range(temporaries.start, temporaries.stop), self._schedule.offsets):
            found[slot] = Place("arena", offset)
        return found

    @property
    def _first_made(self) -> int:
        return len(self._schedule.inputs)

    def driver(
        self,
        weights: Mapping[int, Place],
        pointers: Sequence[str],
        kernel_for: Callable[[LoopNest], tuple[str, Any]],
    ) -> Driver:
        """The body of the function, which finds the weights at places after `pointers`."""
        places = self._places(weights)
        writer = _Launches(kernel_for, self._numbering.count)
        launches = writer.around(self._schedule.launches, self._numbering.of, places)
        copies = []
        for number, (passed, place) in enumerate(self._numbering.results):
            source = places[place if passed else self._first_made + place]
            if source.base != f"result{number}":
                nbytes = self._schedule.outputs[number].nbytes
                copies.append(Copy(Place(f"result{number}"), source, nbytes))
        scratch = [most_scratch(one.nest.body) for one in flattened(self._schedule.launches)]
        arena = self._schedule.arena_bytes
        inputs = [f"input{k}" for k in range(len(self.inputs))]
        results = [f"result{k}" for k in range(len(self.outputs))]
        return Driver(
            {size.name: self._fixed[size.name] for size in self.sizes if size.name in self._fixed},
            [(size.name, size.min, size.max, size.multiple) for size in self.sizes],
            [*pointers, "arena", *inputs, *results],
            launches,
            copies,
            (arena + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT,
            maximum([0, *scratch]),
            self._env,
            {str(symbol): f"%{name}" for name, symbol in self._symbols.items()},
            writer.loops,
            writer.slots,
        )


class _Launches:
    """Makes the launches of a driver, and counts its loops and the slots that they keep."""

    def __init__(self, kernel_for: Callable[[LoopNest], tuple[str, Any]], slots: int) -> None:
        self._kernel_for = kernel_for
        self.loops, self.slots = 0, slots

    def around(
        self,
        launches: Sequence[LoweredKernel],
        slots: Mapping[Node, int],
        places: Mapping[int, Place] | None,
    ) -> list[Launch | Repeat]:
        """Launches on nodes with `slots`, which the function knows by `places` outside of loops."""
        return [self._one(launch, slots, places) for launch in launches]

    def _one(
        self, launch: LoweredKernel, slots: Mapping[Node, int], places: Mapping[int, Place] | None
    ) -> Launch | Repeat:
        numbers = [slots[node] for node in launch.buffers]
        if launch.repetition is None:
            buffers = [Slot(one) if places is None else places[one] for one in numbers]
            kernel, arguments = self._kernel_for(launch.nest)
            return Launch(kernel, buffers, arguments, launch.nest.tasks)
        bases = [] if places is None else [(one, places[one]) for one in dict.fromkeys(numbers)]
        steps = Steps(self._fresh, launch.repetition, slots)
        number, self.loops = self.loops, self.loops + 1
        inner = self.around(steps.schedule.launches, steps.slots, None)
        once = steps.schedule.once
        return Repeat(number, steps, bases, inner[:once], inner[once:])

    def _fresh(self) -> int:
        self.slots += 1
        return self.slots - 1


def _bounds(size: Size) -> str:
    multiple = f", a multiple of {size.multiple}" if size.multiple > 1 else ""
    most = "" if size.max is None else f" to {size.max}"
    return f"{size.name} from {size.min}{most}{multiple}"
