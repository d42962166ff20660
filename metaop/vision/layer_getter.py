"""Intermediate feature maps of a network."""

from __future__ import annotations

from collections import OrderedDict

from metaop import Tensor, nn
from metaop.errors import ArgumentError


class IntermediateLayerGetter(nn.ModuleDict):
    """Returns the outputs of selected direct children of a network, run in sequence.

    `return_layers` maps names of children to names of results, as in
    `IntermediateLayerGetter(resnet50(), {"layer1": "low", "layer4": "high"})`.
    """

    def __init__(self, model: nn.Module, return_layers: dict[str, str]) -> None:
        children = dict(model.named_children())
        if not set(return_layers) <= set(children):
            raise ArgumentError(
                f"return_layers {sorted(return_layers)} are not present in model",
                fix=f"its children are {', '.join(children)}",
            )
        names = list(children)
        last = max(names.index(name) for name in return_layers)
        super().__init__(OrderedDict((name, children[name]) for name in names[: last + 1]))
        self.return_layers = dict(return_layers)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        found = OrderedDict()
        for name, module in self.items():
            x = module(x)
            if name in self.return_layers:
                found[self.return_layers[name]] = x
        return found
