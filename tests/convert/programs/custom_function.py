import numpy as np
import torch
from torch.autograd import Function, Variable
from torch.nn import Module, Linear, Parameter


class Binarize(Function):
    """Sign with a straight-through gradient."""

    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        return input.sign()

    @staticmethod
    def backward(ctx, grad_output):
        input, = ctx.saved_tensors
        grad_input = grad_output.clone()
        grad_input[input.ge(1)] = 0
        grad_input[input.le(-1)] = 0
        return grad_input


class GradientReversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.neg() * ctx.alpha, None


class Net(Module):
    def __init__(self):
        super(Net, self).__init__()
        self.fc1 = Linear(5, 8)
        self.fc2 = Linear(8, 1)
        self.scale = Parameter(torch.Tensor([1.5]))

    def forward(self, x):
        x = Binarize.apply(self.fc1(x))
        return self.fc2(GradientReversal.apply(x, 0.5)) * self.scale


def build():
    return Net()


def train(model, steps):
    norms = []
    handle = model.fc2.weight.register_hook(lambda grad: norms.append(grad.norm().item()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    r = np.random.RandomState(35)
    losses = []
    for i in range(steps):
        x = Variable(torch.from_numpy(r.randn(6, 5)).float())
        y = Variable(torch.from_numpy(r.randn(6, 1)).float(), requires_grad=False)
        loss = ((model(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    handle.remove()
    return losses + norms
