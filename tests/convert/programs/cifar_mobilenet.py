from functools import partial
from typing import List, Optional

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import OneCycleLR, StepLR


class ConvNormActivation(nn.Sequential):
    def __init__(self, cin: int, cout: int, kernel: int = 3, stride: int = 1, groups: int = 1, norm_layer: Optional[nn.Module] = None):
        norm_layer = norm_layer or partial(nn.BatchNorm2d, eps=1e-3, momentum=0.01)
        super().__init__(nn.Conv2d(cin, cout, kernel, stride, kernel // 2, groups=groups, bias=False), norm_layer(cout), nn.Hardswish())


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(channels, 2, 1)
        self.fc2 = nn.Conv2d(2, channels, 1)
        self.gate = nn.Hardsigmoid()

    def forward(self, x: "torch.Tensor") -> Tensor:
        return x * self.gate(self.fc2(torch.relu(self.fc1(self.pool(x)))))


class MobileNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers: List[nn.Module] = [ConvNormActivation(3, 8, stride=2), ConvNormActivation(8, 8, groups=8), SqueezeExcite(8), ConvNormActivation(8, 12, 1)]
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.features(x).mean([2, 3])  # global pool
        return self.classifier(x)


def build():
    return MobileNet()


def train(model, steps):
    decay = [p for n, p in model.named_parameters() if p.ndim > 1]
    no_decay = [p for n, p in model.named_parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.05}, {"params": no_decay, "weight_decay": 0.0}], lr=1e-2)
    scheduler = OneCycleLR(optimizer, max_lr=0.02, total_steps=10)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    r = np.random.RandomState(6)
    out = []
    for _ in range(steps):
        x = torch.tensor(r.rand(4, 3, 8, 8), dtype=torch.float32)
        y = torch.tensor(r.randint(0, 5, (4,)), dtype=torch.long)
        loss = criterion(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        scheduler.step()
        out.append(loss.item())
    return out
