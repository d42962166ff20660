"""The configuration of a `Graph` and its modules: OneFlow's configuration calls."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from metaop.dist.cost import HOST, Cluster
from metaop.dist.placement import Placement
from metaop.errors import ArgumentError
from metaop.unified_graph.dtype import DType


class ModuleConfig:
    """What a graph does with one module: its pipeline stage, and whether its values are kept."""

    def __init__(self) -> None:
        self.stage_id: int | None = None
        self.placement: Placement | None = None
        self.activation_checkpointing = False

    def set_stage(self, stage_id: int, placement: Placement | None = None) -> None:
        """Makes the module a pipeline stage, on the ranks of `placement`.

        Stages are numbered from 0 in the order of the data. Their placements have the same shape
        and no rank in common; the default is the placement of the module's parameters.
        """
        self.stage_id, self.placement = stage_id, placement


class GraphConfig:
    """What a graph does with the whole step."""

    def __init__(self) -> None:
        self.accumulation = 1
        self.zero_stage = 0
        self.amp = False
        self.amp_dtype: DType | None = None
        self.auto_parallel = False
        self.ignores_user_sbp = False
        self.cluster: Cluster = HOST
        self.memory: int | None = None

    def enable_amp(self, mode: bool = True, *, dtype: DType | None = None) -> None:
        """Runs contractions in low precision (see `metaop.amp.autocast`)."""
        self.amp, self.amp_dtype = mode, dtype

    def set_gradient_accumulation_steps(self, value: int) -> None:
        """Splits every batch into `value` micro-batches, whose gradients are averaged."""
        if value < 1:
            raise ArgumentError(f"{value} gradient accumulation steps", fix="use at least 1")
        self.accumulation = value

    def enable_zero(self, mode: bool = True, *, stage: int = 2) -> None:
        """Shards optimizer states (stage 1), gradients too (2), and parameters too (3)."""
        if stage not in (1, 2, 3):
            raise ArgumentError(f"ZeRO stage {stage}", fix="use 1, 2 or 3")
        self.zero_stage = stage if mode else 0

    def enable_auto_parallel(
        self, mode: bool = True, *, cluster: Cluster | None = None, memory: int | None = None
    ) -> None:
        """Makes the first call search for the sharding of the parameters with the cheapest step.

        `cluster` gives the costs of computing and sending (by default those assumed for one host);
        `memory` limits the bytes of parameters and inputs per rank. Inputs keep their sharding;
        local ones, equal on all ranks, become global. Parameters that are already split stay so.
        """
        self.auto_parallel, self.memory = mode, memory
        self.cluster = cluster or self.cluster

    def enable_auto_parallel_ignore_user_sbp_config(self, mode: bool = True) -> None:
        """Also lets the search change parameters that are already split."""
        self.ignores_user_sbp = mode

    def set_auto_parallel_computation_cost_ratio(self, ratio: float) -> None:
        """Weights the cost of computing by `ratio`, relative to sending, in the search."""
        if ratio <= 0:
            raise ArgumentError(f"a computation cost ratio of {ratio}", fix="use more than 0")
        self.cluster = replace(
            self.cluster,
            flops=self.cluster.flops / ratio,
            memory_bandwidth=self.cluster.memory_bandwidth / ratio,
        )

    def _accept(self, mode: Any = True) -> None:
        """Accepted without effect: what it requests is always done, or has no counterpart here."""

    # Fusion, memory reuse and the overlap of sending with computing are not optional.
    allow_fuse_add_to_output = allow_fuse_model_update_ops = allow_fuse_cast_scale = _accept
    enable_multi_tensor_update = enable_fused_model_update_cast = _accept
    enable_choose_best_memory_allocation = enable_compress_memory = _accept
    enable_straighten_algorithm = enable_cudnn_conv_heuristic_search_algo = _accept
    set_auto_parallel_wait_time = enable_auto_parallel_trunk_algo = _accept
    enable_auto_parallel_sbp_collector = set_outputs_buffer_size = _accept
