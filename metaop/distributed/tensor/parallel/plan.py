"""`parallelize_module`: styles for submodules, by name."""

from __future__ import annotations

import warnings
from fnmatch import fnmatchcase

from metaop.distributed.tensor.parallel.style import ParallelStyle
from metaop.errors import ArgumentError, ArgumentTypeError
from metaop.nn.module import Module
from metaop.tensor.sharded.device_mesh import DeviceMesh, chosen_mesh

Plan = ParallelStyle | dict[str, ParallelStyle]


def parallelize_module(
    module: Module,
    device_mesh: DeviceMesh | None = None,
    parallelize_plan: Plan | None = None,
    *,
    src_data_rank: int | None = 0,
) -> Module:
    """Applies a style to a module, or styles to its submodules by name, and returns the module.

    In a name each part between dots is a pattern (`layers.*.up`); "" is the module itself. A name
    that fits no submodule is a warning, and so is a missing plan. `src_data_rank` is that of
    `distribute_tensor`. Raises ArgumentError for a mesh of several dimensions, and
    ArgumentTypeError for a plan of another type.

    >>> parallel = metaop.distributed.tensor.parallel
    >>> mesh = metaop.distributed.init_device_mesh("cpu", (1,))
    >>> model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> plan = {"0": parallel.ColwiseParallel(), "2": parallel.RowwiseParallel()}
    >>> model = parallel.parallelize_module(model, mesh, plan)
    >>> model[0].weight.placements, model(metaop.ones(4, 3)).shape
    ((Shard(dim=0),), metaop.Size([4, 2]))
    """
    mesh = chosen_mesh(device_mesh)
    if mesh.ndim > 1:
        raise ArgumentError(
            f"parallelize_module got {mesh}",
            fix='give one axis of it, such as mesh["tp"]',
        )
    if parallelize_plan is None:
        warnings.warn("parallelize_module got no plan, so it does nothing", stacklevel=2)
        return module
    if isinstance(parallelize_plan, ParallelStyle):
        parallelize_plan.src_data_rank = src_data_rank
        return parallelize_plan._apply(module, mesh)
    if not isinstance(parallelize_plan, dict):
        raise ArgumentTypeError(
            f"a plan of type {type(parallelize_plan).__name__}",
            fix='give a style, such as ColwiseParallel(), or a dict such as {"0": style}',
        )
    for name, style in parallelize_plan.items():
        found = _fitting(module, name)
        if not found:
            warnings.warn(
                f"the name {name!r} of a plan fits no submodule of {type(module).__name__}",
                stacklevel=2,
            )
        for part in found:
            parallelize_module(part, mesh, style, src_data_rank=src_data_rank)
    return module


def _fitting(module: Module, name: str) -> list[Module]:
    """The submodules whose name fits, part by part."""
    found = [module]
    for pattern in name.split(".") if name else ():
        found = [
            child
            for one in found
            for part, child in one.named_children()
            if fnmatchcase(part, pattern)
        ]
    return found
