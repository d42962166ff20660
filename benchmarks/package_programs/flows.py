"""Programs as the documents of nflows have them."""

import numpy as np
import torch
from nflows import distributions, flows, transforms
from nflows.nn import nets
from numbers_alike import below, filled, normal
from torch import nn
from torch.nn import functional as F


def _moons(count, seed=3):
    angle = np.pi * np.random.default_rng(seed).random(count)
    side = np.arange(count) % 2
    x = np.stack([np.cos(angle) + side, np.sin(angle) * (1 - 2 * side) + 0.5 * side], 1)
    return torch.from_numpy(x.astype(np.float32))


def _steps(flow, x, context=None, count=4):
    optimizer, losses = torch.optim.SGD(flow.parameters(), lr=1e-3, momentum=0.9), []
    for _ in range(count):
        optimizer.zero_grad()
        loss = -flow.log_prob(inputs=x, context=context).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return [losses, [p.grad for p in flow.parameters()], list(flow.parameters())]


def trains_an_autoregressive_flow():
    """The first program of the documents."""
    layers = []
    for _ in range(3):
        layers.append(transforms.ReversePermutation(features=2))
        layers.append(transforms.MaskedAffineAutoregressiveTransform(features=2, hidden_features=8))
    flow = flows.Flow(transforms.CompositeTransform(layers), distributions.StandardNormal([2]))
    filled(flow)
    trained = _steps(flow, _moons(64))
    flow.eval()
    with torch.no_grad():
        noise = flow.transform_to_noise(_moons(16))
        back, logabsdet = flow._transform.inverse(noise)
    return [trained, noise, back, logabsdet]


def trains_conditional_splines():
    """Rational quadratic splines, whose widths depend on a context, and their inverses."""
    transform = transforms.CompositeTransform(
        [
            transforms.MaskedPiecewiseRationalQuadraticAutoregressiveTransform(
                features=2, hidden_features=8, context_features=3, tails="linear", tail_bound=3.0
            ),
            transforms.LULinear(2),
            transforms.ActNorm(2),
        ]
    )
    flow = filled(
        flows.Flow(transform, distributions.ConditionalDiagonalNormal([2], nn.Linear(3, 4)))
    )
    context = normal(32, 3)
    trained = _steps(flow, _moons(32), context)
    with torch.no_grad():
        back, logabsdet = transform.inverse(normal(32, 2, seed=4), context)
    return [trained, back, logabsdet]


def trains_coupling_layers():
    """Real-valued coupling layers with batch norm, and squeezed pictures."""

    def net(inside, outside):
        return nets.ResidualNet(inside, outside, hidden_features=8, num_blocks=1, activation=F.elu)

    mask = torch.tensor([1.0, 0.0, 1.0, 0.0])
    kinds = [
        transforms.AffineCouplingTransform(mask, net),
        transforms.BatchNorm(4),
        transforms.PiecewiseQuadraticCouplingTransform(1 - mask, net, tails="linear"),
        transforms.PiecewiseCubicCouplingTransform(mask, net, tails="linear"),
        transforms.PiecewiseLinearCouplingTransform(mask, net, tails="linear"),
        transforms.QRLinear(4, num_householder=2),
        transforms.SVDLinear(4, num_householder=2),
        transforms.NaiveLinear(4),
        transforms.LeakyReLU(),
    ]
    base = distributions.DiagonalNormal([4])
    flow = filled(flows.Flow(transforms.CompositeTransform(kinds), base))
    pictures, logabsdet = transforms.SqueezeTransform()(normal(2, 3, 4, 4))
    return [_steps(flow, normal(32, 4)), pictures, logabsdet]


def trains_mixtures_and_discrete_ones():
    """Densities without transforms."""
    made = distributions.MADEMoG(2, 8, 0, num_mixture_components=3)
    filled(made)
    bits = distributions.ConditionalIndependentBernoulli([3], nn.Linear(2, 3))
    filled(bits)
    kinds = below(2, 16, 3).float()
    return [_steps(made, _moons(32)), _steps(bits, kinds, normal(16, 2))]
