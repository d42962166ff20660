"""Learning-rate schedules, named and called as in PyTorch."""

from metaop.optim.lr_scheduler.base import LRScheduler
from metaop.optim.lr_scheduler.combined import ChainedScheduler, ReduceLROnPlateau, SequentialLR
from metaop.optim.lr_scheduler.cyclic import CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR
from metaop.optim.lr_scheduler.factors import (
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)

_LRScheduler = LRScheduler
