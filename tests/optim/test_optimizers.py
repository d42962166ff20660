"""Ten steps of every optimizer, with every option, follow PyTorch's trajectory."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import metaop
from metaop import nn, optim

torch = pytest.importorskip("torch")

SHAPES = [(3, 4), (4,), (2, 2, 2), ()]

CASES = [
    ("SGD", {}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}),
    ("Adam", {}),
    ("Adam", {"lr": 0.05, "betas": (0.8, 0.95), "weight_decay": 0.1, "eps": 1e-3}),
    ("Adam", {"amsgrad": True, "maximize": True}),
    ("Adam", {"decoupled_weight_decay": True, "weight_decay": 0.2}),
    ("AdamW", {"lr": 0.05}),
    ("AdamW", {"weight_decay": 0.3, "amsgrad": True}),
    ("NAdam", {"lr": 0.05, "weight_decay": 0.1}),
    ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True, "momentum_decay": 0.1}),
    ("RAdam", {"lr": 0.05}),
    ("RAdam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("Adamax", {"lr": 0.05, "weight_decay": 0.1}),
    ("RMSprop", {}),
    ("RMSprop", {"centered": True, "momentum": 0.9, "weight_decay": 0.1}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.2}),
    ("Adagrad", {"weight_decay": 0.1, "maximize": True}),
    ("Adadelta", {"weight_decay": 0.1, "rho": 0.8}),
    ("Rprop", {"lr": 0.1, "etas": (0.4, 1.3), "step_sizes": (1e-3, 0.3)}),
    ("ASGD", {"lr": 0.1, "t0": 4, "weight_decay": 0.1, "lambd": 0.1}),
    ("Adafactor", {"lr": 0.1}),
    ("Adafactor", {"weight_decay": 0.1, "eps": (1e-4, 1e-2), "d": 1.5, "maximize": True}),
    ("Muon", {"lr": 0.05}),
    ("Muon", {"nesterov": False, "adjust_lr_fn": "match_rms_adamw", "ns_steps": 3}),
    ("SparseAdam", {"lr": 0.05}),
    ("SparseAdam", {"betas": (0.8, 0.95), "maximize": True}),
]
# Classes with tests of their own.
ELSEWHERE = {"LBFGS", "Optimizer"}
# Muon computes in bfloat16, where the order of a sum decides the last of eight bits.
TOLERANCES = {"Muon": 2e-3}


class Both:
    """The same parameters under our optimizer and under torch's."""

    def __init__(self, name: str, **options) -> None:
        self.generator = np.random.default_rng(0)
        self.name = name
        special = {"Muon": [(3, 4), (5, 2)], "SparseAdam": SHAPES[:3]}
        values = [self.draw(shape) for shape in special.get(name, SHAPES)]
        self.ours = [nn.Parameter(metaop.tensor(value)) for value in values]
        self.theirs = [torch.nn.Parameter(torch.tensor(value)) for value in values]
        self.optimizer = getattr(optim, name)(self.ours, **options)
        self.reference = getattr(torch.optim, name)(self.theirs, **options)

    def draw(self, shape):
        return np.asarray(self.generator.standard_normal(shape), np.float32)

    def step(self, skip: int | None = None) -> None:
        for k, (own, other) in enumerate(zip(self.ours, self.theirs)):
            gradient = self.draw(own.shape)
            if self.name == "SparseAdam":
                gradient[1:2] = 0
            own.grad = None if k == skip else metaop.tensor(gradient)
            other.grad = None if k == skip else torch.tensor(gradient)
            if self.name == "SparseAdam":
                own.grad, other.grad = own.grad.to_sparse(1), other.grad.to_sparse(1)
        self.optimizer.step()
        self.reference.step()

    def check(self) -> None:
        for own, other in zip(self.ours, self.theirs):
            np.testing.assert_allclose(
                own.detach().numpy(),
                other.detach().numpy(),
                rtol=1e-5,
                atol=TOLERANCES.get(self.name, 1e-5),
            )
        state, wanted = self.optimizer.state_dict(), self.reference.state_dict()
        assert state["param_groups"] == wanted["param_groups"]
        assert list(state["param_groups"][0]) == list(wanted["param_groups"][0])
        assert list(state["state"]) == list(wanted["state"])
        for number, values in wanted["state"].items():
            assert list(state["state"][number]) == list(values)
            for key, value in values.items():
                np.testing.assert_allclose(
                    state["state"][number][key].detach().numpy(),
                    torch.as_tensor(value).numpy(),
                    rtol=1e-4,
                    atol=1e-5,
                    err_msg=key,
                )


