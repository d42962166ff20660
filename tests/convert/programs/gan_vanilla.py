"""A GAN on vectors, in the style of early GAN scripts: torch.autograd.Variable everywhere."""
import argparse

import numpy as np
import torch
import torch.nn as nn
from torch.autograd import Variable

parser = argparse.ArgumentParser()
parser.add_argument("--latent_dim", type=int, default=8, help="size of the noise")
parser.add_argument("--lr", type=float, default=0.01)
opt = parser.parse_args([])

cuda = True if torch.cuda.is_available() else False
Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor  # old type names


class Generator(nn.Module):
    """torch.nn in a docstring stays."""

    def __init__(self):
        super(Generator, self).__init__()

        def block(n_in, n_out, normalize=True):
            layers = [nn.Linear(n_in, n_out)]
            if normalize:
                layers.append(nn.BatchNorm1d(n_out, 0.8))
            layers.append(nn.LeakyReLU(0.2, inplace=True))
            return layers

        self.model = nn.Sequential(*block(opt.latent_dim, 16, normalize=False), *block(16, 16), nn.Linear(16, 12), nn.Tanh())

    def forward(self, z):
        return self.model(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(nn.Linear(12, 16), nn.LeakyReLU(0.2, inplace=True), nn.Linear(16, 1), nn.Sigmoid())

    def forward(self, img):
        return self.model(img)


def build():
    return {"generator": Generator(), "discriminator": Discriminator()}


def train(models, steps):
    generator, discriminator = models["generator"], models["discriminator"]
    adversarial_loss = torch.nn.BCELoss()
    if cuda:
        generator.cuda()
        discriminator.cuda()
    optimizer_G = torch.optim.Adam(generator.parameters(), lr=opt.lr, betas=(0.5, 0.999))
    optimizer_D = torch.optim.Adam(discriminator.parameters(), lr=opt.lr, betas=(0.5, 0.999))
    random = np.random.RandomState(0)
    losses = []
    for i in range(steps):
        imgs = torch.from_numpy(random.rand(6, 12))
        # Adversarial ground truths
        valid = Variable(Tensor(imgs.size(0), 1).fill_(1.0), requires_grad=False)
        fake = Variable(Tensor(imgs.size(0), 1).fill_(0.0), requires_grad=False)
        real_imgs = Variable(imgs.type(Tensor))

        optimizer_G.zero_grad()
        z = Variable(Tensor(random.normal(0, 1, (imgs.shape[0], opt.latent_dim))))
        gen_imgs = generator(z)
        g_loss = adversarial_loss(discriminator(gen_imgs), valid)
        g_loss.backward()
        optimizer_G.step()

        optimizer_D.zero_grad()
        real_loss = adversarial_loss(discriminator(real_imgs), valid)
        fake_loss = adversarial_loss(discriminator(gen_imgs.detach()), fake)
        d_loss = (real_loss + fake_loss) / 2  # halves
        d_loss.backward()
        optimizer_D.step()
        print("[Batch %d] [D loss: %f] [G loss: %f]" % (i, d_loss.data[0] if False else d_loss.item(), g_loss.item()))
        losses += [d_loss.item(), g_loss.item()]
    return losses
