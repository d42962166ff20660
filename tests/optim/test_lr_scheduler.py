"""Every schedule gives the same learning rates (and momenta) as PyTorch's."""

from __future__ import annotations

import warnings

import pytest

import metaop
from metaop import optim

torch = pytest.importorskip("torch")

SCHEDULES = [
    ("StepLR", {"step_size": 3, "gamma": 0.5}),
    ("MultiStepLR", {"milestones": [2, 5, 5, 9], "gamma": 0.3}),
    ("ConstantLR", {"factor": 0.25, "total_iters": 4}),
    ("LinearLR", {"start_factor": 0.1, "end_factor": 0.7, "total_iters": 6}),
    ("ExponentialLR", {"gamma": 0.8}),
    ("PolynomialLR", {"total_iters": 7, "power": 2.0}),
    ("CosineAnnealingLR", {"T_max": 5, "eta_min": 0.01}),
    ("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2, "eta_min": 0.001}),
    ("CosineAnnealingWarmRestarts", {"T_0": 4}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.3, "step_size_up": 3}),
    (
        "CyclicLR",
        {
            "base_lr": 0.01,
            "max_lr": 0.3,
            "step_size_up": 3,
            "step_size_down": 5,
            "mode": "triangular2",
        },
    ),
    (
        "CyclicLR",
        {
            "base_lr": [0.01, 0.02],
            "max_lr": 0.3,
            "step_size_up": 3,
            "mode": "exp_range",
            "gamma": 0.9,
        },
    ),
    ("OneCycleLR", {"max_lr": 0.4, "total_steps": 30}),
    (
        "OneCycleLR",
        {"max_lr": [0.4, 0.2], "epochs": 5, "steps_per_epoch": 6, "anneal_strategy": "linear"},
    ),
    ("OneCycleLR", {"max_lr": 0.4, "total_steps": 30, "three_phase": True}),
    ("LambdaLR", {"lr_lambda": lambda epoch: 0.9**epoch}),
    ("MultiplicativeLR", {"lr_lambda": lambda epoch: 0.9 if epoch % 2 else 1.05}),
]


def _optimizers(kind: str = "SGD", **options):
    def groups(make):
        return [{"params": [make((2,))]}, {"params": [make((3,))], "lr": 0.05}]

    ours = getattr(optim, kind)(
        groups(lambda shape: metaop.zeros(shape, requires_grad=True)), lr=0.1, **options
    )
    theirs = getattr(torch.optim, kind)(
        groups(lambda shape: torch.zeros(shape, requires_grad=True)), lr=0.1, **options
    )
    return ours, theirs


def _same_steps(ours, theirs, mine, other, steps=25):
    for _ in range(steps):
        for a, b in zip(ours.param_groups, theirs.param_groups):
            assert a["lr"] == pytest.approx(b["lr"], rel=1e-12, abs=1e-15)
            assert a.get("momentum") == pytest.approx(b.get("momentum"))
            assert a.get("betas") == pytest.approx(b.get("betas"))
        assert mine.get_last_lr() == pytest.approx(other.get_last_lr(), rel=1e-12, abs=1e-15)
        ours.step()
        theirs.step()
        mine.step()
        other.step()


@pytest.mark.parametrize("name,options", SCHEDULES)
def test_same_rates(name, options):
    ours, theirs = _optimizers(momentum=0.9)
    mine = getattr(optim.lr_scheduler, name)(ours, **options)
    other = getattr(torch.optim.lr_scheduler, name)(theirs, **options)
    _same_steps(ours, theirs, mine, other)


@pytest.mark.parametrize("name", ["CyclicLR", "OneCycleLR"])
def test_first_beta_cycles(name):
    options = {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 4}
    if name == "OneCycleLR":
        options = {"max_lr": 0.1, "total_steps": 40}
    ours, theirs = _optimizers("Adam")
    mine = getattr(optim.lr_scheduler, name)(ours, **options)
    other = getattr(torch.optim.lr_scheduler, name)(theirs, **options)
    _same_steps(ours, theirs, mine, other)


@pytest.mark.parametrize("name,options", SCHEDULES)
def test_state_resumes(name, options):
    straight, _ = _optimizers(momentum=0.9)
    whole = getattr(optim.lr_scheduler, name)(straight, **options)
    for _ in range(9):
        straight.step()
        whole.step()
    resumed, _ = _optimizers(momentum=0.9)
    part = getattr(optim.lr_scheduler, name)(resumed, **options)
    resumed.load_state_dict(straight.state_dict())
    part.load_state_dict(whole.state_dict())
    for _ in range(6):
        for optimizer, schedule in ((straight, whole), (resumed, part)):
            optimizer.step()
            schedule.step()
        assert part.get_last_lr() == pytest.approx(whole.get_last_lr())


