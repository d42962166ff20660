"""Optimizers and learning-rate schedules, named and called as in PyTorch."""

from metaop.optim import lr_scheduler, swa_utils
from metaop.optim.adam import Adam, AdamW
from metaop.optim.adam_relatives import LAMB, Adamax, NAdam, RAdam, SparseAdam
from metaop.optim.adaptive import Adadelta, Adagrad, RMSprop
from metaop.optim.lbfgs import LBFGS
from metaop.optim.matrix import Adafactor, Muon
from metaop.optim.optimizer import Optimizer
from metaop.optim.robust import ASGD, Rprop
from metaop.optim.sgd import SGD

__all__ = [
    "ASGD",
    "LAMB",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SparseAdam",
    "lr_scheduler",
    "swa_utils",
]
