from torch import *
from torch.nn import *
import torch.nn.functional as F
import torch.optim
import numpy as np


class Sparse(Module):  # names through stars
    def __init__(self):
        super().__init__()
        self.inner = Linear(9, 6)
        self.outer = Linear(6, 9)

    def forward(self, x):
        code = sigmoid(self.inner(x))
        return self.outer(code), code


def penalty(code, rho=0.05):
    mean_code = code.mean(0)
    return (rho * log(rho / mean_code) + (1 - rho) * log((1 - rho) / (1 - mean_code))).sum()


def build():
    return Sparse()


def train(model, steps):
    r = np.random.RandomState(24)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    criterion = MSELoss(reduction='sum')
    out = []
    while len(out) < steps:
        x = from_numpy(r.rand(4, 9).astype(np.float32))
        y, code = model(x)
        loss = criterion(y, x) + 0.1 * penalty(code)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        out.append(loss.item())
    return out