def test_every_optimizer_is_compared():
    import inspect

    for name in dir(torch.optim):
        theirs = getattr(torch.optim, name)
        if isinstance(theirs, type) and issubclass(theirs, torch.optim.Optimizer):
            assert name in ELSEWHERE | {case[0] for case in CASES}
            wanted = inspect.signature(theirs).parameters.values()
            own = inspect.signature(getattr(optim, name)).parameters.values()
            assert [(p.name, p.default) for p in own] == [(p.name, p.default) for p in wanted]


@pytest.mark.parametrize("name,options", CASES, ids=str)
def test_trajectory(name, options):
    both = Both(name, **options)
    for _ in range(10):
        both.step()
    both.check()


@pytest.mark.parametrize("name", ["SGD", "Adam", "NAdam", "RMSprop", "ASGD"])
def test_missing_gradients(name):
    both = Both(name, lr=0.05, **({"momentum": 0.9} if name == "SGD" else {}))
    for step in range(6):
        both.step(skip=step % 3)
    both.check()


@pytest.mark.parametrize("name,options", CASES, ids=str)
def test_state_from_pytorch(name, options):
    """A torch checkpoint goes on here as it goes on there."""
    both = Both(name, **options)
    for _ in range(3):
        both.step()
    saved = both.reference.state_dict()
    translated = {
        "param_groups": saved["param_groups"],
        "state": {
            number: {
                key: metaop.tensor(torch.as_tensor(value).numpy().copy())
                for key, value in values.items()
            }
            for number, values in saved["state"].items()
        },
    }
    both.optimizer = getattr(optim, name)(both.ours, **options)
    both.optimizer.load_state_dict(translated)
    for _ in range(3):
        both.step()
    both.check()


def test_groups_and_changed_rates():
    both = Both("Adam")
    both.optimizer = optim.Adam(
        [{"params": both.ours[:2], "lr": 0.1}, {"params": both.ours[2:], "weight_decay": 0.1}]
    )
    both.reference = torch.optim.Adam(
        [{"params": both.theirs[:2], "lr": 0.1}, {"params": both.theirs[2:], "weight_decay": 0.1}]
    )
    for step in range(6):
        for optimizer in (both.optimizer, both.reference):
            optimizer.param_groups[1]["lr"] = 0.1 / (step + 1)
        both.step()
    for own, other in zip(both.ours, both.theirs):
        np.testing.assert_allclose(own.detach().numpy(), other.detach().numpy(), atol=1e-5)


def test_a_changed_rate_compiles_nothing():
    from metaop.execution import executor

    both = Both("Adam", lr=0.1)
    for _ in range(3):
        both.step()
    known = len(executor._programs)
    for step in range(4):
        both.optimizer.param_groups[0]["lr"] = 0.01 * step
        both.optimizer.param_groups[0]["betas"] = (0.8 + 0.01 * step, 0.99)
        both.step()
    assert len(executor._programs) == known


def test_training_lowers_the_loss():
    metaop.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    for name in ("SGD", "Adam", "LAMB", "RMSprop"):
        network = copy.deepcopy(model)
        optimizer = getattr(optim, name)(network.parameters(), lr=0.02)
        x = metaop.tensor(np.random.default_rng(0).standard_normal((32, 4)).astype(np.float32))
        target = x.sum(1, keepdim=True)
        losses = []
        for _ in range(30):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(network(x), target)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < 0.7 * losses[0], name


def test_lamb_follows_its_formula():
    x, gradient = np.array([3.0, 4.0]), np.array([1.0, -2.0])
    parameter = nn.Parameter(metaop.tensor(x.astype(np.float32)))
    optimizer = optim.LAMB([parameter], lr=0.1, weight_decay=0.1)
    parameter.grad = metaop.tensor(gradient.astype(np.float32))
    optimizer.step()
    direction = gradient / (np.abs(gradient) + 1e-6) + 0.1 * x
    wanted = x - 0.1 * np.linalg.norm(x) / np.linalg.norm(direction) * direction
    np.testing.assert_allclose(parameter.detach().numpy(), wanted, rtol=1e-5)


def test_closure_and_hooks():
    parameter = nn.Parameter(metaop.ones(2))
    optimizer = optim.SGD([parameter], lr=0.5)
    order = []
    optimizer.register_step_pre_hook(lambda *a: order.append("before"))
    handle = optimizer.register_step_post_hook(lambda *a: order.append("after"))

    def closure():
        order.append("closure")
        optimizer.zero_grad()
        loss = (parameter**2).sum()
        loss.backward()
        return loss

    with metaop.no_grad():
        loss = optimizer.step(closure)
    assert loss.item() == 2
    assert order == ["before", "closure", "after"]
    assert parameter.tolist() == [0, 0]
    handle.remove()
    optimizer.step()
    assert order[-1] == "before"


