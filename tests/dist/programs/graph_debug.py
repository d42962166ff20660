"""What nn.Graph.debug prints on two ranks: as much as the level says, where it was asked for."""

import contextlib
import io
from itertools import pairwise

import metaop
from metaop import nn
from metaop.distributed import distribute_tensor, get_rank, placement, sbp

rank = get_rank()
everywhere = placement.all("cpu")


class Step(nn.Graph):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.add_optimizer(metaop.optim.SGD(model.parameters(), lr=0.1))

    def build(self, x: metaop.Tensor) -> metaop.Tensor:
        loss = self.model(x).square().mean()
        loss.backward()
        return loss


def printed(level: int, ranks: int | list[int] | None) -> list[str]:
    metaop.manual_seed(0)
    model = nn.Linear(64, 96).to_global(everywhere, sbp.broadcast)
    graph = Step(model)
    graph.debug(level, ranks=ranks)
    with contextlib.redirect_stderr(io.StringIO()) as text:
        graph(distribute_tensor(metaop.ones(32, 64), everywhere, sbp.split(0))).item()
    return [line for line in text.getvalue().splitlines() if " after " not in line]


levels = [printed(level, None) for level in (-1, 0, 1, 2, 3)]
assert levels[0] == []
for less, more in pairwise(levels):
    rest = iter(more)
    assert len(less) < len(more)
    assert all(line in rest for line in less)
assert any("module model: " in line and " S0 -> " in line for line in levels[2])
assert any("operator linear in model: " in line for line in levels[3])
assert all(any(f"rank {one}: " in line for line in levels[4]) for one in range(2))
assert any(" moves " in line and line.endswith(" bytes") for line in levels[4])

assert bool(printed(0, 1)) == (rank == 1)
assert bool(printed(0, [0])) == (rank == 0)
assert printed(0, -1) == printed(0, [0, 1]) != []
# In a pipeline each rank says what its stage runs.
stages = [placement("cpu", [0]), placement("cpu", [1])]
parts = [nn.Linear(8, 8).to_global(where, sbp.broadcast) for where in stages]


class Pipeline(Step):
    def __init__(self) -> None:
        super().__init__(nn.Sequential(*parts))
        self.config.set_gradient_accumulation_steps(2)
        for number, where in enumerate(stages):
            self.model[number].config.set_stage(number, where)


graph = Pipeline()
graph.debug(3, ranks=-1)
with contextlib.redirect_stderr(io.StringIO()) as text:
    graph(distribute_tensor(metaop.ones(4, 8), stages[0], sbp.broadcast)).item()
lines = text.getvalue().splitlines()
assert any(f"operator linear in model.{rank}: " in line for line in lines)
assert not any(f"operator linear in model.{1 - rank}: " in line for line in lines)
assert any(f"rank {rank}: " in line for line in lines)
assert not any(f"rank {1 - rank}: " in line for line in lines)
print(f"rank {rank} has said what it should")
