"""Runs kernels of the CUDA printer on the CPU: their unmodified text, compiled by g++."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from metaop.codegen.cuda.emit import emit
from metaop.codegen.cuda.layout import layout_of
from metaop.codegen.cuda.types import storage_type
from metaop.codegen.nest import ir
from metaop.codegen.schedule import Schedule
from metaop.unified_graph.faults import reported_fault
from metaop.unified_graph.node import Input, Node

HEADER = Path(__file__).parent / "cuda_emulator.h"
COMMAND = (
    *("g++", "-O1", "-std=c++17", "-fPIC", "-shared", "-w"),
    *("-fwrapv", "-fno-strict-aliasing"),
    # Misaligned parts and indices outside of shared memory end the process with a message.
    *("-fsanitize=alignment,bounds", "-fno-sanitize-recover=all"),
)
# The orders in which blocks, and the threads of each, take their turns.
ORDERS = ("forward", "reverse", "random")
# Bytes around every buffer that no kernel may read or write: NaN, and checked afterwards.
_GUARD = 512


def is_available() -> bool:
    """Whether there is a C++ compiler."""
    return shutil.which("g++") is not None


class KernelFault(Exception):
    """A kernel did what no kernel may do on a GPU."""


class Emulator:
    """The kernels of some nests, compiled together into `folder`.

    `change` may damage the texts, to see that tests notice.
    """

    def __init__(
        self,
        nests: Sequence[ir.LoopNest],
        folder: Path,
        change: Callable[[str], str] = lambda text: text,
    ) -> None:
        self._number = {nest: k for k, nest in enumerate(dict.fromkeys(nests))}
        parts = [f'#include "{HEADER}"\n']
        self._waits = {}
        for nest, number in self._number.items():
            text = change(emit(nest, f"kernel{number}"))
            (folder / f"kernel{number}.cu").write_text(text)
            self._waits[nest] = "_sync" in text
            parts.append(_launcher(nest, number))
        source, library = folder / "kernels.cpp", folder / "kernels.so"
        source.write_text("\n".join(parts))
        command = [*COMMAND, str(source), "-o", str(library)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise KernelFault(re.sub(r"(?m)^.*note:.*$", "", done.stderr)[:4000])
        self._library = ctypes.CDLL(str(library))

    def run(
        self,
        nest: ir.LoopNest,
        buffers: Sequence[np.ndarray],
        error: np.ndarray,
        order: str = "forward",
        most_blocks: int = 1 << 16,
    ) -> None:
        """Runs a kernel in place on `buffers`; raises KernelFault when threads never meet."""
        layout = layout_of(nest)
        number = self._number[nest]
        launch = getattr(self._library, f"launch{number}")
        launch.restype = ctypes.c_char_p
        guarded = [_Guarded(buffer) for buffer in buffers]
        addresses = (ctypes.c_void_p * len(buffers))(*(one.address for one in guarded))
        arguments = (ctypes.c_longlong * max(len(nest.arguments), 1))(*nest.arguments)
        message = launch(
            layout.blocks(nest, most_blocks),
            layout.threads,
            addresses,
            arguments,
            ctypes.c_void_p(error.ctypes.data),
            int(self._waits[nest]),
            ORDERS.index(order),
        )
        if message:
            raise KernelFault(f"{nest.name}: {message.decode()}")
        for position, one in enumerate(guarded):
            if not one.copy_back():
                raise KernelFault(f"{nest.name} writes outside of buffer {position}")


class _Guarded:
    """A copy of an array between two guards."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.bytes = np.full(array.nbytes + 2 * _GUARD + 64, 0xFF, np.uint8)
        self.start = _GUARD + -(self.bytes.ctypes.data + _GUARD) % 64
        self.stop = self.start + array.nbytes
        self.bytes[self.start : self.stop] = np.frombuffer(array.tobytes(), np.uint8)
        self.address = self.bytes.ctypes.data + self.start

    def copy_back(self) -> bool:
        """Takes the result over; whether the guards are untouched."""
        flat = self.bytes[self.start : self.stop].view(self.array.dtype)
        self.array[...] = flat.reshape(self.array.shape)
        guards = np.concatenate((self.bytes[: self.start], self.bytes[self.stop :]))
        return bool((guards == 0xFF).all())


def _launcher(nest: ir.LoopNest, number: int) -> str:
    arguments = [
        f"({storage_type(parameter.dtype)}*)launch->buffers[{k}]"
        for k, parameter in enumerate(nest.parameters)
    ]
    arguments += [f"(index_t)launch->arguments[{k}]" for k in range(len(nest.arguments))]
    call = ", ".join([*arguments, "launch->error"])
    return f"""\
namespace nest{number} {{
#include "kernel{number}.cu"
struct Launch {{ void** buffers; const long long* arguments; long long* error; }};
static void call(void* data)
{{
    const Launch* launch = (const Launch*)data;
    kernel{number}({call});
}}
extern "C" const char* launch{number}(
    int blocks, int threads, void** buffers, const long long* arguments, long long* error,
    int waits, int order)
{{
    Launch launch = {{buffers, arguments, error}};
    return emulate(call, &launch, blocks, threads, waits, order);
}}
}}
"""


def evaluate(
    emulator: Emulator, schedule: Schedule, inputs: Sequence[np.ndarray], order: str = "forward"
) -> list[np.ndarray]:
    """The outputs of a program whose kernels are emulated; Fault where a value is refused."""
    values: dict[Node, np.ndarray] = {
        node: np.array(inputs[node.op.slot], order="C")
        for node in schedule.inputs
        if isinstance(node.op, Input)
    }
    error = np.zeros(4, np.int64)
    for launch in schedule.launches:
        buffers = []
        for node in launch.buffers:
            if node not in values:
                poison = np.full(node.nbytes, 0xFF, np.uint8)
                values[node] = poison.view(node.dtype.numpy).reshape(node.shape)
            buffers.append(values[node])
        # Fewer blocks than tasks at times: blocks then take several tasks in turn.
        most_blocks = 3 if order == "reverse" else 1 << 16
        emulator.run(launch.nest, buffers, error, order, most_blocks)
        if error[0]:
            raise reported_fault(*map(int, error[1:]))
    return [values[node] for node in schedule.outputs]
