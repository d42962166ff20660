import numpy as np
import torch
from torch import nn
from torch.cuda.amp import GradScaler, autocast

use_amp = torch.cuda.is_available()  # a no-op on the CPU


def build():
    return nn.DataParallel(nn.Sequential(nn.Linear(4, 8), nn.CELU(), nn.Linear(8, 2)))


def train(model, steps):
    optimizer = torch.optim.Adamax(model.module.parameters(), lr=0.01)
    scaler = GradScaler(enabled=use_amp)
    r = np.random.RandomState(40)
    losses = []
    for _ in range(steps):
        x = torch.tensor(r.randn(5, 4), dtype=torch.float32)
        y = torch.tensor(r.randn(5, 2), dtype=torch.float32)
        optimizer.zero_grad()
        with autocast(enabled=use_amp):
            loss = nn.functional.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses
