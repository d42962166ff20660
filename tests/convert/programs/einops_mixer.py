# An MLP-Mixer and attention written with einops
import numpy as np
import torch
from torch import nn, einsum
import einops
from einops import rearrange, reduce, repeat
from einops.layers.torch import Rearrange, Reduce


class Attention(nn.Module):
    def __init__(self, dim, heads=2):
        super().__init__()
        self.heads = heads
        self.scale = (dim // heads) ** -0.5
        self.to_qkv = nn.Linear(dim, dim * 3, bias=False)

    def forward(self, x):
        qkv = self.to_qkv(x).chunk(3, dim=-1)
        q, k, v = map(lambda t: rearrange(t, 'b n (h d) -> b h n d', h=self.heads), qkv)
        dots = einsum('b h i d, b h j d -> b h i j', q, k) * self.scale
        out = einops.einsum(dots.softmax(dim=-1), v, 'b h i j, b h j d -> b h i d')
        return rearrange(out, 'b h n d -> b n (h d)')


class Mixer(nn.Module):
    def __init__(self, patch=4, dim=12, tokens=4, classes=3):
        super().__init__()
        self.embed = nn.Sequential(
            Rearrange('b c (h p1) (w p2) -> b (h w) (p1 p2 c)', p1=patch, p2=patch),
            nn.Linear(patch * patch * 3, dim),
        )
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.attention = Attention(dim)
        self.mix = nn.Sequential(
            Rearrange('b n d -> b d n'), nn.Linear(tokens + 1, tokens + 1), nn.GELU(),
            Rearrange('b d n -> b n d'))
        self.head = nn.Sequential(Reduce('b n d -> b d', 'mean'), nn.Linear(dim, classes))

    def forward(self, img):
        x = self.embed(img)
        x = torch.cat((repeat(self.cls, '() n d -> b n d', b=x.shape[0]), x), dim=1)
        x = x + self.attention(x)
        x = x + self.mix(x)
        return self.head(x)


def build():
    return Mixer()


def train(model, steps):
    random = np.random.RandomState(5)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        x = torch.tensor(random.randn(4, 3, 8, 8)).float()
        y = torch.tensor(random.randint(0, 3, 4))
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        losses.append(reduce(x, 'b c h w -> ', 'max').item())
    return losses
