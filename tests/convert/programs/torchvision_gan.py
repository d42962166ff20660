"""DCGAN whose samples are written with torchvision, in the style of many repositories."""
import os
import tempfile
import numpy as np
import torch
import torch.nn as nn
import torchvision.utils as vutils
import torchvision.transforms as transforms
from torchvision.utils import save_image, make_grid
from torch.autograd import Variable

outf = tempfile.mkdtemp()
to_tensor = transforms.Compose([
    transforms.ToPILImage(),
    transforms.Scale(8) if hasattr(transforms, 'Scale') else transforms.Resize(8),
    transforms.Grayscale(),
    transforms.ToTensor(),
    transforms.Normalize([0.5], [0.5]),
])


class Generator(nn.Module):
    def __init__(self, nz=6):
        super(Generator, self).__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, 8, 4, 1, 0, bias=False), nn.BatchNorm2d(8), nn.ReLU(True),
            nn.ConvTranspose2d(8, 1, 4, 2, 1, bias=False), nn.Tanh())

    def forward(self, z):
        return self.main(z)


class Discriminator(nn.Module):
    def __init__(self):
        super(Discriminator, self).__init__()
        self.main = nn.Sequential(
            nn.Conv2d(1, 8, 4, 2, 1), nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(8, 1, 4))

    def forward(self, x):
        return self.main(x).view(-1)


def build():
    return {'G': Generator(), 'D': Discriminator()}


def pictures(random, count):
    pixels = random.randint(0, 256, (count, 12, 12, 3)).astype(np.uint8)
    return torch.stack([to_tensor(p) for p in pixels])


def train(models, steps):
    G, D = models['G'], models['D']
    random = np.random.RandomState(3)
    criterion = nn.BCEWithLogitsLoss()
    optD = torch.optim.Adam(D.parameters(), lr=1e-3, betas=(0.5, 0.999))
    optG = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.5, 0.999))
    losses = []
    for i in range(steps):
        real = Variable(pictures(random, 4))
        noise = torch.from_numpy(random.randn(4, 6, 1, 1)).float()
        fake = G(noise)
        lossD = criterion(D(real), torch.ones(4)) + criterion(D(fake.detach()), torch.zeros(4))
        optD.zero_grad(); lossD.backward(); optD.step()
        lossG = criterion(D(fake), torch.ones(4))
        optG.zero_grad(); lossG.backward(); optG.step()
        losses.extend([lossD.item(), lossG.item()])
    vutils.save_image(fake.detach(), os.path.join(outf, 'fake.png'), normalize=True)
    grid = make_grid(fake.detach(), nrow=2, padding=1, normalize=True, value_range=(-1, 1))
    losses.append(grid.mean().item())
    return losses
