"""Diffusion: generates digits by gradual denoising (DDPM and DDIM).

After J. Ho and others, "Denoising diffusion probabilistic models", 2020, and J. Song and others,
"Denoising diffusion implicit models", 2020. A U-Net predicts the noise in noisy images; sampling
starts from pure noise.

    python -m models.diffusion --steps 600 --checkpoint runs/diffusion.pth --out runs/digits.png
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F

from .demonstration import Checkpoint, digit_images, drawn_rows, parse_options, train, update


def timestep_embedding(times: metaop.Tensor, width: int) -> metaop.Tensor:
    """Sinusoidal embeddings (batch, width) of time steps (batch,): cosines, then sines."""
    half = width // 2
    powers = metaop.arange(half, device=times.device) / half
    angles = times[:, None] * 10000.0**-powers
    return metaop.cat((angles.cos(), angles.sin()), 1)


class Block(nn.Module):
    """A residual block: two convolutions, with the projected time embedding added in between.

    (batch, inputs, …) to (batch, outputs, …).
    """

    def __init__(self, inputs: int, outputs: int, time: int, groups: int) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(time, outputs)
        self.norm2 = nn.GroupNorm(groups, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()
        # Zero initialisation: a block starts as its shortcut.
        nn.init.zeros_(self.conv2.weight)
        nn.init.zeros_(self.conv2.bias)

    def forward(self, x: metaop.Tensor, time: metaop.Tensor) -> metaop.Tensor:
        hidden = self.conv1(F.silu(self.norm1(x))) + self.time(time)[:, :, None, None]
        return self.shortcut(x) + self.conv2(F.silu(self.norm2(hidden)))


class Attention(nn.Module):
    """Self-attention over the pixels of (batch, width, rows, columns), added to its input."""

    def __init__(self, width: int, groups: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(groups, width)
        self.qkv = nn.Conv2d(width, 3 * width, 1)
        self.proj = nn.Conv2d(width, width, 1)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        query, key, value = self.qkv(self.norm(x)).flatten(2).transpose(1, 2).chunk(3, -1)
        found = F.scaled_dot_product_attention(query, key, value)
        return x + self.proj(found.transpose(1, 2).reshape(x.shape))


class UNet(nn.Module):
    """Noisy images (batch, channels, height, width) and times (batch,) to the noise in them.

    The image is halved once, so height and width must be even.
    """

    def __init__(self, channels: int = 1, width: int = 32, groups: int = 4) -> None:
        super().__init__()
        time = 4 * width
        self.width = width
        self.time = nn.Sequential(
            nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time), nn.SiLU()
        )
        self.entry = nn.Conv2d(channels, width, 3, padding=1)
        self.before = Block(width, width, time, groups)
        self.halve = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.down = Block(2 * width, 2 * width, time, groups)
        self.attention = Attention(2 * width, groups)
        self.up = Block(2 * width, 2 * width, time, groups)
        self.enlarge = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.after = Block(2 * width, width, time, groups)
        self.norm = nn.GroupNorm(groups, width)
        self.head = nn.Conv2d(width, channels, 3, padding=1)

    def forward(self, images: metaop.Tensor, times: metaop.Tensor) -> metaop.Tensor:
        time = self.time(timestep_embedding(times, self.width).to(images.dtype))
        large = self.before(self.entry(images), time)
        small = self.down(self.halve(large), time)
        small = self.up(self.attention(small), time)
        x = self.after(metaop.cat((self.enlarge(small), large), 1), time)
        return self.head(F.silu(self.norm(x)))


class NoiseSchedule:
    """The cosine schedule of `steps` time steps (A. Nichol, P. Dhariwal, 2021).

    A noisy image is x_t = sqrt(alpha_bar[t]) x_0 + sqrt(1 - alpha_bar[t]) noise, where alpha_bar
    falls from nearly 1 to nearly 0. `beta` is the variance that each step adds.
    """

    def __init__(self, steps: int = 100) -> None:
        angles = (np.arange(steps + 1) / steps + 0.008) / 1.008 * math.pi / 2
        whole = np.cos(angles) ** 2
        # As in the paper, beta is at most 0.999.
        self.beta = np.minimum(1 - whole[1:] / whole[:-1], 0.999)
        self.alpha_bar = np.cumprod(1 - self.beta)

    def loss(
        self, model: nn.Module, images: metaop.Tensor, times: metaop.Tensor, noise: metaop.Tensor
    ) -> metaop.Tensor:
        """The mean squared error of the noise that `model` predicts at `times` (batch,)."""
        alpha_bar = metaop.from_numpy(self.alpha_bar).to(images)[times][:, None, None, None]
        noisy = alpha_bar.sqrt() * images + (1 - alpha_bar).sqrt() * noise
        return F.mse_loss(model(noisy, times), noise)

    def sample(
        self, model: nn.Module, start: metaop.Tensor, steps: int | None = None, eta: float = 1.0
    ) -> metaop.Tensor:
        """Images from noise `start` (batch, channels, height, width), in [-1, 1].

        With `eta` 1 each step adds noise (DDPM); with 0 sampling is deterministic (DDIM), and fewer
        `steps`, spread over all times, suffice.
        """
        total = len(self.alpha_bar)
        times = np.linspace(total - 1, 0, steps or total).round().astype(int)
        x = start
        with metaop.no_grad():
            for time, following in zip(times, [*times[1:], -1]):
                alpha_bar = self.alpha_bar[time]
                next_alpha_bar = self.alpha_bar[following] if following >= 0 else 1.0
                batch = metaop.full((len(x),), int(time), dtype=metaop.int64, device=x.device)
                noise = model(x, batch)
                image = (x - math.sqrt(1 - alpha_bar) * noise) / math.sqrt(alpha_bar)
                image = image.clamp(-1, 1)
                noise = (x - math.sqrt(alpha_bar) * image) / math.sqrt(1 - alpha_bar)
                ratio = (1 - next_alpha_bar) / (1 - alpha_bar)
                sigma = eta * math.sqrt(ratio * (1 - alpha_bar / next_alpha_bar))
                x = math.sqrt(next_alpha_bar) * image
                x = x + math.sqrt(1 - next_alpha_bar - sigma**2) * noise
                if sigma > 0:
                    x = x + sigma * metaop.randn_like(x)
        return x


def draw_sheet(path: Path, images: np.ndarray) -> None:
    """Writes images (count, 1, height, width) in [-1, 1] side by side into one picture."""
    from PIL import Image

    sheet = np.concatenate(list(images[:, 0]), 1)
    pixels = ((sheet.clip(-1, 1) + 1) * 127.5).round().astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).resize((8 * pixels.shape[1], 8 * pixels.shape[0]), 0).save(path)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns the digits of scikit-learn and generates some; returns the losses."""
    options = parse_options(
        __doc__, arguments, steps=600, batch_size=32, lr=2e-3, width=16, times=100, draw=8,
        draw_steps=20, eta=0.0, out="",
    )  # fmt: skip
    images, _ = digit_images(8, 1)
    model, noise = UNet(1, options.width), NoiseSchedule(options.times)
    optimizer = metaop.optim.AdamW(model.parameters(), lr=options.lr)

    def step(number: int) -> dict[str, metaop.Tensor]:
        (batch,) = drawn_rows(images, size=options.batch_size, seed=(options.seed, number))
        times = metaop.randint(0, options.times, (options.batch_size,))
        return {
            "loss": update(optimizer, noise.loss(model, batch, times, metaop.randn_like(batch)))
        }

    checkpoint = Checkpoint(options.checkpoint, model=model, optimizer=optimizer)
    history = train(step, options.steps, "diffusion", checkpoint)
    start = metaop.randn(options.draw, 1, 8, 8)
    drawn = noise.sample(model.eval(), start, options.draw_steps, options.eta).numpy()
    if options.out:
        draw_sheet(Path(options.out), drawn)
    for row in np.concatenate(list(drawn[:, 0]), 1):
        print("".join(" .:*#"[int(value)] for value in (row.clip(-1, 1) + 1) * 2.25))
    return history["loss"]


if __name__ == "__main__":
    main()
