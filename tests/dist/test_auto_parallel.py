"""Auto parallel as a switch of nn.Graph: what is found, and that nothing else changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import metaop
from metaop import nn
from metaop.dist.cost import Cluster, Link
from metaop.dist.placement import Placement
from metaop.dist.sbp import BROADCAST, Split
from metaop.distributed import distribute_tensor
from metaop.errors import ArgumentError

ROW = Placement("cpu", range(4), simulate=True)
MESH = Placement("cpu", [[0, 1], [2, 3]], simulate=True)
S0, S1 = Split(0), Split(1)


class Step(nn.Graph):
    def __init__(self, model: nn.Module, trains: bool = True) -> None:
        super().__init__()
        self.model = model
        self.trains = trains
        if trains:
            self.add_optimizer(metaop.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))

    def build(self, x: metaop.Tensor, y: metaop.Tensor) -> metaop.Tensor:
        logits = self.model(x)
        if not self.trains:
            return logits
        loss = nn.functional.cross_entropy(logits, y)
        loss.backward()
        return loss


def network(width: int) -> nn.Sequential:
    metaop.manual_seed(0)
    layers = nn.Linear(24, width), nn.GELU(), nn.Linear(width, 24), nn.BatchNorm1d(24)
    return nn.Sequential(*layers, nn.Dropout(0.2), nn.Linear(24, 10))


def batch(rows: int) -> tuple[metaop.Tensor, metaop.Tensor]:
    random = np.random.default_rng(1)
    x = random.normal(size=(rows, 24)).astype(np.float32)
    return metaop.tensor(x), metaop.tensor(random.integers(0, 10, rows))


def losses(graph: Step, *data: metaop.Tensor) -> list[float]:
    metaop.manual_seed(5)
    return [graph(*data).item() for _ in range(3)]


def found(graph: Step) -> list[Any]:
    return [p.sbp for p in graph.model.parameters()]


@pytest.mark.parametrize(("placement", "micro_batches"), [(ROW, 2), (MESH, 1)], ids=["row", "mesh"])
def test_the_losses_are_those_of_one_device(placement: Placement, micro_batches: int) -> None:
    whole = (BROADCAST,) * len(placement.shape)
    graphs = Step(network(40)), Step(network(40).to_global(placement, whole))
    graphs[1].config.enable_auto_parallel()
    for graph in graphs:
        graph.config.set_gradient_accumulation_steps(micro_batches)
    alone, together = (losses(graph, *batch(8)) for graph in graphs)
    np.testing.assert_allclose(together, alone, rtol=1e-5)


def test_wide_layers_are_split_by_column_and_then_by_row() -> None:
    graph = Step(network(8192).to_global(ROW, BROADCAST))
    graph.config.enable_auto_parallel()
    graph(*batch(8))
    assert found(graph)[:3] == [S0, S0, S1]  # Weights are stored as (out, in).
    assert "float32[8192, 24] S0" in graph.describe()


def test_data_that_is_split_stays_split() -> None:
    x, y = (distribute_tensor(value, ROW, S0) for value in batch(4096))
    model = nn.Sequential(nn.Linear(24, 16), nn.GELU(), nn.Linear(16, 10)).to_global(ROW, BROADCAST)
    graph = Step(model)
    graph.config.enable_auto_parallel(cluster=Cluster(links=(Link(latency=1e-6),)))
    graph(x, y)
    assert graph._plan is not None
    # Of the rows of the batch no more than a number each travels.
    sent = {node.shape for boxes in graph._plan.boxes for node, _ in boxes}
    assert sent and all(shape == (4096,) or shape[:1] != (4096,) for shape in sent)


def test_what_was_split_by_hand_stays_unless_it_may_change() -> None:
    for ignores, expected in ((False, S1), (True, S0)):
        graph = Step(network(8192).to_global(ROW, {"0.weight": S1}))
        graph.config.enable_auto_parallel()
        graph.config.enable_auto_parallel_ignore_user_sbp_config(ignores)
        graph(*batch(8))
        assert found(graph)[0] == expected


def test_local_modules_and_graphs_without_an_optimizer() -> None:
    x, y = (distribute_tensor(value, ROW, BROADCAST) for value in batch(8))
    graph = Step(network(512).eval(), trains=False)
    graph.config.enable_auto_parallel(memory=100_000)
    expected = network(512).eval()(batch(8)[0]).detach().numpy()
    np.testing.assert_allclose(graph(x, y).detach().numpy(), expected, rtol=1e-4, atol=1e-5)
    assert any(state != BROADCAST for state in found(graph))


def test_the_search_leaves_no_trace() -> None:
    model = network(16).to_global(ROW, BROADCAST)
    before = {name: value.numpy() for name, value in model.state_dict().items()}
    graph = Step(model)
    graph.config.enable_auto_parallel()
    state = metaop.get_rng_state().numpy()
    graph._laid_out(batch(8), {})
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name])
    assert all(p.grad is None for p in model.parameters())
    np.testing.assert_array_equal(metaop.get_rng_state().numpy(), state)


def test_what_cannot_be_searched_is_said() -> None:
    model = network(16)
    for number, layer in enumerate(model):
        layer.to_global(ROW if number < 3 else MESH, (BROADCAST,) * (1 if number < 3 else 2))
    graph = Step(model)
    graph.config.enable_auto_parallel()
    with pytest.raises(ArgumentError, match="auto parallel over 2 placements"):
        graph(*batch(8))
    with pytest.raises(ArgumentError, match="use more than 0"):
        graph.config.set_auto_parallel_computation_cost_ratio(0)