@pytest.mark.parametrize("name,options", SCHEDULES[:7])
def test_closed_form(name, options):
    ours, theirs = _optimizers(momentum=0.9)
    mine = getattr(optim.lr_scheduler, name)(ours, **options)
    other = getattr(torch.optim.lr_scheduler, name)(theirs, **options)
    ours.step()
    theirs.step()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for epoch in (3, 7, 1, 11):
            mine.step(epoch)
            other.step(epoch)
            assert mine.get_last_lr() == pytest.approx(other.get_last_lr(), abs=1e-15)


def _warm_then_decay(module, optimizer):
    s = module
    return s.SequentialLR(
        optimizer,
        [
            s.LinearLR(optimizer, 0.1, total_iters=4),
            s.CosineAnnealingLR(optimizer, 8),
            s.ExponentialLR(optimizer, 0.9),
        ],
        milestones=[4, 12],
    )


def _chain(module, optimizer):
    s = module
    return s.ChainedScheduler([s.ConstantLR(optimizer, 0.5, 3), s.ExponentialLR(optimizer, 0.9)])


@pytest.mark.parametrize("build", [_warm_then_decay, _chain])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_combined(build):
    ours, theirs = _optimizers()
    mine = build(optim.lr_scheduler, ours)
    other = build(torch.optim.lr_scheduler, theirs)
    _same_steps(ours, theirs, mine, other, steps=20)


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("threshold_mode", ["rel", "abs"])
def test_plateau(mode, threshold_mode):
    options = {
        "mode": mode,
        "threshold_mode": threshold_mode,
        "patience": 1,
        "cooldown": 1,
        "factor": 0.5,
        "threshold": 0.05,
        "min_lr": [0.02, 0.001],
    }
    ours, theirs = _optimizers()
    mine = optim.lr_scheduler.ReduceLROnPlateau(ours, **options)
    other = torch.optim.lr_scheduler.ReduceLROnPlateau(theirs, **options)
    for value in [1.0, 0.99, 0.98, 0.9, 0.91, 0.92, 0.93, 0.94, 0.5, 0.6, 0.6, 0.6, 0.6, 0.7, 0.8]:
        mine.step(value)
        other.step(value)
        assert mine.get_last_lr() == pytest.approx(other.get_last_lr())
        assert mine.num_bad_epochs == other.num_bad_epochs
        assert mine.best == other.best


def test_order_of_steps_is_checked():
    ours, _ = _optimizers()
    schedule = optim.lr_scheduler.StepLR(ours, 2)
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        schedule.step()


def test_state_keys_are_pytorchs():
    ours, theirs = _optimizers()
    mine = optim.lr_scheduler.StepLR(ours, 2).state_dict()
    other = torch.optim.lr_scheduler.StepLR(theirs, 2).state_dict()
    assert set(mine) == set(other)


def test_bad_arguments():
    ours, _ = _optimizers()
    schedules = optim.lr_scheduler
    with pytest.raises(ValueError, match="total_steps"):
        schedules.OneCycleLR(ours, 0.1)
    with pytest.raises(TypeError, match="not an Optimizer"):
        schedules.StepLR(None, 3)
    with pytest.raises(ValueError, match="same length"):
        schedules.CyclicLR(ours, [0.1, 0.2, 0.3], 0.5)
    with pytest.raises(KeyError, match="initial_lr"):
        schedules.StepLR(ours, 3, last_epoch=4)
    plateau = schedules.ReduceLROnPlateau(ours)
    with pytest.raises(ValueError, match="ReduceLROnPlateau"):
        schedules.ChainedScheduler([plateau])


@pytest.mark.parametrize(
    "name,options",
    [
        ("StepLR", {"step_size": 2}),
        ("MultiStepLR", {"milestones": [3, 5]}),
        ("ConstantLR", {"total_iters": 4}),
        ("LinearLR", {"total_iters": 7}),
        ("ExponentialLR", {"gamma": 0.8}),
        ("PolynomialLR", {"total_iters": 7}),
        ("CosineAnnealingLR", {"T_max": 9}),
        ("LambdaLR", {"lr_lambda": lambda epoch: 0.5**epoch}),
    ],
)
def test_groups_added_later(name, options):
    """A schedule goes on with them where it only needs their rate, and refuses where not."""
    rates = []
    for library in (torch, metaop):
        first, second = library.nn.Linear(2, 1), library.nn.Linear(2, 1)
        optimizer = library.optim.SGD(first.parameters(), lr=0.1)
        schedule = getattr(library.optim.lr_scheduler, name)(optimizer, **options)
        optimizer.step()
        schedule.step()
        optimizer.add_param_group({"params": second.parameters(), "lr": 0.02})
        if name == "LambdaLR":
            with pytest.raises(ValueError):
                schedule.step()
            continue
        for _ in range(6):
            optimizer.step()
            schedule.step()
            rates.append(schedule.get_last_lr())
    half = len(rates) // 2
    for expected, found in zip(rates[:half], rates[half:]):
        assert found == pytest.approx(expected, rel=1e-12)
