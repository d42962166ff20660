"""The simulator: clusters of thousands of ranks, overlap, and the timeline."""

from __future__ import annotations

import json
from typing import Any

import metaop
from metaop.dist.cost import Cluster, Link
from metaop.dist.sbp import BROADCAST, Split
from metaop.dist.simulate import Prediction
from metaop.distributed.simulation import predict
from tests.dist.steps import mlp, training_step

B, S0, S1 = BROADCAST, Split(0), Split(1)
FAST = Cluster(flops=1e13, memory_bandwidth=1e12, links=(Link(1e-5, 1e9), Link(2e-6, 1e11)))


def step_on(ranks: Any, given: list[tuple], rows: int = 4096, **options: Any) -> Prediction:
    """Two layers of 256 x 1024 trained on data of `rows` rows sharded as `given`."""
    zeros = metaop.zeros
    tensors = [zeros(256, 1024), zeros(1024, 256), zeros(rows, 256), zeros(rows, 256)]
    step = training_step(mlp, 2)
    return predict(step, *tensors, ranks=ranks, given=given, updated=[0, 1], **options)


def test_data_parallel_traffic_is_that_of_the_weights() -> None:
    found = step_on(4, [(B,), (B,), (S0,), (S0,)])
    weights = 4 * 2 * 256 * 1024
    # Reduced and gathered, each three quarters; the loss is a number more.
    assert 2 * weights * 3 // 4 <= found.sent_bytes <= 2 * weights * 3 // 4 + 64


def test_thousands_of_ranks() -> None:
    given = [(B, S1), (B, S0), (S0, B), (S0, B)]
    small = step_on((2, 2), given, cluster=FAST)
    large = step_on((64, 32), given, cluster=FAST)
    assert large.peak_bytes < small.peak_bytes / 4
    assert large.seconds < small.seconds


def test_cutting_up_takes_less_memory_than_copies() -> None:
    copies = step_on(8, [(B,), (B,), (S0,), (S0,)], rows=64)
    cut_up = step_on(8, [(S0,), (S0,), (S0,), (S0,)], rows=64)
    assert cut_up.peak_bytes < copies.peak_bytes


def test_collectives_overlap_with_kernels() -> None:
    slow = Cluster(flops=1e11, memory_bandwidth=1e10, links=(Link(1e-6, 1e9),))
    found = step_on(4, [(B,), (B,), (S0,), (S0,)], cluster=slow)
    total = sum(event.seconds for event in found.events)
    assert found.seconds < total
    compute = [event for event in found.events if event.lane == "compute"]
    sends = [event for event in found.events if event.lane == "link 0"]
    assert min(event.start for event in sends) < max(event.start for event in compute)


def test_the_timeline_is_a_chrome_trace() -> None:
    found = step_on((2, 2), [(B, S1), (B, S0), (S0, B), (S0, B)])
    entries = json.loads(found.chrome_trace())["traceEvents"]
    spans = [entry for entry in entries if entry["ph"] == "X"]
    assert len(spans) == len(found.events)
    assert {entry["args"]["name"] for entry in entries if entry["ph"] == "M"} == {
        "compute",
        "link 0",
        "link 1",
    }
    assert max(entry["ts"] + entry["dur"] for entry in spans) <= 1e6 * found.seconds * 1.000001
    assert "bytes sent" in str(found)
