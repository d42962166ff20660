"""Results that are data classes and dictionaries at once."""

from collections import OrderedDict
from dataclasses import dataclass, fields
from typing import Optional

import torch
import torch.utils._pytree


class ModelOutput(OrderedDict):
    def __init_subclass__(cls):
        torch.utils._pytree.register_pytree_node(
            cls,
            lambda output: (list(output.values()), list(output.keys())),
            lambda values, keys: cls(**dict(zip(keys, values))),
            serialized_type_name=f"{cls.__module__}.{cls.__name__}",
        )

    def __post_init__(self):
        for field in fields(self):
            if getattr(self, field.name) is not None:
                self[field.name] = getattr(self, field.name)

    def __getitem__(self, key):
        return dict(self.items())[key] if isinstance(key, str) else tuple(self.values())[key]


@dataclass
class Output(ModelOutput):
    loss: Optional[torch.FloatTensor] = None
    logits: "Optional[torch.Tensor]" = None
