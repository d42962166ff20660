"""Tensor parallelism of modules, as in `torch.distributed.tensor.parallel`.

A style distributes the parameters of one module along a row of ranks and lays out its inputs and
outputs; `parallelize_module` applies styles by name.
"""

from metaop.distributed.tensor.parallel.loss import loss_parallel
from metaop.distributed.tensor.parallel.plan import parallelize_module
from metaop.distributed.tensor.parallel.preparation import (
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
)
from metaop.distributed.tensor.parallel.style import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    SequenceParallel,
)

__all__ = [
    "ColwiseParallel",
    "ParallelStyle",
    "PrepareModuleInput",
    "PrepareModuleInputOutput",
    "PrepareModuleOutput",
    "RowwiseParallel",
    "SequenceParallel",
    "loss_parallel",
    "parallelize_module",
]
