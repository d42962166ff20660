"""What the text of a random training program defines besides its model: `T` is torch or metaop."""

from __future__ import annotations

import re
from typing import Any

import torch

_HELPERS = '''\
class Squashed(T.autograd.Function):
    """A gradient by hand that reads the input and the result."""

    @staticmethod
    def forward(ctx, x):
        y = x.tanh()
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, gradient):
        x, y = ctx.saved_tensors
        return gradient * (1 - y * y) * 0.7 + gradient * x * 0.01


class Running(T.nn.Module):
    """The distance from a mean that a buffer remembers."""

    def __init__(self, count):
        super().__init__()
        self.register_buffer("mean", T.zeros(count))
        self.scale = T.nn.Parameter(T.ones(count))

    def forward(self, x):
        if self.training:
            with T.no_grad():
                self.mean.lerp_(x.transpose(1, -1).flatten(0, -2).mean(0), 0.3)
        shape = (1, -1, *[1] * (x.ndim - 2))
        return (x - self.mean.view(shape)) * self.scale.view(shape)


class Directions(T.nn.Module):
    """Rows that are about as long as one another."""

    def forward(self, x):
        return x / (x.square().sum(1, keepdim=True) + 0.1).sqrt()


class Repeated(T.nn.Module):
    """A module that is used several times, each time behind a tanh."""

    def __init__(self, module, times):
        super().__init__()
        self.module, self.times = module, times

    def forward(self, x):
        for _ in range(self.times):
            x = self.module(x.tanh())
        return x


class Steps(T.nn.Module):
    """A recurrent cell that goes through the rows of a sequence."""

    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, x):
        state, found = None, []
        for row in x.unbind(1):
            state = self.cell(row, state)
            found.append(state[0] if isinstance(state, tuple) else state)
        return T.stack(found, 1)


def hooked(x, factor):
    """`x`, whose gradient is multiplied when it arrives."""
    if x.requires_grad:
        x.register_hook(lambda gradient: gradient * factor)
    return x


def slope(x):
    """The gradient of a function of `x`, to be differentiated again."""
    with T.enable_grad():
        x = x if x.requires_grad else x.detach().clone().requires_grad_()
        return T.autograd.grad((x.tanh() * x).sum(), x, create_graph=True)[0]


def written(x, *statements):
    """A copy of `x` with statements carried out on it."""
    x = x.clone()
    for statement in statements:
        statement(x)
    return x


def square(x):
    """Well-conditioned matrices made of a batch of rows: (b, n, f) to (b, n, n)."""
    return x @ x.mT / x.shape[2] + T.eye(x.shape[1], dtype=x.dtype)


def mask(x):
    """Where positions may attend: to themselves and to a third of those before."""
    places = T.arange(x.shape[-2])
    return (places[:, None] == places) | ((places[:, None] - places) % 3 == 1)
'''


TORCH: dict[str, Any] = {"T": torch, "F": torch.nn.functional}
exec(_HELPERS, TORCH)


def helpers_of(text: str) -> str:
    """The definitions of the helpers that a text names."""
    definitions = re.split(r"\n{3,}", _HELPERS)
    named = [one for one in definitions if re.search(rf"\b{re.split(r'[ (]', one)[1]}\b", text)]
    return "\n".join(named)
