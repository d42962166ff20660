import numpy as np
import torch
import torch.nn as nn
import torch.nn.init as init
from torch.optim.lr_scheduler import MultiStepLR


class Net(nn.Module):
    def __init__(self, upscale_factor):
        super(Net, self).__init__()

        self.relu = nn.PReLU()
        self.conv1 = nn.Conv2d(1, 8, (5, 5), (1, 1), (2, 2))
        self.conv4 = nn.Conv2d(8, upscale_factor ** 2, (3, 3), (1, 1), (1, 1))
        self.pixel_shuffle = nn.PixelShuffle(upscale_factor)

        self._initialize_weights()

    def forward(self, x):
        x = self.relu(self.conv1(x))
        x = self.pixel_shuffle(self.conv4(x))
        return x

    def _initialize_weights(self):
        init.orthogonal(self.conv1.weight, init.calculate_gain('relu'))
        init.orthogonal(self.conv4.weight)


def build():
    return Net(2)


def train(model, steps):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    scheduler = MultiStepLR(optimizer, milestones=[1, 3], gamma=0.1)
    criterion = nn.MSELoss()
    r = np.random.RandomState(30)
    losses = []
    for _ in range(steps):
        target = torch.from_numpy(r.rand(2, 1, 8, 8)).to(torch.float32)
        input = nn.functional.interpolate(target, scale_factor=0.5, mode='nearest')
        optimizer.zero_grad()
        loss = criterion(model(input), target)
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    psnr = 10 * np.log10(1 / np.mean(losses))
    return losses + [psnr]
