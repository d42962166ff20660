"""EfficientNet v2: fused blocks in early stages, which train faster on accelerators.

After M. Tan and Q. Le, "EfficientNetV2: smaller models and faster training", 2021. Names of
parameters are torchvision's.

    python -m models.efficientnet_v2 --steps 60
"""

from __future__ import annotations

from collections.abc import Sequence

from .demonstration import learn_digits, parse_options
from .efficientnet import EfficientNet

# Of each size: expansion, size of the kernel, stride of the first block, output channels, number of
# blocks. The first three stages are fused.
STAGES = {
    "s": (
        *((1, 3, 1, 24, 2), (4, 3, 2, 48, 4), (4, 3, 2, 64, 4)),
        *((4, 3, 2, 128, 6), (6, 3, 1, 160, 9), (6, 3, 2, 256, 15)),
    ),
    "m": (
        *((1, 3, 1, 24, 3), (4, 3, 2, 48, 5), (4, 3, 2, 80, 5)),
        *((4, 3, 2, 160, 7), (6, 3, 1, 176, 14), (6, 3, 2, 304, 18), (6, 3, 1, 512, 5)),
    ),
    "l": (
        *((1, 3, 1, 32, 4), (4, 3, 2, 64, 7), (4, 3, 2, 96, 7)),
        *((4, 3, 2, 192, 10), (6, 3, 1, 224, 19), (6, 3, 2, 384, 25), (6, 3, 1, 640, 7)),
    ),
}


class EfficientNetV2(EfficientNet):
    """Images (batch, 3, height, width) to logits (batch, classes).

    `size` is "s", "m" or "l"; `width` and `depth` multiply channels and blocks. The
    probability of stochastic depth grows linearly with depth, up to `stochastic_depth_prob`.
    """

    def __init__(
        self,
        size: str = "s",
        dropout: float = 0.2,
        num_classes: int = 1000,
        stochastic_depth_prob: float = 0.2,
        width: float = 1.0,
        depth: float = 1.0,
        first_stride: int = 2,
        last_channels: int = 1280,
    ) -> None:
        stages = STAGES[size]
        super().__init__(
            *(width, depth, dropout, num_classes, stochastic_depth_prob),
            eps=1e-3,
            first_stride=first_stride,
            stages=stages,
            fused=3,
            first_channels=stages[0][3],
            last_channels=last_channels,
        )


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns digits of 32 × 32 pixels; returns the losses."""
    options = parse_options(
        __doc__, arguments, steps=60, batch_size=32, lr=2e-3, width=0.5, depth=0.25
    )
    model = EfficientNetV2("s", 0.1, 10, 0.1, options.width, options.depth, 1, 256)
    return learn_digits(model, options, 32)


if __name__ == "__main__":
    main()
