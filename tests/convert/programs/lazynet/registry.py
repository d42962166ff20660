"""Tables of classes by name, and the class that finds them."""

import importlib

import torch
import torch.distributed.rpc
from torch import nn

ACTIVATIONS = {"gelu": nn.GELU, "relu": nn.ReLU, "tanh": (nn.GELU, {"approximate": "tanh"})}
OPTIONS = {"remote": torch.distributed.rpc.TensorPipeRpcBackendOptions()}
_NETWORKS = {"encoder": "Encoder"}


def activation(name):
    found = ACTIVATIONS[name]
    return found[0](**found[1]) if isinstance(found, tuple) else found()


@torch.library.custom_op("lazynet::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


@doubled.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.triton_op("lazynet::tripled", mutates_args=())
def tripled(x: torch.Tensor) -> torch.Tensor:
    return 3 * x


@tripled.register_fake
def _(x):
    return torch.empty_like(x)


class AutoNetwork:
    @classmethod
    def from_config(cls, config):
        module = importlib.import_module(f".{config.kind}", "lazynet.networks")
        return getattr(module, _NETWORKS[config.kind])(config)
