"""Runs kernels of the CUDA printer on the CPU: their unmodified text, compiled by g++."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from metaop.codegen.cuda.emit import emit
from metaop.codegen.cuda.layout import layout_of
from metaop.codegen.nest import ir
from metaop.codegen.schedule import Schedule
from metaop.unified_graph.faults import reported_fault
from metaop.unified_graph.node import Input, Node
from tests.cuda.emulator.compiling import ORDERS, Kernel, KernelFault, compiled, launcher

__all__ = ["ORDERS", "Emulator", "KernelFault", "evaluate", "is_available", "output_on_stand_in"]
# Bytes around every buffer that no kernel may read or write: NaN, and checked afterwards.
_GUARD = 512


def is_available() -> bool:
    """Whether there is a C++ compiler."""
    return shutil.which("g++") is not None


def output_on_stand_in(call: str) -> str:
    """What a function of the tests, as `module:function`, prints where a stand-in is the GPU.

    It runs in a process of its own, which must end well.
    """
    module, _, function = call.partition(":")
    program = (
        "from tests.cuda.emulator import cupy_stand_in; cupy_stand_in.install(devices=1);"
        f"from {module} import {function}; {function}()"
    )
    command, folder = [sys.executable, "-c", program], Path(__file__).parents[3]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


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
        names = {nest: f"kernel{k}" for k, nest in enumerate(dict.fromkeys(nests))}
        texts = {nest: change(emit(nest, name)) for nest, name in names.items()}
        parts = [
            launcher(text, names[nest], f"launch_{names[nest]}") for nest, text in texts.items()
        ]
        library = compiled("\n".join(parts), folder)
        self._kernels = {nest: Kernel(library, f"launch_{name}") for nest, name in names.items()}

    def run(
        self,
        nest: ir.LoopNest,
        buffers: Sequence[np.ndarray],
        error: np.ndarray,
        order: str = "forward",
        most_blocks: int = 1 << 16,
    ) -> None:
        """Runs a kernel in place on `buffers`, of which some may be the same array.

        Raises KernelFault when threads never meet, race for memory, or leave their buffers.
        """
        layout = layout_of(nest)
        guarded = {id(buffer): _Guarded(buffer) for buffer in buffers}
        addresses = [guarded[id(buffer)].address for buffer in buffers]
        words = [*addresses, *nest.arguments, error.ctypes.data]
        try:
            self._kernels[nest](layout.blocks(nest, most_blocks), layout.threads, words, order)
        except KernelFault as fault:
            raise KernelFault(f"{nest.name}: {fault}") from None
        for position, buffer in enumerate(buffers):
            if not guarded[id(buffer)].copy_back():
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
