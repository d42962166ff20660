import itertools

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR


class ResidualBlock(nn.Module):
    def __init__(self, in_features):
        super().__init__()
        self.block = nn.Sequential(
            nn.ReflectionPad2d(1), nn.Conv2d(in_features, in_features, 3), nn.InstanceNorm2d(in_features), nn.ReLU(inplace=True),
        )

    def forward(self, x):
        return x + self.block(x)  # skip


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), ResidualBlock(4), nn.Upsample(scale_factor=2), nn.Conv2d(4, 1, 3, stride=2, padding=1))

    def forward(self, x):
        return self.model(x)


class LambdaSchedule:
    def __init__(self, n_epochs, decay_start_epoch):
        assert (n_epochs - decay_start_epoch) > 0, "Decay must start before the training session ends!"
        self.n_epochs, self.decay_start_epoch = n_epochs, decay_start_epoch

    def step(self, epoch):
        return 1.0 - max(0, epoch - self.decay_start_epoch) / (self.n_epochs - self.decay_start_epoch)


def build():
    return nn.ModuleDict({"ab": Generator(), "ba": Generator()})


def train(models, steps):
    g_ab, g_ba = models["ab"], models["ba"]
    criterion_cycle, criterion_identity = torch.nn.L1Loss(), torch.nn.SmoothL1Loss()
    optimizer = torch.optim.Adam(itertools.chain(g_ab.parameters(), g_ba.parameters()), lr=0.01, betas=(0.5, 0.999))
    scheduler = LambdaLR(optimizer, lr_lambda=LambdaSchedule(5, 1).step)
    r = np.random.RandomState(3)
    losses = []
    for _ in range(steps):
        real_a = torch.as_tensor(r.randn(2, 1, 6, 6), dtype=torch.float)
        optimizer.zero_grad()
        recovered = g_ba(g_ab(real_a))
        loss = criterion_cycle(recovered, real_a) + 0.5 * criterion_identity(g_ba(real_a), real_a)
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return losses
