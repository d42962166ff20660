"""What transformers' networks are called inside and what they compute: recorded.

    python -m tests.models.published

writes `published.json` with Hugging Face's transformers 5.23 beside PyTorch 2.13. The networks are
small; their weights follow from their names.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import metaop
from tests.vision.reference_models import content

FILE = Path(__file__).with_suffix(".json")
VOCABULARY, LENGTH = 29, 7


class Recorded(NamedTuple):
    """A network of transformers: its class, its settings, and what it computes from `inputs`."""

    kind: str
    config: dict[str, Any]
    outputs: Callable[[Any, Callable[[np.ndarray], Any]], Any]


def tokens(seed: int = 0, length: int = LENGTH) -> np.ndarray:
    """Two sequences of tokens."""
    return np.random.default_rng(seed).integers(2, VOCABULARY, (2, length))


def mask() -> np.ndarray:
    """The second sequence ends early."""
    kept = np.ones((2, LENGTH), np.int64)
    kept[1, 4:] = 0
    return kept


NETWORKS = {
    "gpt2": Recorded(
        "GPT2LMHeadModel",
        {"vocab_size": VOCABULARY, "n_positions": 12, "n_embd": 24, "n_layer": 2, "n_head": 3},
        lambda model, tensor: model(tensor(tokens())).logits,
    ),
    "llama": Recorded(
        "LlamaForCausalLM",
        {
            **{"vocab_size": VOCABULARY, "max_position_embeddings": 12, "hidden_size": 24},
            **{"intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 6},
            **{"num_key_value_heads": 2, "rope_theta": 5e5},
        },
        lambda model, tensor: model(tensor(tokens())).logits,
    ),
}

BERT = {
    **{"vocab_size": VOCABULARY, "max_position_embeddings": 12, "hidden_size": 24},
    **{"num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40},
}


def sentence_vectors(model: Any, tensor: Callable[[np.ndarray], Any]) -> Any:
    """Means over tokens, of length 1, as in the card of all-MiniLM-L6-v2."""
    kept = tensor(mask())
    found = model(tensor(tokens()), attention_mask=kept).last_hidden_state
    mean = (found * kept[..., None]).sum(1) / kept.sum(1, keepdim=True)
    return mean / (mean**2).sum(1, keepdim=True).sqrt()


NETWORKS |= {
    "bert": Recorded(
        "BertForMaskedLM",
        BERT,
        lambda model, tensor: model(tensor(tokens()), attention_mask=tensor(mask())).logits,
    ),
    "minilm": Recorded("BertModel", BERT, sentence_vectors),
}

T5 = {
    **{"vocab_size": VOCABULARY, "d_model": 24, "d_kv": 6, "d_ff": 40, "num_heads": 3},
    **{"num_layers": 2, "num_decoder_layers": 1, "relative_attention_num_buckets": 8},
    "relative_attention_max_distance": 16,
}


def written(model: Any, tensor: Callable[[np.ndarray], Any]) -> Any:
    """Logits of an encoder and decoder; 19 places reach the buckets of several distances."""
    read, shown = tokens(1, 19), np.ones((2, 19), np.int64)
    shown[1, 11:] = 0
    return model(
        input_ids=tensor(read), attention_mask=tensor(shown), decoder_input_ids=tensor(tokens())
    ).logits


NETWORKS |= {
    "t5": Recorded("T5ForConditionalGeneration", T5, written),
    "t5_gated": Recorded(
        "T5ForConditionalGeneration",
        {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        written,
    ),
}


def sound() -> np.ndarray:
    """Loudness of 8 bands for a whole context of 10."""
    return np.random.default_rng(2).standard_normal((2, 8, 20)).astype(np.float32)


NETWORKS["whisper"] = Recorded(
    "WhisperModel",
    {
        **{"vocab_size": VOCABULARY, "num_mel_bins": 8, "d_model": 24, "encoder_layers": 2},
        **{"encoder_attention_heads": 3, "encoder_ffn_dim": 40, "max_source_positions": 10},
        **{"decoder_layers": 1, "decoder_attention_heads": 3, "decoder_ffn_dim": 8},
        **{"max_target_positions": 4, "pad_token_id": 0, "decoder_start_token_id": 1},
        **{"bos_token_id": 1, "eos_token_id": 1},
    },
    lambda model, tensor: model.encoder(tensor(sound())).last_hidden_state,
)


def write_folder(name: str, folder: Path) -> np.ndarray:
    """Writes the published form of a network; returns what transformers compute with it."""
    recorded = json.loads(FILE.read_text())[name]
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(recorded["config"]))
    weights = {key: metaop.tensor(content(key, shape)) for key, shape in recorded["shapes"].items()}
    metaop.save(weights, folder / "model.safetensors")
    return np.array(recorded["outputs"])


def rewrite(folder: Path, **changed: Any) -> None:
    """Changes settings of a folder."""
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changed}))


def record(kind: str, config: dict[str, Any], outputs: Callable[..., Any]) -> dict[str, Any]:
    import torch
    import transformers

    model = getattr(transformers, kind)
    model = model(model.config_class(**config)).eval()
    # Tied parameters are written once, under the first of their names.
    state, shapes = model.state_dict(keep_vars=True), dict[str, Any]()
    for name, value in state.items():
        if not any(value is state[other] for other in shapes):
            shapes[name] = list(value.shape)
    with torch.no_grad():
        for name in shapes:
            state[name].copy_(torch.tensor(content(name, tuple(shapes[name]))))
        found = outputs(model, torch.tensor)
    return {
        "config": json.loads(model.config.to_json_string(use_diff=False)),
        "shapes": shapes,
        "outputs": np.round(found.numpy().astype(np.float64), 7).tolist(),
    }


def main() -> None:
    FILE.write_text(json.dumps({name: record(*row) for name, row in NETWORKS.items()}) + "\n")


if __name__ == "__main__":
    main()
