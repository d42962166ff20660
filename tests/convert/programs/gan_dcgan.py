# DCGAN in the style of the official example
from __future__ import print_function

import numpy as np
import torch
import torch.nn as nn
import torch.nn.parallel
import torch.backends.cudnn as cudnn
import torch.optim as optim
import torch.utils.data

cudnn.benchmark = True  # has no effect on the numbers
ngpu = 0
nz, ngf, ndf, nc = 4, 4, 4, 1


# custom weights initialization called on netG and netD
def weights_init(m):
    classname = m.__class__.__name__
    if classname.find('Conv') != -1:
        torch.nn.init.normal_(m.weight, 0.0, 0.02)
    elif classname.find('BatchNorm') != -1:
        torch.nn.init.normal_(m.weight, 1.0, 0.02)
        torch.nn.init.zeros_(m.bias)


class Generator(nn.Module):
    def __init__(self):
        super(Generator, self).__init__()
        self.main = nn.Sequential(
            # input is Z, going into a convolution
            nn.ConvTranspose2d(nz, ngf * 2, 4, 1, 0, bias=False),
            nn.BatchNorm2d(ngf * 2),
            nn.ReLU(True),
            # state size. (ngf*2) x 4 x 4
            nn.ConvTranspose2d(ngf * 2, nc, 4, 2, 1, bias=False),
            nn.Tanh()
        )

    def forward(self, input):
        return self.main(input)


class Discriminator(nn.Module):
    def __init__(self):
        super(Discriminator, self).__init__()
        self.main = nn.Sequential(
            nn.Conv2d(nc, ndf, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf, 1, 4, 1, 0, bias=False),
            nn.Sigmoid()
        )

    def forward(self, input):
        return self.main(input).view(-1, 1).squeeze(1)


def build():
    netG, netD = Generator(), Discriminator()
    netG.apply(weights_init)
    netD.apply(weights_init)
    return {"G": netG, "D": netD}


def train(models, steps):
    netG, netD = models["G"], models["D"]
    device = torch.device("cuda:0" if ngpu > 0 else "cpu")
    criterion = nn.BCELoss()
    real_label, fake_label = 1, 0
    optimizerD = optim.Adam(netD.parameters(), lr=0.002, betas=(0.5, 0.999))
    optimizerG = optim.Adam(netG.parameters(), lr=0.002, betas=(0.5, 0.999))
    random = np.random.RandomState(1)
    losses = []
    for i in range(steps):
        netD.zero_grad()
        real_cpu = torch.tensor(random.randn(4, nc, 8, 8), dtype=torch.float32).to(device)
        label = torch.full((4,), real_label, dtype=real_cpu.dtype, device=device)
        errD_real = criterion(netD(real_cpu), label)
        errD_real.backward()
        noise = torch.tensor(random.randn(4, nz, 1, 1)).float().to(device)
        fake = netG(noise)
        label.fill_(fake_label)
        output = netD(fake.detach())
        errD_fake = criterion(output, label)
        errD_fake.backward()
        D_G_z1 = output.mean().item()
        optimizerD.step()
        netG.zero_grad()
        label.fill_(real_label)  # fake labels are real for generator cost
        errG = criterion(netD(fake), label)
        errG.backward()
        optimizerG.step()
        losses += [errD_real.item(), errD_fake.item(), D_G_z1, errG.item()]
    return losses
