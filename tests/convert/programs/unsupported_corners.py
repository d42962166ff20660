"""A program with corners that metaop has not: it starts, and each corner is marked."""
import numpy as np
import torch
import torch.library
import torch.nn as nn
from torch.library import triton_op  # an operator
from torch.ao.quantization import QuantStub, DeQuantStub
from torch.utils.cpp_extension import load as load_extension


class Quantised(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        return self.fc(x)

    def prepare(self):
        return QuantStub()  # never reached


class Own(torch.library.Library):
    pass


def corner(model):
    graph = torch.library.triton_op(model)
    return torch.relu(graph, inplaced=True), torch.ops.aten.add


def build():
    return Quantised()


def train(model, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    r = np.random.RandomState(41)
    losses = []
    for _ in range(steps):
        loss = model(torch.tensor(r.randn(4, 3)).float()).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
