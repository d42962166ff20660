"""Training programs for one device; nothing here knows of ranks.

python for_one_device.py FOLDER: writes losses.json there, the values that each program printed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import metaop
from metaop import nn
from metaop.data import DataLoader, TensorDataset

F = nn.functional
STEPS = 20


def samples(count: int = 44) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    x = random.standard_normal((count, 6)).astype(np.float32)
    return x, (x[:, 0] > x[:, 1]).astype(np.int64)


def network() -> nn.Module:
    metaop.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 2))


def loader() -> Iterator[list[metaop.Tensor]]:
    """Batches of 8; the last one of each epoch has 4, 3 or 1 samples."""
    x, y = samples(44)
    for epoch in range(100):
        kept = 40 + (4, 3, 1)[epoch % 3]
        data = TensorDataset(metaop.from_numpy(x[:kept]), metaop.from_numpy(y[:kept]))
        yield from DataLoader(data, batch_size=8, shuffle=True)


def sgd() -> list[float]:
    model, losses = network(), []
    optimizer = metaop.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    schedule = metaop.optim.lr_scheduler.StepLR(optimizer, 5, 0.5)
    for (x, y), _ in zip(loader(), range(STEPS)):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


def adam_with_clipping() -> list[float]:
    model, losses = network(), []
    optimizer = metaop.optim.Adam(model.parameters(), lr=0.01)
    schedule = metaop.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=2)
    for (x, y), _ in zip(loader(), range(STEPS)):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.3)
        optimizer.step()
        losses += [loss.item(), norm.item()]
        schedule.step(losses[-2])
    return losses


def accumulation() -> list[float]:
    model, losses = network(), []
    optimizer = metaop.optim.AdamW(model.parameters(), lr=0.01)
    for step, (x, y) in zip(range(STEPS), loader()):
        loss = F.cross_entropy(model(x), y) / 3
        loss.backward()
        losses.append(loss.item())
        if step % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()
    return losses


def scaled() -> list[float]:
    model, losses = network(), []
    optimizer = metaop.optim.SGD(model.parameters(), lr=0.1)
    scaler = metaop.amp.GradScaler("cpu", growth_interval=4)
    for (x, y), step in zip(loader(), range(STEPS)):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        # One step has infinite gradients, and is left out.
        scaler.scale(loss * (float("inf") if step == 7 else 1.0)).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_value_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        losses += [loss.item(), scaler.get_scale()]
    return losses


def captured() -> list[float]:
    model = network()
    optimizer = metaop.optim.Adam(model.parameters(), lr=0.01)

    @metaop.jit
    def step(x: metaop.Tensor, y: metaop.Tensor) -> metaop.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    losses = [step(x, y).item() for (x, y), _ in zip(loader(), range(STEPS))]
    assert step.traces < STEPS
    return losses


def batches_by_hand() -> list[float]:
    """Slices of arrays, batch normalisation, and an evaluation that counts."""
    x, y = samples(45)
    metaop.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU())
    head = nn.Linear(16, 2)
    optimizer = metaop.optim.SGD([*model.parameters(), *head.parameters()], lr=0.05)
    losses, random = [], np.random.default_rng(3)
    for _ in range(4):
        order = random.permutation(45)
        for start in range(0, 45, 10):
            chosen = order[start : start + 10]
            logits = head(model(metaop.tensor(x[chosen])))
            loss = F.cross_entropy(logits, metaop.tensor(y[chosen]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    model.eval()
    right = 0
    with metaop.no_grad():
        for start in range(0, 45, 7):
            found = head(model(metaop.tensor(x[start : start + 7]))).argmax(1)
            right += (found == metaop.tensor(y[start : start + 7])).sum().item()
            right += int((found.numpy() == y[start : start + 7]).sum())
    return [*losses, right, *model[1].running_var.tolist()]


def without_an_optimizer() -> list[float]:
    """Weights that are no module's, a rule of its own, a matrix for everyone."""
    x, y = samples()
    metaop.manual_seed(2)
    weight, mixing = metaop.randn(6, 2, requires_grad=True), metaop.from_numpy(x[:6] * 0.1)
    losses = []
    for step in range(STEPS):
        rows = np.arange(step, step + 9) % 44
        loss = F.cross_entropy(metaop.from_numpy(x[rows]) @ mixing @ weight, metaop.tensor(y[rows]))
        (gradient,) = metaop.autograd.grad(loss, weight)
        with metaop.no_grad():
            weight -= 0.5 * gradient
        losses.append(loss.item())
    return losses


def files(folder: Path) -> list[float]:
    """Logs, folders and checkpoints: written, read, and gone on from."""
    target = folder / "made" / "here"
    os.makedirs(target)
    model, values = network(), []
    optimizer = metaop.optim.Adam(model.parameters(), lr=0.01)
    for (x, y), step in zip(loader(), range(6)):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with open(target / "log.txt", "a") as log:
            log.write(f"{step} {loss.item():.4f}\n")
        print(f"step {step}  loss {loss.item():.4f}")
        if step == 3:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            metaop.save(state, target / "half.tmp")
            os.replace(target / "half.tmp", target / "half.pth")
    kept = metaop.load(target / "half.pth")
    again = network()
    again.load_state_dict(kept["model"])
    optimizer = metaop.optim.Adam(again.parameters(), lr=0.01)
    optimizer.load_state_dict(kept["optimizer"])
    x, y = map(metaop.from_numpy, samples())
    for _ in range(3):
        loss = F.cross_entropy(again.eval()(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        values.append(loss.item())
    values.append(len((target / "log.txt").read_text().splitlines()))
    with open(target / "once.txt", "x") as once:
        once.write("once")
    values.append(len((target / "once.txt").read_text()))
    return values


PROGRAMS: list[Callable[[], list[float]]] = [
    *(sgd, adam_with_clipping, accumulation, scaled, captured),
    *(batches_by_hand, without_an_optimizer),
]


def main(folder: Path) -> None:
    found = {program.__name__: program() for program in PROGRAMS}
    found["files"] = files(folder)
    with open(folder / "losses.json", "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
