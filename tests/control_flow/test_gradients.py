"""Gradients of loops and choices against PyTorch's of the loops unrolled."""

import numpy as np
import pytest
import torch

import metaop
from tests.control_flow.test_loops import random


def cell(module, carry, x, weight, bias):
    hidden, memory = carry
    gates = hidden @ weight + x
    kept = module.sigmoid(gates[:, :4]) * memory
    memory = kept + module.sigmoid(gates[:, 4:]) * module.tanh(gates[:, :4] * bias)
    hidden = module.tanh(memory) + hidden * bias
    return (hidden, memory), hidden * memory


def parameters(module):
    shapes = ((3, 4), (3, 4), (5, 3, 8), (4, 8), (4,))
    arrays = [random(*shape, seed=seed) * 0.5 for seed, shape in enumerate(shapes)]
    return [module.tensor(one).requires_grad_() for one in arrays]


def loss_of(module, carry, ys):
    return (carry[0] * carry[1]).sum() + (ys * ys).sum() * 0.5


def expected(reverse):
    tensors = parameters(torch)
    carry, (xs, weight, bias) = tuple(tensors[:2]), tensors[2:]
    outputs = [None] * 5
    for k in range(5)[:: -1 if reverse else 1]:
        carry, outputs[k] = cell(torch, carry, xs[k], weight, bias)
    return tensors, loss_of(torch, carry, torch.stack(outputs))


def scanned(reverse, recompute):
    tensors = parameters(metaop)
    xs, weight, bias = tensors[2:]
    carry, ys = metaop.scan(
        lambda carry, x: cell(metaop, carry, x, weight, bias),
        tuple(tensors[:2]),
        xs,
        reverse=reverse,
        recompute=recompute,
    )
    return tensors, loss_of(metaop, carry, ys)


def close(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.numpy(), other.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_scan(reverse, recompute):
    tensors, loss = scanned(reverse, recompute)
    wanted_tensors, wanted = expected(reverse)
    # What is read in between is computed once, and kept.
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-5)
    loss.backward()
    wanted.backward()
    close([x.grad for x in tensors], [x.grad for x in wanted_tensors])


def test_gradients_of_gradients():
    def second(module, tensors, loss):
        gradients = module.autograd.grad(loss, tensors, create_graph=True)
        total = sum((one * one).sum() for one in gradients)
        return module.autograd.grad(total, tensors)

    close(second(metaop, *scanned(False, False)), second(torch, *expected(False)))


def test_only_some_values_have_a_gradient():
    x, weight = metaop.tensor(random(4, 3)), metaop.tensor(random(3, 3)).requires_grad_()

    def step(carry, x):
        count, total, unused = carry
        return (count + 1, total + (x @ weight).detach() * weight[0], unused), count

    (count, total, _), counts = metaop.scan(
        step, (metaop.tensor(0), metaop.zeros(3), metaop.ones(2)), x
    )
    total.sum().backward()
    assert count.item() == 4 and counts.tolist() == [0, 1, 2, 3]
    wanted = np.zeros((3, 3), np.float32)
    wanted[0] = (x.numpy() @ weight.detach().numpy()).sum(0)
    np.testing.assert_allclose(weight.grad.numpy(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("chosen", [True, False])
def test_cond(chosen):
    def run(module, choose):
        x, weight = (module.tensor(random(4, seed=k)).requires_grad_() for k in (1, 2))
        sides = lambda x: (x * weight).tanh(), lambda x: (x - weight).square()
        choose(sides, x).sum().backward()
        return [x.grad, weight.grad]

    found = run(metaop, lambda f, x: metaop.cond(metaop.tensor(chosen), f[0], f[1], (x,)))
    close(found, run(torch, lambda f, x: f[0 if chosen else 1](x)))


def test_a_choice_in_every_step():
    def run(module, step):
        x, weight = (module.tensor(random(6, seed=k)).requires_grad_() for k in (1, 2))
        total = step(x, weight)
        total.backward()
        return [x.grad, weight.grad]

    def written_out(x, weight):
        total = torch.tensor(0.0)
        for k in range(6):
            total = total * weight[0] if x[k] > 0 else total + x[k] * weight[k]
        return total

    def looped(x, weight):
        def step(k, total):
            def grown(total):
                return total + x[k] * weight[k]

            return metaop.cond(x[k] > 0, lambda total: total * weight[0], grown, (total,))

        return metaop.fori_loop(0, 6, step, metaop.tensor(0.0))

    close(run(metaop, looped), run(torch, written_out))


def test_a_map_and_an_associative_scan():
    def run(module, f):
        x = module.tensor(random(5, 3)).requires_grad_()
        f(x).backward()
        return [x.grad]

    weights = random(5, 3, seed=3)
    found = run(metaop, lambda x: (metaop.map(lambda r: r.softmax(0), x) * weights).sum())
    close(found, run(torch, lambda x: (x.softmax(1) * torch.tensor(weights)).sum()))
    found = run(metaop, lambda x: (metaop.associative_scan(metaop.mul, x) * weights).sum())
    close(found, run(torch, lambda x: (x.cumprod(0) * torch.tensor(weights)).sum()))


def test_a_gradient_inside_of_a_step():
    def step(i, x):
        y = x.detach().requires_grad_()
        (gradient,) = metaop.autograd.grad((y**4).sum(), y)
        return x - 0.1 * gradient

    x = random(3) * 0.5
    found = metaop.fori_loop(0, 5, step, metaop.tensor(x))
    for _ in range(5):
        x = x - 0.4 * x**3
    np.testing.assert_allclose(found.numpy(), x, rtol=1e-5)
