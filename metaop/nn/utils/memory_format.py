"""Functions that save time or memory in PyTorch and are not needed here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from metaop.nn.module import Module

AnyModule = TypeVar("AnyModule", bound=Module)


def convert_conv2d_weight_memory_format(module: AnyModule, memory_format: Any) -> AnyModule:
    """Returns the module itself: the compiler chooses the memory layout of weights.

    The order of dimensions that programs see does not depend on it.

    >>> layer = nn.Conv2d(1, 2, 3)
    >>> nn.utils.convert_conv2d_weight_memory_format(layer, metaop.channels_last) is layer
    True
    """
    return module


convert_conv3d_weight_memory_format = convert_conv2d_weight_memory_format


def skip_init(module_cls: Callable[..., AnyModule], *args: Any, **kwargs: Any) -> AnyModule:
    """A module whose initial values are never computed, because they will be replaced.

    Shapes follow from the arguments.

    >>> nn.utils.skip_init(nn.Linear, 2, 3).weight.shape
    metaop.Size([3, 2])
    """
    return module_cls(*args, **kwargs)
