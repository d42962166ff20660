"""Every argument of the public classes and functions for several ranks is used or refused."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from textwrap import dedent
from types import ModuleType
from typing import Any

import pytest

import metaop.distributed
import metaop.distributed.graph
import metaop.distributed.pipelining
import metaop.multiprocessing
import metaop.nn.parallel
from metaop import nn
from metaop.distributed import (
    FullyShardedDataParallel,
    MixedPrecision,
    ZeroRedundancyOptimizer,
)
from metaop.distributed.graph_config import GraphConfig
from metaop.errors import ArgumentError

ROOMS = (
    "metaop.dist",
    "metaop.multiprocessing",
    "metaop.nn.parallel",
    "metaop.tensor.sharded.global_tensor",
    "metaop.tensor.sharded.placing",
)
PLACES: list[ModuleType] = [
    metaop.distributed,
    metaop.distributed.checkpoint,
    metaop.distributed.elastic,
    metaop.distributed.fsdp,
    metaop.distributed.graph,
    metaop.distributed.optim,
    metaop.distributed.pipelining,
    metaop.multiprocessing,
    metaop.nn.parallel,
]


def public(place: ModuleType) -> Iterator[tuple[str, object]]:
    """The functions and classes of metaop that a module offers, and the methods of these."""
    for name in dir(place):
        value = getattr(place, name)
        if name.startswith("_") or not getattr(value, "__module__", "").startswith(ROOMS):
            continue
        if inspect.isfunction(value):
            yield name, value
        elif inspect.isclass(value):
            for method, function in vars(value).items():
                # Dataclasses make methods that have no source.
                source = inspect.unwrap(function) if inspect.isfunction(function) else None
                if source is not None and not source.__code__.co_filename.startswith("<"):
                    yield f"{name}.{method}", function


def unused(function: object) -> set[str]:
    """The parameters of which nothing is made in the body."""
    (tree,) = ast.parse(dedent(inspect.getsource(function))).body  # type: ignore[arg-type]
    assert isinstance(tree, ast.FunctionDef)
    given = tree.args
    extra = [one for one in (given.vararg, given.kwarg) if one is not None]
    names = {one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs, *extra)}
    read = {node.id for line in tree.body for node in ast.walk(line) if isinstance(node, ast.Name)}
    return names - read - {"self", "cls"}


# What is so whatever the argument says, or is said by the docstring to be a name or a hint.
ALWAYS = {
    "Work.wait": {"timeout"},
    "broadcast_object_list": {"device"},
    "get_backend": {"group"},
    "init_process_group": {"group_name"},
    "to_global": {"copy"},
    "FullyShardedDataParallel.__init__": {"sync_module_states", "cpu_offload"},
    "ZeroRedundancyOptimizer.consolidate_state_dict": {"to"},
    "DistributedDataParallel.__init__": {"find_unused_parameters", "static_graph"},
    "PipelineStage.__init__": {"input_args", "output_args"},
    "data_parallel": {"dim"},
    # Methods that others define, and functions of one signature.
    "Graph.build": {"args", "kwargs"},
    "run_in_turns": {"stages"},
}
# Switches of OneFlow for what is done always or has no counterpart.
HINTS = {name for name, value in vars(GraphConfig).items() if value is GraphConfig._accept}


def test_every_argument_is_used_or_refused() -> None:
    found = {}
    for place in PLACES:
        for name, function in public(place):
            method = name.rpartition(".")[2]
            if (method.startswith("_") and method != "__init__") or method in HINTS:
                continue
            if names := unused(function) - ALWAYS.get(name, set()):
                found[name] = names
    assert not found


def test_what_is_said_to_be_always_so_is_an_argument() -> None:
    known = {name: unused(function) for place in PLACES for name, function in public(place)}
    assert all(names <= known[name] for name, names in ALWAYS.items())


def model() -> nn.Module:
    return nn.Linear(2, 2)


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: FullyShardedDataParallel(model(), auto_wrap_policy=min), "auto_wrap_policy"),
    (lambda: FullyShardedDataParallel(model(), backward_prefetch=1), "backward_prefetch"),
    (lambda: FullyShardedDataParallel(model(), use_orig_params=False), "use_orig_params"),
    (lambda: FullyShardedDataParallel(model(), None, "HYBRID_SHARD"), "HYBRID_SHARD"),
    (lambda: FullyShardedDataParallel(model(), anything=3), "anything=3"),
    (lambda: MixedPrecision(metaop.float16, reduce_dtype=metaop.float32), "reduce_dtype"),
    (lambda: nn.parallel.DistributedDataParallel(model(), [0]), "lies on cpu"),
    (lambda: nn.parallel.DistributedDataParallel(model(), output_device=1), "lies on cpu"),
    (lambda: nn.parallel.DistributedDataParallel(model(), dim=1), "dim=1"),
    (lambda: nn.DataParallel(model(), [0, 1]), "run on cuda:0, cuda:1"),
    (lambda: nn.parallel.data_parallel(model(), metaop.ones(1, 2), [0]), "lies on cpu"),
    (lambda: zero(overlap_with_ddp=True), "overlap_with_ddp"),
    (lambda: zero(parameters_as_bucket_view=True), "parameters_as_bucket_view"),
    (lambda: zero(stage=3), "stage=3"),
]


def zero(**settings: Any) -> Any:
    return ZeroRedundancyOptimizer(model().parameters(), metaop.optim.Adam, **settings)


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[name for _, name in REFUSED])
def test_what_cannot_be_done_is_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        call()
