"""torchvision's `models.resnet`: ResNets, and the blocks from which programs build their own.

Example: `class Encoder(ResNet): …`, made by `Encoder(BasicBlock, [2, 2, 2, 2])`.
"""

from __future__ import annotations

from metaop.vision import models

_PROGRAM = models.program("resnet")
BasicBlock, Bottleneck, ResNet = _PROGRAM.BasicBlock, _PROGRAM.Bottleneck, _PROGRAM.ResNet
conv1x1, conv3x3 = _PROGRAM.conv1x1, _PROGRAM.conv3x3

# The networks, and their weights.
globals().update(
    {name: one for name, one in vars(models).items() if name.lower().find("resne") >= 0}
)
