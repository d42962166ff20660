"""Names that look like PyTorch's but are not, beside those that are."""
import numpy as np
import torch as T
from torch import nn as N


class torch:  # a class of the program
    zeros = staticmethod(lambda *shape: "not " + "torch.zeros")


class nn:
    Linear = "a text"


def zeros(torch):
    return torch.zeros


def build():
    assert torch.zeros(3) == "not torch.zeros"
    assert nn.Linear == "a text"
    return N.Sequential(N.Linear(2, 3), N.ReLU6(), N.Linear(3, 1))


def train(model, steps):
    # T.randn would draw other numbers
    r = np.random.RandomState(42)
    optimizer = T.optim.SGD(model.parameters(), lr=1e-1, momentum=.5, dampening=.1)
    losses = []
    for _ in range(steps):
        loss = model(T.tensor(r.randn(4, 2), dtype=T.float32)).abs().mean()
        optimizer.zero_grad(), loss.backward(), optimizer.step()
        losses.append(float(loss))
    return losses