def test_zero_grad():
    parameter = nn.Parameter(metaop.ones(2))
    optimizer = optim.SGD([parameter])
    (parameter * 3).sum().backward()
    optimizer.zero_grad(set_to_none=False)
    assert parameter.grad.tolist() == [0, 0]
    optimizer.zero_grad()
    assert parameter.grad is None


@pytest.mark.parametrize(
    "make",
    [
        # With momentum PyTorch's first step makes two states and keeps the second.
        lambda library, params: library.optim.SGD(params, lr=0.1),
        lambda library, params: library.optim.Adam(params, lr=0.1),
        lambda library, params: library.optim.Adagrad(params, lr=0.1),
    ],
    ids=["SGD", "Adam", "Adagrad"],
)
def test_a_parameter_that_is_listed_twice_is_updated_twice(make):
    found = []
    for library in (torch, metaop):
        first, second = (library.nn.Parameter(library.ones(n)) for n in (2, 3))
        with pytest.warns(UserWarning, match="duplicate parameters"):
            optimizer = make(library, [first, second, first])
        for step in range(4):
            optimizer.zero_grad()
            ((first * (step + 1)).sin().sum() + (second**2).sum()).backward()
            optimizer.step()
        found.append([x.detach().numpy() for x in (first, second)])
    for ours, theirs in zip(*found[::-1]):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_errors_and_text():
    parameter = nn.Parameter(metaop.ones(2))
    with pytest.raises(ValueError, match="empty parameter list"):
        optim.SGD([])
    with pytest.raises(TypeError, match="iterable of Tensors"):
        optim.SGD(parameter)
    with pytest.raises(TypeError, match="can only optimize Tensors"):
        optim.SGD([3])
    with pytest.raises(ValueError, match="non-leaf"):
        optim.SGD([parameter * 2])
    with pytest.raises(ValueError, match="more than one parameter group"):
        optim.SGD([{"params": parameter}, {"params": [parameter]}])
    with pytest.raises(ValueError, match="learning rate"):
        optim.Adam([parameter], lr=-1)
    with pytest.raises(ValueError, match="Nesterov"):
        optim.SGD([parameter], nesterov=True)
    with pytest.raises(ValueError, match="different number of parameter groups"):
        optim.SGD([parameter]).load_state_dict({"state": {}, "param_groups": []})
    wanted = repr(torch.optim.Adam([torch.nn.Parameter(torch.ones(2))]))
    assert repr(optim.Adam([parameter])) == wanted


def test_printed_as_in_torch():
    texts = []
    for framework in (torch, metaop):
        groups = [{"params": [framework.nn.Parameter(framework.ones(2))]} for _ in range(3)]
        groups[1]["weight_decay"] = 0.5
        optimizers = [framework.optim.SGD(groups[:1]), framework.optim.AdamW(groups, lr=0.1)]
        texts.append([repr(optimizer) for optimizer in optimizers])
    assert texts[1] == texts[0]


def test_named_parameters():
    model = nn.Linear(2, 3)
    optimizer = optim.SGD(model.named_parameters(), lr=0.1)
    assert optimizer.param_groups[0]["param_names"] == ["weight", "bias"]


def test_pickling():
    both = Both("Adam", lr=0.1)
    both.step()
    again = pickle.loads(pickle.dumps(both.optimizer))
    assert again.param_groups[0]["lr"] == 0.1
    first = again.param_groups[0]["params"][0]
    assert again.state[first]["step"].item() == 1


def test_saved_values_count_as_overwritten():
    weight = nn.Parameter(metaop.ones(3))
    optimizer = optim.SGD([weight], lr=0.1)
    loss = (weight * weight).sum()
    loss.backward(retain_graph=True)
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_many_steps_keep_no_history():
    import gc

    from metaop.unified_graph.recording import Call

    def calls() -> int:
        gc.collect()
        return sum(type(item) is Call for item in gc.get_objects())

    both = Both("Adam", lr=0.1)
    for _ in range(3):
        both.step()
    before = calls()
    for _ in range(5):
        both.step()
    assert calls() <= before + 5


@pytest.mark.parametrize("lib", [metaop, torch], ids=["metaop", "torch"])
def test_an_optimizer_that_wraps_another_needs_no_hooks_of_its_own(lib):
    """Libraries derive from Optimizer to be one, and never initialise it."""

    class Wrapped(lib.optim.Optimizer):
        def __init__(self, inner):
            self.inner = inner

        def step(self, closure=None):
            return self.inner.step(closure)

    weight = lib.nn.Parameter(lib.ones(2))
    inner = lib.optim.SGD([weight], lr=0.5)
    calls = []
    inner.register_step_pre_hook(lambda optimizer, args, kwargs: calls.append(optimizer))
    weight.sum().backward()
    Wrapped(inner).step()
    assert weight.tolist() == [0.5, 0.5] and calls == [inner]
