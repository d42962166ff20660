"""Averaged models and their schedule against PyTorch's."""

from __future__ import annotations

import pytest

import metaop
from metaop import nn, optim
from tests.nn.parity import close, draw, pair, to_metaop

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("kind", ["equal", "exponential", "all at once", "all equally"])
def test_averages(kind):
    ours, theirs = pair("Linear", 3, 2)
    swa, torch_swa = optim.swa_utils, torch.optim.swa_utils
    options, torch_options = {}, {}
    if kind == "exponential":
        options, torch_options = (
            {"avg_fn": swa.get_ema_avg_fn(0.9)},
            {"avg_fn": torch_swa.get_ema_avg_fn(0.9)},
        )
    if kind.startswith("all"):
        rule, arguments = ("ema", (0.9,)) if kind == "all at once" else ("swa", ())
        options, torch_options = (
            {"multi_avg_fn": getattr(m, f"get_{rule}_multi_avg_fn")(*arguments)}
            for m in (swa, torch_swa)
        )
    mine, other = (
        swa.AveragedModel(ours, **options),
        torch_swa.AveragedModel(theirs, **torch_options),
    )
    assert list(mine.state_dict()) == list(other.state_dict())
    for seed in range(4):
        values = draw(2, 3, seed=seed, grad=False)
        with torch.no_grad():
            theirs.weight.copy_(values)
        with metaop.no_grad():
            ours.weight.copy_(to_metaop(values))
        mine.update_parameters(ours)
        other.update_parameters(theirs)
    close(mine.module.weight, other.module.weight, 1e-5)
    assert mine.n_averaged.item() == 4


@pytest.mark.parametrize("strategy", ["cos", "linear"])
@pytest.mark.parametrize("epochs", [0, 5])
def test_schedule(strategy, epochs):
    ours = optim.SGD([nn.Parameter(metaop.ones(1))], lr=0.1)
    theirs = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    mine = optim.swa_utils.SWALR(ours, 0.02, epochs, strategy)
    other = torch.optim.swa_utils.SWALR(theirs, 0.02, epochs, strategy)
    for _ in range(9):
        ours.step()
        theirs.step()
        mine.step()
        other.step()
        assert mine.get_last_lr() == pytest.approx(other.get_last_lr(), abs=1e-12)


def test_statistics_anew():
    ours, theirs = pair("BatchNorm1d", 3)
    batches = [draw(6, 3, seed=k, grad=False) * (k + 1) for k in range(3)]
    optim.swa_utils.update_bn([to_metaop(batch) for batch in batches], ours)
    torch.optim.swa_utils.update_bn(batches, theirs)
    close(ours.running_mean, theirs.running_mean, 1e-5)
    close(ours.running_var, theirs.running_var, 1e-4)
    assert ours.momentum == 0.1
