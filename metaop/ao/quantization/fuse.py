"""Folding batch norms and ReLUs into the layer before them, so that fewer results are rounded."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from metaop import nn
from metaop.errors import ArgumentError
from metaop.nn.module import Module
from metaop.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)


def fuse_modules(
    model: Module, modules_to_fuse: Sequence[str] | Sequence[Sequence[str]], inplace: bool = False
) -> Module:
    """The model with batch norms and ReLUs folded into the convolution or linear map before them.

    Names are those of `named_modules`, in the order of the calls: a convolution or a linear map,
    then a batch norm, a ReLU, or both. The first layer does the work of all; the others become
    `nn.Identity`. Folding a batch norm requires a model in evaluation mode. The compiler would
    fuse a ReLU into the same kernel anyway; it moves into the first layer as in PyTorch.

    Example:
        fuse_modules(model.eval(), [["conv1", "bn1", "relu1"], ["conv2", "bn2"]])
    """
    model = model if inplace else copy.deepcopy(model)
    groups = modules_to_fuse
    if groups and isinstance(groups[0], str):
        groups = [groups]  # type: ignore[assignment, list-item]
    for names in groups:
        _fuse(model, list(names))
    return model


def _fuse(model: Module, names: list[str]) -> None:
    layers = [model.get_submodule(name) for name in names]
    first, *others = layers
    kinds = [type(layer).__name__ for layer in layers]
    rest = list(others)
    if rest and isinstance(rest[0], _NORMS):
        if isinstance(first, _CONVOLUTIONS):
            first = fuse_conv_bn_eval(first, rest.pop(0))  # type: ignore[arg-type]
        elif isinstance(first, nn.Linear):
            first = fuse_linear_bn_eval(first, rest.pop(0))  # type: ignore[arg-type]
    relu = rest.pop(0) if rest and type(rest[0]) is nn.ReLU else None
    if rest or not others or not isinstance(first, (*_CONVOLUTIONS, nn.Linear)):
        raise ArgumentError(
            f"fuse_modules: {', '.join(kinds)} cannot be one layer",
            fix="name a convolution or a linear map, then a batch norm, a ReLU, or both",
        )
    made = first if relu is None else nn.Sequential(first, relu)
    made.train(layers[0].training)
    for name, layer in zip(names, [made, *(nn.Identity() for _ in others)]):
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, layer)
