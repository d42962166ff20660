"""The names under which PyTorch programs reach into the layers (`torch.nn.modules`)."""

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
