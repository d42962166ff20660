"""Programs as the documents of torchdiffeq have them."""

import torch
from numbers_alike import filled, normal
from torch import nn
from torchdiffeq import odeint, odeint_adjoint, odeint_event


class _Field(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 2)).double()

    def forward(self, t, y):
        return self.net(y**3) * torch.cos(t)


def _spiral(t, y):
    return y**3 @ torch.tensor([[-0.1, 2.0], [-2.0, -0.1]], dtype=torch.float64)


def _times(*times):
    return torch.tensor(times, dtype=torch.float64)


def solves_with_every_method():
    """The spiral, with fixed and with adaptive steps."""
    start, times = _times(1.2, 0.0)[None], torch.linspace(0.0, 1.5, 7, dtype=torch.float64)
    fixed = ["euler", "midpoint", "heun2", "heun3", "rk4", "implicit_adams"]
    adaptive = ["dopri8", "dopri5", "bosh3", "adaptive_heun", "fehlberg2"]
    with torch.no_grad():
        steps = [
            odeint(_spiral, start, times, method=m, options={"step_size": 0.05}) for m in fixed
        ]
        return [steps, [odeint(_spiral, start, times, method=m, rtol=1e-5) for m in adaptive]]


def trains_by_the_adjoint():
    """The demonstration of a neural equation, whose gradients solve another one."""
    times = torch.linspace(0.0, 1.0, 5, dtype=torch.float64)
    target = odeint(_spiral, _times(2.0, 0.0)[None], times)
    field, losses = filled(_Field()), []
    optimizer = torch.optim.RMSprop(field.parameters(), lr=1e-3)
    for _ in range(4):
        optimizer.zero_grad()
        found = odeint_adjoint(field, target[0], times)
        loss = (found - target).abs().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return [losses, [p.grad for p in field.parameters()], list(field.parameters())]


def backpropagates_through_the_solver():
    """Gradients of weights, of the start and of the times, with tuples as states."""
    field = filled(_Field())
    start = normal(3, 2).double().requires_grad_()
    times = _times(0.0, 0.3, 0.8).requires_grad_()

    def pair(t, state):
        y, _ = state
        change = field(t, y)
        return change, change.pow(2).sum(-1, keepdim=True)

    lengths = torch.zeros(3, 1, dtype=torch.float64)
    y, length = odeint(pair, (start, lengths), times, rtol=1e-6, atol=1e-8)
    (y.pow(2).sum() + length[-1].sum()).backward()
    return [y, length, start.grad, times.grad, [p.grad for p in field.parameters()]]


def stops_at_an_event():
    """A ball that falls until it meets the ground, and how the time depends on its height."""
    height = torch.tensor([10.0], requires_grad=True)
    state = (height, torch.tensor([0.0]))
    time, states = odeint_event(
        lambda t, s: (s[1], -9.81 * torch.ones_like(s[0])),
        state,
        torch.tensor([0.0]),
        event_fn=lambda t, s: s[0].squeeze(),
        odeint_interface=odeint_adjoint,
        adjoint_params=(),
        atol=1e-6,
        rtol=1e-6,
    )
    time.sum().backward()
    return [time, states[1][-1], height.grad]
