"""GPT-2: GPT with the published layout of its weights.

After A. Radford and others, "Language models are unsupervised multitask learners", 2019. Published
linear layers store the transposed weight (inputs, outputs). So checkpoints of GPT and GPT-2 are not
interchangeable; loading one into the other fails at `c_attn`, which is never square.

    python -m models.gpt2 --steps 200
    python -m models.gpt2 --pretrained gpt2 --prompt "The sun" --write 40 --top-k 40

`--pretrained` is a folder with `config.json`, `model.safetensors` and `tokenizer.json`.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import metaop
from metaop import nn

from .demonstration import parse_options
from .gpt import GPT, WRITING, learn_text, sampling
from .published import adopt, read_config, read_weights


class Conv1D(nn.Module):
    """A linear layer (..., inputs) to (..., outputs) with a weight (inputs, outputs)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(metaop.empty(inputs, outputs))
        self.bias = nn.Parameter(metaop.zeros(outputs))
        nn.init.normal_(self.weight, 0.0, 0.02)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return x @ self.weight + self.bias


class GPT2(GPT):
    """Tokens (batch, length), int64, to logits of the next ones (batch, length, vocabulary).

    Example:
        model = GPT2.from_pretrained("gpt2")
        model.generate(tokens, 20, temperature=0.8, top_k=40)
    """

    def __init__(
        self,
        vocabulary: int = 50257,
        context: int = 1024,
        width: int = 768,
        layers: int = 12,
        heads: int = 12,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(vocabulary, context, width, layers, heads, dropout)
        for block in self.transformer["h"]:
            for part in (block.attn, block.mlp):
                for name, layer in list(part.named_children()):
                    setattr(part, name, Conv1D(layer.in_features, layer.out_features))
        self._initialise(layers)

    @classmethod
    def from_pretrained(cls, folder: str | Path, dropout: float = 0.0) -> GPT2:
        """The network of a published folder, in evaluation mode.

        Raises CheckpointError for settings that this network does not have, RuntimeError for
        weights of other names or shapes.
        """
        config = read_config(
            folder,
            model_type="gpt2",
            activation_function=("gelu_new", "gelu_pytorch_tanh"),
            layer_norm_epsilon=1e-5,
            scale_attn_weights=True,
            scale_attn_by_inverse_layer_idx=False,
            add_cross_attention=False,
            tie_word_embeddings=True,
        )
        width = config["n_embd"]
        read_config(folder, n_inner=(None, 4 * width))
        model = cls(
            config["vocab_size"], config["n_positions"], width, config["n_layer"],
            config["n_head"], dropout,
        )  # fmt: skip
        tied = {"lm_head.weight": "transformer.wte.weight"}
        adopt(model, read_weights(folder), cls._renamed, tied)
        return model.eval()

    @staticmethod
    def _renamed(name: str) -> str | None:
        """Older files omit the prefix `transformer.`, and contain causal masks."""
        if re.fullmatch(r"(transformer\.)?h\.\d+\.attn\.(masked_)?bias", name):
            return None
        return name if name.startswith(("transformer.", "lm_head.")) else f"transformer.{name}"


def write_with(folder: str, options: argparse.Namespace) -> str:
    """The prompt generate_tokens by the network of a published folder."""
    from tokenizers import Tokenizer

    words: Any = Tokenizer.from_file(str(Path(folder, "tokenizer.json")))
    model = GPT2.from_pretrained(folder)
    tokens = metaop.tensor([words.encode(options.prompt).ids])
    written = model.generate(tokens, options.write, *sampling(options))
    return words.decode(written[0].tolist())


def main(arguments: Sequence[str] | None = None) -> Any:
    """Learns a text letter by letter and generates some; returns the losses.

    With `--pretrained` it only generates, and returns the text.
    """
    options = parse_options(
        __doc__, arguments, steps=200, batch_size=16, lr=3e-3, layers=2, width=64, heads=4,
        pretrained="", prompt="The", **WRITING,
    )  # fmt: skip
    if options.pretrained:
        text = write_with(options.pretrained, options)
        print(text)
        return text

    def build(letters: int, options: argparse.Namespace) -> GPT2:
        return GPT2(letters, options.context, options.width, options.layers, options.heads)

    return learn_text(build, options)


if __name__ == "__main__":
    main()
