import numpy as np
import torch
import torch.autograd as autograd
from torch.autograd import Variable
import torch.nn as nn
import torch.nn.functional as F

lambda_gp = 10  # loss weight for gradient penalty


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(6, 12)
        self.fc2 = nn.Linear(12, 1)

    def forward(self, x):
        return self.fc2(F.leaky_relu(self.fc1(x), 0.2))


def compute_gradient_penalty(D, real_samples, fake_samples, alpha):
    """Calculates the gradient penalty loss for WGAN GP; see torch.autograd.grad"""
    # Get random interpolation between real and fake samples
    interpolates = (alpha * real_samples + ((1 - alpha) * fake_samples)).requires_grad_(True)
    d_interpolates = D(interpolates)
    fake = Variable(torch.FloatTensor(real_samples.shape[0], 1).fill_(1.0), requires_grad=False)
    # Get gradient w.r.t. interpolates
    gradients = autograd.grad(
        outputs=d_interpolates,
        inputs=interpolates,
        grad_outputs=fake,
        create_graph=True,
        retain_graph=True,
        only_inputs=True,
    )[0]
    gradients = gradients.view(gradients.size(0), -1)
    gradient_penalty = ((gradients.norm(2, dim=1) - 1) ** 2).mean()
    return gradient_penalty


def build():
    return Critic()


def train(D, steps):
    optimizer = torch.optim.RMSprop(D.parameters(), lr=0.01, eps=1e-2)
    r = np.random.RandomState(2)
    losses = []
    for _ in range(steps):
        real = torch.Tensor(r.randn(5, 6))
        fake = torch.Tensor(r.randn(5, 6) + 1)
        alpha = torch.Tensor(r.random_sample((5, 1)))
        optimizer.zero_grad()
        penalty = compute_gradient_penalty(D, real.data, fake.data, alpha)
        d_loss = -torch.mean(D(real)) + torch.mean(D(fake)) + lambda_gp * penalty
        d_loss.backward()
        optimizer.step()
        losses.append(d_loss.item())
    return losses
