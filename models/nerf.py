"""NeRF: learns a radiance field from pictures of a scene, and renders new views.

After B. Mildenhall and others, "NeRF: representing scenes as neural radiance fields for view
synthesis", 2020, without the second, fine network. The scene is synthetic: three balls over a disc,
whose pictures are computed exactly.

    python -m models.nerf --steps 400 --out runs/nerf.png
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F

from .demonstration import Checkpoint, drawn_rows, parse_options, train, update, write_picture

# The near and the far bound of the samples on a ray.
NEAR, FAR = 2.0, 6.0


def positional_encoding(x: metaop.Tensor, octaves: int) -> metaop.Tensor:
    """x (…, n) with sines and cosines of `octaves` frequencies: (…, n + 2 n octaves)."""
    angles = [x * 2.0**octave for octave in range(octaves)]
    return metaop.cat([x, *(f(angle) for angle in angles for f in (metaop.sin, metaop.cos))], -1)


class NeRF(nn.Module):
    """Positions and view directions (…, 3) to densities (…) and colours (…, 3) in [0, 1].

    The density does not depend on the direction. A skip connection feeds the positions again into
    the middle layer.
    """

    def __init__(
        self, width: int = 256, layers: int = 8, octaves: int = 10, turns: int = 4
    ) -> None:
        super().__init__()
        self.octaves, self.turns, self.again = octaves, turns, layers // 2
        places, directions = 3 + 6 * octaves, 3 + 6 * turns
        self.pts_linears = nn.ModuleList(
            nn.Linear(places if number == 0 else width + places * (number == self.again + 1), width)
            for number in range(layers)
        )
        self.alpha_linear = nn.Linear(width, 1)
        self.feature_linear = nn.Linear(width, width)
        self.views_linears = nn.ModuleList([nn.Linear(width + directions, width // 2)])
        self.rgb_linear = nn.Linear(width // 2, 3)

    def forward(
        self, places: metaop.Tensor, directions: metaop.Tensor
    ) -> tuple[metaop.Tensor, metaop.Tensor]:
        read = positional_encoding(places, self.octaves)
        x = read
        for number, layer in enumerate(self.pts_linears):
            x = F.relu(layer(x))
            if number == self.again:
                x = metaop.cat((read, x), -1)
        density = F.relu(self.alpha_linear(x)).squeeze(-1)
        x = metaop.cat((self.feature_linear(x), positional_encoding(directions, self.turns)), -1)
        return density, self.rgb_linear(F.relu(self.views_linears[0](x))).sigmoid()


def volume_rendering(
    density: metaop.Tensor, colours: metaop.Tensor, depths: metaop.Tensor
) -> metaop.Tensor:
    """Volume rendering: ray colours (rays, 3) from densities, colours and depths of samples.

    The transmittance of the interval after each sample (rays, samples) is exp(-density * length).
    The background is white.
    """
    lengths = depths[:, 1:] - depths[:, :-1]
    lengths = metaop.cat((lengths, metaop.full_like(lengths[:, :1], 1e10)), 1)
    kept = (-density * lengths).exp()
    before = metaop.cat((metaop.ones_like(kept[:, :1]), kept[:, :-1]), 1).cumprod(1)
    weights = before * (1 - kept)
    return (weights.unsqueeze(2) * colours).sum(1) + 1 - weights.sum(1, keepdim=True)


def render(
    model: nn.Module, starts: metaop.Tensor, directions: metaop.Tensor, places: metaop.Tensor
) -> metaop.Tensor:
    """The colours (rays, 3) of rays, by stratified sampling between `NEAR` and `FAR`.

    `places` (rays, samples) in [0, 1] are the positions of samples within their equal intervals.
    """
    samples = places.shape[1]
    stretches = metaop.arange(samples, device=places.device).to(places.dtype)
    depths = NEAR + (FAR - NEAR) * (stretches + places) / samples
    points = starts.unsqueeze(1) + depths.unsqueeze(2) * directions.unsqueeze(1)
    density, colours = model(points, directions.unsqueeze(1).expand_as(points))
    return volume_rendering(density, colours, depths)


def camera(angle: float, height: float, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Origins and directions (size², 3) of the rays of a camera that looks at the centre."""
    place = 4 * np.array(
        [math.cos(angle) * math.cos(height), math.sin(angle) * math.cos(height), math.sin(height)]
    )
    ahead = -place / 4
    right = np.cross(ahead, [0, 0, 1])
    right /= np.linalg.norm(right)
    up = np.cross(right, ahead)
    steps = (np.arange(size) + 0.5) / size - 0.5
    rays = ahead + 0.8 * (steps[:, None] * right - steps[:, None, None] * up)
    directions = rays.reshape(-1, 3) / np.linalg.norm(rays.reshape(-1, 3), axis=1, keepdims=True)
    return np.broadcast_to(place, directions.shape), directions


