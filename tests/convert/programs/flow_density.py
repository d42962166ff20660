"""A normalising flow of mixtures, and a policy of squashed normal variables."""

import numpy as np
import torch
import torch.distributions as dist
from torch import nn
from torch.distributions import TransformedDistribution, constraints, kl_divergence
from torch.distributions.half_cauchy import HalfCauchy
from torch.distributions.transforms import AffineTransform, TanhTransform
from torch.distributions.utils import broadcast_all


class Coupling(dist.transforms.Transform):
    domain = constraints.real_vector
    codomain = constraints.real_vector
    bijective = True

    def __init__(self, net):
        super().__init__()
        self.net = net

    def parts(self, half):
        scale, shift = self.net(half).chunk(2, dim=-1)
        return torch.tanh(scale), shift

    def _call(self, x):
        first, second = x.chunk(2, dim=-1)
        scale, shift = self.parts(first)
        return torch.cat([first, second * scale.exp() + shift], -1)

    def _inverse(self, y):
        first, second = y.chunk(2, dim=-1)
        scale, shift = self.parts(first)
        return torch.cat([first, (second - shift) * (-scale).exp()], -1)

    def log_abs_det_jacobian(self, x, y):
        scale, _ = self.parts(x.chunk(2, dim=-1)[0])
        return scale.sum(-1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 4))
        self.actor = nn.Linear(4, 4)
        self.weights = nn.Parameter(torch.zeros(3))
        self.means = nn.Parameter(torch.randn(3, 4))
        self.free_scale = nn.Parameter(torch.zeros(1))

    def density(self):
        scale = dist.transform_to(constraints.positive)(self.free_scale)
        parts = dist.Independent(dist.Normal(*broadcast_all(self.means, scale)), 1)
        mixture = dist.MixtureSameFamily(dist.Categorical(logits=self.weights), parts)
        return TransformedDistribution(mixture, [Coupling(self.net)])

    def policy(self, state):
        mean, log_std = self.actor(state).chunk(2, dim=-1)
        squash = [TanhTransform(cache_size=1), AffineTransform(0.5, 2.0, event_dim=0)]
        return TransformedDistribution(dist.Normal(mean, log_std.clamp(-2, 1).exp()), squash)


def build():
    return Model()


def train(model, steps):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    r = np.random.RandomState(3)
    prior = HalfCauchy(torch.ones(1))
    losses = []
    for _ in range(steps):
        data = torch.from_numpy(r.randn(16, 4)).float()
        actions = torch.from_numpy(r.uniform(-1.0, 2.0, (16, 2))).float()
        optimizer.zero_grad()
        policy = model.policy(data)
        loss = -model.density().log_prob(data).mean() - policy.log_prob(actions).mean()
        loss = loss + kl_divergence(policy.base_dist, dist.Normal(0.0, 1.0)).mean()
        loss = loss - prior.log_prob(model.free_scale.exp()).sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
