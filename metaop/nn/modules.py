"""The names under which PyTorch programs reach into the layers (`torch.nn.modules`)."""

import importlib
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
from metaop.nn.normalisation import _BatchNorm, _InstanceNorm


def __getattr__(name: str) -> Any:
    """Every layer: `nn.modules.Linear` is `nn.Linear`."""
    layers = importlib.import_module("metaop.nn")
    if name.startswith("_") or not isinstance(getattr(layers, name, None), type):
        raise AttributeError(f"module 'metaop.nn.modules' has no attribute {name!r}")
    return getattr(layers, name)
