"""The names under which PyTorch programs reach into the layers (`torch.nn.modules`)."""

import importlib
import sys
from types import ModuleType
from typing import Any

from metaop.nn.convolution import _Convolution as _ConvNd
from metaop.nn.hooks import (
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from metaop.nn.loss import _Loss, _WeightedLoss
from metaop.nn.module import Module
from metaop.nn.modules import module, utils
from metaop.nn.normalisation import _BatchNorm, _InstanceNorm

# The modules in which PyTorch defines its layers, besides `module` and `utils`.
_ROOMS = (
    *("activation", "adaptive", "batchnorm", "channelshuffle", "container", "conv", "distance"),
    *("dropout", "flatten", "fold", "instancenorm", "lazy", "linear", "loss", "normalization"),
    *("padding", "pixelshuffle", "pooling", "rnn", "sparse", "transformer", "upsampling"),
)


class _Room(ModuleType):
    """One of them: `nn.modules.conv._ConvNd` is `nn.modules._ConvNd`."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(sys.modules[__name__], name)


def __getattr__(name: str) -> Any:
    """Every layer: `nn.modules.Linear` is `nn.Linear`."""
    layers = importlib.import_module("metaop.nn")
    if name.startswith("_") or not isinstance(getattr(layers, name, None), type):
        raise AttributeError(f"module 'metaop.nn.modules' has no attribute {name!r}")
    return getattr(layers, name)


for _name in _ROOMS:
    _room = globals()[_name] = sys.modules[f"{__name__}.{_name}"] = _Room(f"{__name__}.{_name}")
