"""ArcFace: face embeddings trained by a softmax with an additive angular margin.

After J. Deng, J. Guo, N. Xue, S. Zafeiriou, "ArcFace: additive angular margin loss for deep face
recognition", 2018. The faces are synthetic: each person has their own features, and each picture
another position, size and light. With many classes the softmax dominates the cost, so it can be
split over ranks; the losses equal those of one device.

    python -m models.arcface --steps 200
    mpirun -np 2 python -m models.arcface --split 1
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F

from .clicks import ranking
from .demonstration import Checkpoint, parse_options, train, update


class ArcFace(nn.Module):
    """Embeddings (batch, width) and labels (batch,) to logits (batch, classes).

    A logit is `scale` times the cosine between the embedding and the weight of the class. `margin`
    is added to the angle of the target class, which makes classes more compact. Beyond π -
    `margin`, where the cosine would grow again, the target's logit is the cosine minus a constant.
    """

    def __init__(self, width: int, classes: int, scale: float = 64.0, margin: float = 0.5) -> None:
        super().__init__()
        self.scale, self.margin = scale, margin
        self.weight = nn.Parameter(metaop.empty(classes, width))
        nn.init.normal_(self.weight, std=0.01)

    def forward(self, vectors: metaop.Tensor, labels: metaop.Tensor) -> metaop.Tensor:
        cosine = F.normalize(vectors) @ F.normalize(self.weight).t()
        sine = (1 - cosine**2).clamp(min=1e-12).sqrt()
        further = cosine * math.cos(self.margin) - sine * math.sin(self.margin)
        turned = cosine - math.sin(self.margin) * self.margin
        further = metaop.where(cosine > -math.cos(self.margin), further, turned)
        right = F.one_hot(labels, len(self.weight)).bool()
        return self.scale * metaop.where(right, further, cosine)


class FaceNetwork(nn.Module):
    """Faces (batch, 1, 24, 24) to embeddings (batch, outputs)."""

    def __init__(self, width: int = 16, outputs: int = 32) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, channels in ((1, width), (width, 2 * width), (2 * width, 4 * width)):
            layers += [
                nn.Conv2d(inputs, channels, 3, 2, 1, bias=False),
                nn.BatchNorm2d(channels),
                nn.PReLU(channels),
            ]
        self.features = nn.Sequential(*layers, nn.Flatten())
        self.vector = nn.Linear(36 * width, outputs, bias=False)
        self.norm = nn.BatchNorm1d(outputs)

    def forward(self, faces: metaop.Tensor) -> metaop.Tensor:
        return self.norm(self.vector(self.features(faces)))


def draw_faces(people: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """A picture (count, 1, 24, 24), float32, of each of people (count, 9).

    The features of a person are in [0, 1]: the width and height of the face, the height, distance
    and size of the eyes, the length of the nose, the height, width and bend of the mouth.
    """
    wide, tall, eyes, apart, size, nose, mouth, broad, bend = people.T[:, :, None, None]
    count = len(people)
    rows, columns = np.mgrid[-1:1:24j, -1:1:24j]
    scale = random.uniform(0.93, 1.07, (count, 1, 1))
    move = random.uniform(-0.06, 0.06, (2, count, 1, 1))
    y, x = rows * scale + move[0], columns * scale + move[1]

    def within(distance: np.ndarray) -> np.ndarray:
        """A soft step: 1 for negative distances, 0 for positive ones."""
        return 1 / (1 + np.exp(np.clip(20 * distance, -30, 30)))

    faces = 0.7 * within(np.hypot(x / (0.5 + 0.35 * wide), y / (0.7 + 0.25 * tall)) - 1)
    radius = 0.06 + 0.1 * size
    for side in (-1, 1):
        away = np.hypot(x - side * (0.15 + 0.25 * apart), y + 0.1 + 0.35 * eyes)
        faces = faces - 0.7 * within(away - radius)
    faces = faces - 0.4 * within(np.hypot(x / 0.05, (y - 0.05) / (0.1 + 0.2 * nose)) - 1)
    curve = 0.35 + 0.25 * mouth + (bend - 0.5) * (2 * x**2 - 0.1)
    faces = faces - 0.6 * within(np.abs(y - curve) - 0.05) * within(np.abs(x) - 0.12 - 0.3 * broad)
    light = random.uniform(-0.25, 0.25, (2, count, 1, 1))
    faces = faces * (1 + light[0] * x + light[1] * y) + random.normal(0, 0.05, faces.shape)
    return (2 * faces - 0.5).astype(np.float32)[:, None]


def verification(
    network: Callable[[metaop.Tensor], metaop.Tensor],
    people: np.ndarray,
    random: np.random.Generator,
) -> float:
    """The area under the ROC curve of telling whether two pictures show the same person.

    Two pictures of each of people (count, 9) are compared by cosines with those of all others.
    """
    with metaop.no_grad():
        pictures = [metaop.from_numpy(draw_faces(people, random)) for _ in range(2)]
        first, second = (F.normalize(network(picture)) for picture in pictures)
        scores = (first @ second.t()).numpy()
    return ranking(scores.ravel(), np.eye(len(people)).ravel())


def main(arguments: Sequence[str] | None = None) -> float:
    """Learns some people; returns how well pictures of others are verified.

    With `--split 1` the classes are split over all ranks.
    """
    options = parse_options(
        __doc__, arguments, steps=200, batch_size=64, lr=3e-3, people=64, width=8, scale=16.0,
        margin=0.3, split=0,
    )  # fmt: skip
    people = np.random.default_rng((options.seed, 0, 1)).uniform(size=(options.people, 9))
    network = FaceNetwork(options.width)
    head = ArcFace(32, options.people, options.scale, options.margin)

    def given(tensor: metaop.Tensor) -> metaop.Tensor:
        return tensor

    if options.split:
        from metaop.distributed import distribute_tensor, placement, sbp

        everywhere = placement.all("cpu")
        network.to_global(everywhere, sbp.broadcast)
        head.to_global(everywhere, sbp.split(0))

        def given(tensor: metaop.Tensor) -> metaop.Tensor:
            return distribute_tensor(tensor, everywhere, sbp.broadcast)

    parameters = [*network.parameters(), *head.parameters()]
    optimizer = metaop.optim.AdamW(parameters, lr=options.lr, weight_decay=5e-4)

    def step(number: int) -> dict[str, metaop.Tensor]:
        random = np.random.default_rng((options.seed, number))
        chosen = random.integers(0, options.people, options.batch_size)
        faces = given(metaop.from_numpy(draw_faces(people[chosen], random)))
        labels = given(metaop.from_numpy(chosen))
        loss = F.cross_entropy(head(network(faces), labels), labels)
        return {"loss": update(optimizer, loss)}

    checkpoint = Checkpoint(options.checkpoint, network=network, head=head, optimizer=optimizer)
    train(step, options.steps, "ArcFace", checkpoint)
    random = np.random.default_rng((options.seed, 0, 2))
    network.eval()
    found = verification(lambda faces: network(given(faces)), random.uniform(size=(64, 9)), random)
    print(f"area under the curve {found:.3f} of whether two pictures show the same new person")
    return found


if __name__ == "__main__":
    main()
