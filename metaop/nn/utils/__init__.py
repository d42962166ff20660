"""Training helpers: gradient clipping, flattened parameters, weight reparametrisations."""

from metaop.nn.utils import parametrizations, parametrize, prune, rnn, stateless
from metaop.nn.utils.clip_grad import (
    clip_grad_norm,
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)
from metaop.nn.utils.fusion import (
    fuse_conv_bn_eval,
    fuse_conv_bn_weights,
    fuse_linear_bn_eval,
    fuse_linear_bn_weights,
)
from metaop.nn.utils.memory_format import (
    convert_conv2d_weight_memory_format,
    convert_conv3d_weight_memory_format,
    skip_init,
)
from metaop.nn.utils.spectral_norm import remove_spectral_norm, spectral_norm
from metaop.nn.utils.vectors import parameters_to_vector, vector_to_parameters
from metaop.nn.utils.weight_norm import remove_weight_norm, weight_norm
