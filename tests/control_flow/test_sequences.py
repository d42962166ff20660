"""Long sequences: the program of a recurrent layer is that of one step, whatever their length."""

import numpy as np
import pytest
import torch

import metaop
from metaop.codegen.llvm import program
from metaop.execution import executor
from tests.control_flow.test_loops import random


def pair(name, **options):
    ours, theirs = (
        getattr(metaop.nn, name)(5, 6, **options),
        getattr(torch.nn, name)(5, 6, **options),
    )
    state = {key: metaop.tensor(value.numpy()) for key, value in theirs.state_dict().items()}
    ours.load_state_dict(state)
    return ours, theirs


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_two_hundred_steps(name):
    ours, theirs = pair(name, bidirectional=True)
    x, weights = random(200, 2, 5), random(200, 2, 12, seed=1)
    own, wanted = metaop.tensor(x).requires_grad_(), torch.tensor(x).requires_grad_()
    (ours(own)[0] * metaop.tensor(weights)).sum().backward()
    (theirs(wanted)[0] * torch.tensor(weights)).sum().backward()
    np.testing.assert_allclose(own.grad.numpy(), wanted.grad.numpy(), rtol=1e-3, atol=1e-5)
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        found, expected = one.grad.numpy(), other.grad.numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


def test_no_samples():
    net = metaop.nn.LSTM(5, 6)
    out, (last, _) = net(metaop.zeros(12, 0, 5))
    assert out.shape == (12, 0, 6) and last.shape == (1, 0, 6)
    out.sum().backward()
    assert not net.weight_hh_l0.grad.any()


def test_lengths_share_two_programs(monkeypatch):
    made = []

    class Counted(program.LLVMProgram):
        def __init__(self, plan):
            super().__init__(plan)
            made.append(len(self.launches))

    monkeypatch.setenv("METAOP_DISK_CACHE", "false")
    monkeypatch.setattr("metaop.codegen.llvm.backend.LLVMProgram", Counted)
    monkeypatch.setattr("metaop.codegen.llvm.general.LLVMProgram", Counted)
    executor.clear_programs()
    net = metaop.nn.LSTM(3, 4)
    [parameter.tolist() for parameter in net.parameters()]
    made.clear()
    counts = []
    for length in (20, 50, 33, 99, 300):
        net.zero_grad()
        net(metaop.ones(length, 2, 3))[0].sum().backward()
        [parameter.grad.numpy() for parameter in net.parameters()]
        counts.append(len(made))
    # One for the first length, one for any, and what is bound needs none.
    assert counts == [1, 2, 2, 2, 2] and max(made) < 60


def test_a_scan_of_any_length_makes_two_programs():
    executor.clear_programs()
    weight = metaop.tensor(random(3, 3)) * 0.1
    for length in (4, 9, 17, 30):
        x = random(length, 3)
        last, ys = metaop.scan(
            lambda c, x: ((c @ weight + x).tanh(), c.sum()), metaop.zeros(3), metaop.tensor(x)
        )
        c, sums = np.zeros(3), []
        for one in x:
            sums.append(c.sum())
            c = np.tanh(c @ weight.numpy() + one)
        np.testing.assert_allclose(last.numpy(), c, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(ys.numpy(), sums, rtol=1e-4, atol=1e-5)
    assert "any sizes where" in metaop.inspect.sizes()
    assert "one by one" not in metaop.inspect.sizes()


@pytest.mark.parametrize("recompute", [False, True])
def test_products_of_steps_are_taken_together(recompute):
    """Gradients by weights, and products of what is given, are outside of the loop."""

    def run(module, scan):
        x, weight, given = (
            module.tensor(random(*shape, seed=k) * 0.4).requires_grad_()
            for k, shape in enumerate(((9, 4, 6), (6, 6), (6, 6)))
        )
        begin = module.zeros(4, 6)
        last, ys = scan(lambda h, x: ((h @ weight + x @ given).tanh(),) * 2, begin, x)
        (last.sum() + (ys * ys).sum()).backward()
        return [last, x.grad, weight.grad, given.grad]

    def written_out(step, carry, xs):
        outputs = []
        for x in xs:
            carry, y = step(carry, x)
            outputs.append(y)
        return carry, torch.stack(outputs)

    found = run(metaop, lambda *arguments: metaop.scan(*arguments, recompute=recompute))
    for one, other in zip(found, run(torch, written_out), strict=True):
        np.testing.assert_allclose(
            one.detach().numpy(), other.detach().numpy(), rtol=1e-4, atol=1e-5
        )
