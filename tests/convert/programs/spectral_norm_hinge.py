import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import spectral_norm as SpectralNorm, weight_norm


class SelfAttention(nn.Module):
    """ Self attention Layer"""

    def __init__(self, in_dim):
        super().__init__()
        self.query_conv = nn.Conv2d(in_channels=in_dim, out_channels=in_dim//2, kernel_size=1)
        self.key_conv = nn.Conv2d(in_channels=in_dim, out_channels=in_dim//2, kernel_size=1)
        self.value_conv = nn.Conv2d(in_channels=in_dim, out_channels=in_dim, kernel_size=1)
        self.gamma = nn.Parameter(torch.zeros(1))
        self.softmax = nn.Softmax(dim=-1)

    def forward(self, x):
        m_batchsize, C, width, height = x.size()
        proj_query = self.query_conv(x).view(m_batchsize, -1, width*height).permute(0, 2, 1)  # B X CX(N)
        proj_key = self.key_conv(x).view(m_batchsize, -1, width*height)  # B X C x (*W*H)
        attention = self.softmax(torch.bmm(proj_query, proj_key))  # BX (N) X (N)
        proj_value = self.value_conv(x).view(m_batchsize, -1, width*height)
        out = torch.bmm(proj_value, attention.permute(0, 2, 1)).view(m_batchsize, C, width, height)
        return self.gamma*out + x


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = SpectralNorm(nn.Conv2d(1, 4, 3, 1, 1))
        self.attn = SelfAttention(4)
        self.last = weight_norm(nn.Linear(4, 1), name='weight')

    def forward(self, x):
        x = F.leaky_relu(self.conv(x), 0.1)
        return self.last(self.attn(x).sum(dim=(2, 3))).squeeze()


def build():
    return Discriminator()


def train(D, steps):
    optimizer = torch.optim.Adam(filter(lambda p: p.requires_grad, D.parameters()), 0.004, (0.0, 0.9), eps=1e-3)
    r = np.random.RandomState(36)
    losses = []
    for _ in range(steps):
        real, fake = (torch.tensor(r.randn(3, 1, 4, 4), dtype=torch.float32) for _ in range(2))
        d_loss = torch.nn.ReLU()(1.0 - D(real)).mean() + torch.nn.ReLU()(1.0 + D(fake)).mean()
        optimizer.zero_grad()
        d_loss.backward()
        optimizer.step()
        losses.append(d_loss.item())
    return losses
