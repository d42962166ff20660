"""The schedules of a GPU where they differ from those of a CPU."""

from __future__ import annotations

import math

from metaop.codegen.cuda.filling import cut_to_fill
from metaop.codegen.lowering.base.blocks import Tile
from metaop.codegen.lowering.base.kernel import LoweredKernel
from metaop.codegen.lowering.base.loops import Loop, plain_plan, split_index
from metaop.codegen.lowering.contractions.axes import sum_type
from metaop.codegen.lowering.contractions.shared_gemm import SharedGemm
from metaop.codegen.lowering.contractions.tensor_core_gemm import TensorCoreGemm
from metaop.codegen.lowering.contractions.warp_tiles import multiplied_dtype
from metaop.codegen.lowering.machine import WITH_FEWER_PRODUCTS, Machine
from metaop.codegen.lowering.reductions.shared_tiles import SharedTiles
from metaop.codegen.lowering.scatters.scatter import Scatter
from metaop.fusion.kernel import Kernel
from metaop.fusion.storage import Storage
from metaop.reduce.meta_op import Reduce
from metaop.unified_graph import index_expr
from metaop.unified_graph.node import Node


class RecomputingRowReduction(SharedTiles):
    """Rows that compute expensive values again in every pass: arithmetic is cheaper than memory."""

    TURNS = False
    PREFETCHES = False

    def _carry_expensive_values(self, loops: list[Loop]) -> None:
        return


class AtomicScatter(Scatter):
    """Writes through index operands, with one thread per point and atomic updates.

    The order of floating-point additions to one element differs from run to run.
    """

    def lower(self) -> LoweredKernel:
        kernel, values = self.kernel, self.values
        op = kernel.roots[0].op
        assert isinstance(op, Reduce)
        loops = list(plain_plan(kernel).loops)
        _, parts = split_index(loops, "p")
        self.axes = tuple(
            parts.get(f"i{k}", index_expr.constant(0)) for k in range(len(kernel.shape))
        )
        total = math.prod(loop.extent for loop in loops)
        with values.loop("p", total, "parallel", vector=True):
            self._update(op, atomic=True)
        return self.finish("scatter", values.body)


class BlockContraction(SharedGemm):
    """Contractions of blocks in shared memory; tensor cores multiply 16-bit floats."""

    @classmethod
    def launches(
        cls, kernel: Kernel, storage: Storage, uses: dict[Node, int], tile: Tile, threads: int
    ) -> list[LoweredKernel]:
        assert kernel.contraction is not None
        narrow = multiplied_dtype(kernel.contraction, sum_type(kernel.roots[0].dtype))
        chosen = SharedGemm if narrow is None else TensorCoreGemm
        return chosen.launches(kernel, storage, uses, tile, threads)


# The multiprocessors of a large GPU; a program for a real device uses the number of that device.
CUDA = Machine(
    without=("radix sort", "segments", "stencil", "thin", "windows", *WITH_FEWER_PRODUCTS),
    backend="cuda",
    threads=132,
    rows=RecomputingRowReduction,
    contract=BlockContraction,
    scatter=AtomicScatter,
    cut=cut_to_fill,
)
