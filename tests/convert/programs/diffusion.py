import math

import numpy as np
import torch
import torch.nn as nn
from torch.nn import functional as F


def cosine_beta_schedule(timesteps, s=0.008):
    steps = timesteps + 1
    x = torch.linspace(0, timesteps, steps, dtype=torch.float64)
    alphas_cumprod = torch.cos(((x / timesteps) + s) / (1 + s) * math.pi * 0.5) ** 2
    alphas_cumprod = alphas_cumprod / alphas_cumprod[0]
    betas = 1 - (alphas_cumprod[1:] / alphas_cumprod[:-1])
    return torch.clip(betas, 0, 0.999).float()


def extract(a, t, x_shape):
    b, *_ = t.shape
    out = a.gather(-1, t)
    return out.reshape(b, *((1,) * (len(x_shape) - 1)))


class SinusoidalPositionEmbeddings(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, time):
        half_dim = self.dim // 2
        embeddings = math.log(10000) / (half_dim - 1)
        embeddings = torch.exp(torch.arange(half_dim, device=time.device) * -embeddings)
        embeddings = time[:, None] * embeddings[None, :]
        return torch.cat((embeddings.sin(), embeddings.cos()), dim=-1)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(SinusoidalPositionEmbeddings(8), nn.Linear(8, 8), nn.SiLU())
        self.first = nn.Conv2d(1, 8, 3, padding=1)
        self.norm = nn.GroupNorm(2, 8)
        self.second = nn.Conv2d(8, 1, 3, padding=1)

    def forward(self, x, t):
        h = self.first(x) + self.time(t)[:, :, None, None]
        return self.second(F.silu(self.norm(h)))


class EMA:
    def __init__(self, beta):
        self.beta = beta

    @torch.no_grad()
    def update(self, ma_model, current_model):
        for current_params, ma_params in zip(current_model.parameters(), ma_model.parameters()):
            ma_params.data = ma_params.data * self.beta + (1 - self.beta) * current_params.data


def build():
    return {"model": Denoiser(), "ema": Denoiser()}


def train(models, steps):
    model, ema_model = models["model"], models["ema"]
    betas = cosine_beta_schedule(10)
    alphas_cumprod = torch.cumprod(1. - betas, axis=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    r, ema = np.random.RandomState(33), EMA(0.9)
    losses = []
    for _ in range(steps):
        x = torch.tensor(r.randn(3, 1, 4, 4), dtype=torch.float)
        noise = torch.tensor(r.randn(3, 1, 4, 4), dtype=torch.float)
        t = torch.tensor(r.randint(0, 10, (3,))).long()
        x_noisy = extract(torch.sqrt(alphas_cumprod), t, x.shape) * x + extract(torch.sqrt(1. - alphas_cumprod), t, x.shape) * noise
        loss = F.smooth_l1_loss(noise, model(x_noisy, t))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update(ema_model, model)
        losses.append(loss.item())
    with torch.inference_mode():
        losses.append(ema_model(x, t).abs().mean().item())
    return losses
