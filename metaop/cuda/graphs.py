"""CUDA graphs under PyTorch's names: `metaop.jit` records and replays launches by itself."""

from __future__ import annotations

from typing import Any

from metaop.codegen.cuda.device import runtime
from metaop.errors import UnsupportedError
from metaop.unified_graph.tensor_type import Device

__all__ = ["CUDAGraph", "graph", "make_graphed_callables"]


def _refused(name: str) -> UnsupportedError:
    return UnsupportedError(
        f"{name}: launches are not recorded by hand",
        fix="decorate the function with metaop.jit, or use make_graphed_callables",
    )


class CUDAGraph:
    """A type to ask for; making one raises UnsupportedError."""

    def __init__(self, keep_graph: bool = False) -> None:
        raise _refused("CUDAGraph")


class graph:
    """A context that cannot be entered: making one raises UnsupportedError."""

    def __init__(
        self,
        cuda_graph: CUDAGraph,
        pool: Any = None,
        stream: Any = None,
        capture_error_mode: str = "global",
    ) -> None:
        raise _refused("cuda.graph")


def make_graphed_callables(
    callables: Any,
    sample_args: Any,
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: Any = None,
) -> Any:
    """The functions or modules themselves, whose launches are recorded where that pays.

    All other arguments are for recording by hand. Raises DeviceError without a GPU.
    """
    runtime(Device.current or 0)
    return callables
