"""Automatic parallelism: `metaop run -np 2 examples/dist/auto_parallel.py folder`.

The network is created on all ranks. In its first step `nn.Graph` searches for the best sharding of
the parameters. These layers are wide and the batch is small, so the first is split by column and
the second by row. Run it again, on another number of ranks, to resume from the checkpoint in the
folder.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import metaop
from metaop import nn
from metaop.distributed import checkpoint, get_rank, global_mode, placement, sbp

WIDTH, HIDDEN, ROWS, STEPS = 64, 4096, 8, 5


class Step(nn.Graph):
    """One step of training."""

    def __init__(self, model: nn.Module, optimizer: metaop.optim.Optimizer) -> None:
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer)
        self.config.enable_auto_parallel()

    def build(self, x: metaop.Tensor, y: metaop.Tensor) -> metaop.Tensor:
        loss = nn.functional.mse_loss(self.model(x), y)
        loss.backward()
        return loss


def main(folder: Path) -> None:
    """Trains, saves a checkpoint, and prints the losses, which do not depend on the ranks."""
    everywhere = placement.all("cpu")
    metaop.manual_seed(0)
    with global_mode(True, placement=everywhere, sbp=sbp.broadcast):
        model = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, WIDTH))
        x, y = metaop.randn(ROWS, WIDTH), metaop.randn(ROWS, WIDTH)
    optimizer = metaop.optim.AdamW(model.parameters(), lr=1e-3)
    state = {"model": model, "optimizer": optimizer, "step": 0}
    if folder.exists():
        checkpoint.load(state, checkpoint_id=folder)
    graph = Step(model, optimizer)
    for step in range(state["step"], state["step"] + STEPS):
        loss = graph(x, y).item()
        if get_rank() == 0:
            print(f"step {step}  loss {loss:.5f}")
    checkpoint.save({**state, "step": step + 1}, checkpoint_id=folder)
    if get_rank() == 0:
        lies = ", ".join(f"{name} {p.sbp}" for name, p in model.named_parameters())
        print(f"parameters lie as {lies}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the checkpoint is kept")
    main(parser.parse_args().folder)
