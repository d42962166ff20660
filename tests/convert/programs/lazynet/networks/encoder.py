"""A small encoder with what networks of such packages are decorated with."""

import json
import os
from dataclasses import asdict, dataclass

import torch
import torch.utils.checkpoint
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from lazynet.outputs import Output

from .. import utils
from ..registry import activation

if utils.is_torch_other_available():
    import torch_other


@dataclass
class EncoderConfig:
    width: int = 8
    heads: int = 2
    layers: int = 2
    classes: int = 3
    words: int = 11
    act: str = "tanh"
    kind: str = "encoder"


@torch.jit.ignore
def scaled(x, by: float):
    return x * by


@torch.compiler.disable
def positions(length, width, device):
    angles = torch.arange(length, device=device)[:, None] / (1 + torch.arange(width, device=device))
    return angles.sin()


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.mlp = nn.Sequential(nn.Linear(config.width, 16), activation(config.act), nn.Linear(16, config.width))
        self.norm = nn.LayerNorm(config.width)

    def forward(self, x, mask=None):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        with torch.nn.attention.sdpa_kernel([torch.nn.attention.SDPBackend.MATH]):
            mixed = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = self.norm(x + mixed.transpose(1, 2).flatten(2))
        return scaled(self.mlp(x), 0.5) + x


class Encoder(nn.Module):
    config_class = EncoderConfig
    gradient_checkpointing = False

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.words = nn.Embedding(config.words, config.width)
        self.layers = nn.ModuleList([Layer(config) for _ in range(config.layers)])
        self.head = nn.Linear(config.width, config.classes)
        self.apply(self._init_weights)

    @torch.no_grad()
    def _init_weights(self, module):
        if isinstance(module, nn.Linear):
            module.weight.normal_(std=0.3)

    @classmethod
    def from_pretrained(cls, folder):
        with open(os.path.join(folder, "config.json")) as file:
            config = cls.config_class(**json.load(file))
        with torch.device("meta"):
            model = cls(config)
        with safe_open(os.path.join(folder, "model.safetensors"), framework="pt") as file:
            state = {name: file.get_slice(name)[...] for name in file.keys()}
        model.load_state_dict(state, assign=True)
        return model.eval()

    def save_pretrained(self, folder):
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(asdict(self.config), file)
        tensors = {name: value.contiguous() for name, value in self.state_dict().items()}
        save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})

    def forward(self, ids, labels=None, mask=None):
        x = self.words(ids) + positions(ids.shape[1], self.config.width, ids.device)
        for layer in self.layers:
            if self.gradient_checkpointing and self.training:
                x = torch.utils.checkpoint.checkpoint(layer.__call__, x, mask, use_reentrant=False)
            else:
                x = layer(x, mask)
        logits = self.head(x.mean(dim=1))
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(logits)
        if torch.onnx.is_in_onnx_export():
            return logits
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return Output(loss=loss, logits=logits)
