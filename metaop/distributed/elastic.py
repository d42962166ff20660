"""Training that continues when ranks are lost.

    metaop run --with-ft -np 4 train.py

MPI informs the remaining ranks (ULFM: Open MPI is started with `--with-ft ulfm`). They are
renumbered and run their training function again, in the same processes. It starts from the last
checkpoint:

    def train() -> None:
        model, optimizer = ...
        state = {"model": model.state_dict(), "step": 0}
        if path.exists():
            checkpoint.load(state, checkpoint_id=path)
        ...

    elastic.run(train)
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TypeVar

from metaop.dist.collectives import everyone, mpi
from metaop.dist.job import job, may_lose_ranks
from metaop.dist.placement import Placement
from metaop.distributed.process_group import forget_group
from metaop.errors import DistributedError
from metaop.execution.executor import clear_programs
from metaop.unified_graph.cut import recorder

Result = TypeVar("Result")


def run(function: Callable[[], Result], min_ranks: int = 1) -> Result:
    """Returns the result of `function`, calling it again on the remaining ranks after a loss.

    Global tensors and process groups made before a loss become invalid. Raises DistributedError if
    fewer than `min_ranks` are left.
    """
    everyone()
    job.goes_on = may_lose_ranks()
    while True:
        try:
            result = function()
        except Exception as error:
            if not job.goes_on or not is_loss(error):
                raise
        else:
            job.goes_on = False
            return result
        _recover(min_ranks)


def is_loss(error: BaseException | None) -> bool:
    """Whether an error, or one of its causes, is MPI's report that a rank has been lost."""
    module = mpi()
    classes = ("ERR_PROC_FAILED", "ERR_PROC_FAILED_PENDING", "ERR_REVOKED")
    lost = [getattr(module, name) for name in classes if hasattr(module, name)]
    while error is not None:
        if isinstance(error, module.Exception) and error.Get_error_class() in lost:
            return True
        error = error.__cause__ or error.__context__
    return False


def _recover(min_ranks: int) -> None:
    """Excludes the lost ranks and drops everything that was created with them."""
    before, started = job.everyone.size, time.perf_counter()
    job.shrink()
    forget_group(None)
    Placement.forget_ranks()
    clear_programs()
    recorder.take_roots()
    left = job.everyone.size
    if left < min_ranks:
        raise DistributedError(
            f"{left} of {before} ranks are left, fewer than min_ranks={min_ranks}",
            fix="start the job again, or allow fewer ranks",
        )
    if job.everyone.rank == 0:
        seconds = time.perf_counter() - started
        text = f"{before - left} of {before} ranks are lost; continuing with {left} "
        text += f"({seconds:.3f} s)"
        print(f"metaop: {text}", file=sys.stderr, flush=True)
