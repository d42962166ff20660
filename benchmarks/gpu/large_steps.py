"""Training steps in bfloat16 that are large enough for a GPU."""

from __future__ import annotations

from typing import Any

from benchmarks.frameworks import Framework
from benchmarks.whole_steps import mixed, network, of

GROUP = "large steps"
_TOKENS = 50257


def _gpt2(f: Framework) -> Any:
    """GPT-2 of 124 million parameters; logits of all sequences behind each other."""
    gpt = network(f, "models.gpt.GPT", _TOKENS, context=1024, width=768, layers=12, heads=12)
    return f.nn.Sequential(gpt, f.nn.Flatten(0, 1))


mixed(
    "ResNet-50 at 224, batch 64, SGD", of("models.resnet.resnet50"), "SGD",
    lambda f: f.images(f.normal(64, 3, 224, 224)), lambda f: f.integers(1000, 64), group=GROUP,
)  # fmt: skip
mixed(
    "GPT-2 124M, 4 x 512 tokens, AdamW", _gpt2, "AdamW",
    lambda f: f.integers(_TOKENS, 4, 512), lambda f: f.integers(_TOKENS, 2048, seed=1), group=GROUP,
)  # fmt: skip
mixed(
    "ViT-B/16, batch 32, AdamW", of("models.vit.vit_b_16"), "AdamW",
    lambda f: f.images(f.normal(32, 3, 224, 224)), lambda f: f.integers(1000, 32), group=GROUP,
)  # fmt: skip