BALLS = ((-0.5, -0.3, 0.0, 0.5), (0.6, -0.1, -0.1, 0.4), (0.0, 0.6, 0.1, 0.35))
COLOURS = ((0.9, 0.2, 0.2), (0.2, 0.7, 0.3), (0.2, 0.3, 0.9), (0.8, 0.7, 0.4))


def photograph(starts: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """The true colours (rays, 3): balls, brighter at the top, over a disc, on white."""
    nearest = np.full(len(starts), np.inf)
    found = np.ones((len(starts), 3))
    for (*middle, radius), colour in zip(BALLS, COLOURS):
        away = starts - middle
        half = (away * directions).sum(1)
        square = half**2 - (away**2).sum(1) + radius**2
        depth = np.where(square > 0, -half - np.sqrt(np.maximum(square, 0)), np.inf)
        hit = depth < nearest
        above = ((away + np.where(hit, depth, 0)[:, None] * directions) / radius)[:, 2]
        found[hit] = (np.array(colour) * (0.7 + 0.3 * above[:, None]))[hit]
        nearest = np.minimum(nearest, depth)
    depth = (-0.5 - starts[:, 2]) / directions[:, 2]
    floor = starts + depth[:, None] * directions
    hit = (depth > 0) & (depth < nearest) & (np.hypot(floor[:, 0], floor[:, 1]) < 1.2)
    found[hit] = COLOURS[3]
    return found


def main(arguments: Sequence[str] | None = None) -> float:
    """Learns a scene; returns the peak signal-to-noise ratio of new pictures, in decibels.

    `--out` names a picture: rendered new views, and the true ones.
    """
    options = parse_options(
        __doc__, arguments, steps=400, batch_size=256, lr=3e-3, width=64, layers=4, samples=32,
        size=32, pictures=16, out="",
    )  # fmt: skip

    def rays(angles: np.ndarray) -> list[np.ndarray]:
        """Origins, directions and true colours of the rays of pictures from angles (count,)."""
        parts = [camera(angle, 0.4 + 0.3 * math.sin(3 * angle), options.size) for angle in angles]
        starts, directions = (np.concatenate(part) for part in zip(*parts))
        rows = starts, directions, photograph(starts, directions)
        return [row.astype(np.float32) for row in rows]

    angles = 2 * np.pi * np.arange(options.pictures) / options.pictures
    known, new = rays(angles), rays(angles[::4] + np.pi / options.pictures)
    model = NeRF(options.width, options.layers, octaves=5, turns=2)
    optimizer = metaop.optim.Adam(model.parameters(), lr=options.lr)

    def step(number: int) -> dict[str, metaop.Tensor]:
        starts, directions, colours = drawn_rows(
            *known, size=options.batch_size, seed=(options.seed, number)
        )
        places = metaop.rand(options.batch_size, options.samples)
        found = render(model, starts, directions, places)
        return {"loss": update(optimizer, F.mse_loss(found, colours))}

    checkpoint = Checkpoint(options.checkpoint, model=model, optimizer=optimizer)
    train(step, options.steps, "NeRF", checkpoint)
    starts, directions, wanted = map(metaop.from_numpy, new)
    places = metaop.full((options.size**2, options.samples), 0.5)
    with metaop.no_grad():
        parts = zip(starts.split(len(places)), directions.split(len(places)))
        found = metaop.cat([render(model, *part, places) for part in parts])
        ratio = -10 * math.log10(F.mse_loss(found, wanted).item())
    print(f"peak signal-to-noise ratio {ratio:.2f} dB of new views")
    if options.out:
        shape = -1, options.size, options.size, 3
        sheet = metaop.cat((found, wanted)).view(shape).permute(0, 3, 1, 2)
        write_picture(sheet, options.out, nrow=len(sheet) // 2)
    return ratio


if __name__ == "__main__":
    main()
