"""Networks of the package transformers, converted, beside the originals under PyTorch.

`python -m benchmarks.transformers folder` converts the modules of the package that the networks
need into `folder/transformers_metaop`, unless it is there already; `metaop convert transformers -o
folder/transformers_metaop` converts all of them. Each network is small and random, has the same
weights on both sides, and is compared by its outputs, its loss, the gradients of all weights and a
few steps of AdamW; `from_pretrained` reads a folder that the original wrote.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import metaop

_TEXT = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_BERT = {**_TEXT, "intermediate_size": 37, "max_position_embeddings": 64}
_LLAMA = {**_BERT, "num_key_value_heads": 2}
_PICTURE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_VIT = {**_PICTURE, "intermediate_size": 37, "image_size": 16, "patch_size": 4}
_LAYERS = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2}
_HEADS = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
_WHISPER = {"encoder_ffn_dim": 37, "decoder_ffn_dim": 37, "num_mel_bins": 8, "vocab_size": 99}
_POSITIONS = {"max_source_positions": 16, "max_target_positions": 20}
_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
_CLIP = {
    "text_config": {**_BERT, "bos_token_id": 1, "eos_token_id": 2, "projection_dim": 24},
    "vision_config": {**_VIT, "projection_dim": 24},
    "projection_dim": 24,
}


@dataclass(frozen=True)
class Case:
    """A network: the classes of its configuration and itself, and what it takes.

    A list is the shape of normal numbers; a pair of a list and a number, of integers below it.
    """

    configuration: str
    model: str
    settings: dict[str, Any]
    inputs: dict[str, Any]


_IDS = ([2, 7], 99)
_MASKED = {"input_ids": _IDS, "attention_mask": "mask", "labels": _IDS}
CASES = [
    Case("BertConfig", "BertForMaskedLM", _BERT, _MASKED),
    Case(
        "DistilBertConfig",
        "DistilBertForMaskedLM",
        {"vocab_size": 99, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 37},
        _MASKED,
    ),
    Case(
        "GPT2Config",
        "GPT2LMHeadModel",
        {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
        _MASKED,
    ),
    Case("LlamaConfig", "LlamaForCausalLM", _LLAMA, _MASKED),
    Case("MistralConfig", "MistralForCausalLM", {**_LLAMA, "sliding_window": 4}, _MASKED),
    Case(
        "T5Config",
        "T5ForConditionalGeneration",
        {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 37, "num_layers": 2, "num_heads": 4}
        | _TOKENS,
        {**_MASKED, "labels": ([2, 5], 99)},
    ),
    Case(
        "ViTConfig",
        "ViTForImageClassification",
        {**_VIT, "num_labels": 5},
        {"pixel_values": [2, 3, 16, 16], "labels": ([2], 5)},
    ),
    Case(
        "CLIPConfig",
        "CLIPModel",
        _CLIP,
        {
            "input_ids": _IDS,
            "pixel_values": [2, 3, 16, 16],
            "attention_mask": "mask",
            "return_loss": True,
        },
    ),
    Case(
        "WhisperConfig",
        "WhisperForConditionalGeneration",
        {**_LAYERS, **_HEADS, **_WHISPER, **_POSITIONS, **_TOKENS},
        {"input_features": [2, 8, 32], "labels": ([2, 5], 99)},
    ),
]


def inputs_of(case: Case, library: Any) -> dict[str, Any]:
    """What a network takes, equal in both libraries."""
    generator = np.random.default_rng(7)
    made: dict[str, Any] = {}
    for name, spec in case.inputs.items():
        if isinstance(spec, tuple):
            made[name] = generator.integers(3, spec[1], spec[0])
            if spec[1] == 5:
                made[name] %= 5
        elif isinstance(spec, list):
            made[name] = generator.standard_normal(spec).astype(np.float32)
        elif spec == "mask":
            made[name] = np.ones((2, 7), np.int64)
            made[name][1, 5:] = 0
        else:
            made[name] = spec
    return {
        name: library.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value
        for name, value in made.items()
    }


def tensors_of(library: Any, value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """All tensors of a nest, by name."""
    if isinstance(value, library.Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from tensors_of(library, item, f"{name}.{key}")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from tensors_of(library, item, f"{name}.{index}")


def copied(model: Any) -> dict[str, Any]:
    """The weights of a network of PyTorch as metaop's tensors."""
    return {
        name: metaop.from_numpy(value.detach().numpy().copy())
        for name, value in model.state_dict().items()
    }


def gap(expected: Any, found: Any) -> float:
    """The largest difference, by the size of the values where they are large."""
    if not isinstance(found, np.ndarray):
        found = found.detach().numpy()
    expected = expected.detach().numpy()
    if expected.shape != found.shape:
        raise ValueError(f"shape {found.shape} instead of {expected.shape}")
    if not expected.size:
        return 0.0
    scale = max(1.0, float(np.abs(expected).max()))
    return float(np.abs(expected.astype(float) - found.astype(float)).max()) / scale


def compare_outputs(theirs: Any, ours: Any, case: Case) -> tuple[float, Any, Any]:
    """How far all outputs are apart, and the two losses."""
    import torch

    expected = theirs(**inputs_of(case, torch))
    found = ours(**inputs_of(case, metaop))
    left, right = dict(tensors_of(torch, expected)), dict(tensors_of(metaop, found))
    if left.keys() != right.keys():
        raise ValueError(f"outputs {sorted(left.keys() ^ right.keys())} are on one side only")
    worst = max(gap(value, right[name]) for name, value in left.items())
    return worst, expected.loss, found.loss


def compare_gradients(theirs: Any, ours: Any) -> float:
    """How far all gradients are apart, by the largest of each."""
    worst = 0.0
    there = dict(ours.named_parameters())
    for name, parameter in theirs.named_parameters():
        if (parameter.grad is None) != (there[name].grad is None):
            raise ValueError(f"{name} has a gradient on one side only")
        if parameter.grad is not None:
            scale = max(float(parameter.grad.abs().max()), 1e-3)
            found = there[name].grad.numpy()
            worst = max(worst, float(np.abs(parameter.grad.numpy() - found).max()) / scale)
    return worst


def steps(library: Any, model: Any, case: Case, count: int = 4) -> list[float]:
    """The losses of a few steps of AdamW."""
    optimizer = library.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(count):
        optimizer.zero_grad()
        loss = model(**inputs_of(case, library)).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def convert_needed(original: Any, target: Path) -> None:
    """Converts the modules that the networks load, and those without PyTorch, into a package."""
    from metaop.convert import convert_path

    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            configuration = getattr(original, case.configuration)(**case.settings)
            model = getattr(original, case.model)(configuration)
            model(**inputs_of(case, importlib.import_module("torch"))).loss.backward()
            model.save_pretrained(folder)
            getattr(original, case.model).from_pretrained(folder)
    home = Path(original.__file__).parent
    loaded = {str(getattr(module, "__file__", "")) for module in list(sys.modules.values())}
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / home.name
        for file in home.rglob("*.py"):
            text = file.read_text(errors="replace")
            if str(file) in loaded or file.name == "__init__.py" or "torch" not in text:
                place = copy / file.relative_to(home)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(file.read_bytes())
        convert_path(copy, target)


def run(case: Case, original: Any, converted: Any) -> dict[str, str]:
    """The measurements of one network: outputs, gradients, training, loading."""
    import torch

    torch.manual_seed(0)
    configuration = getattr(original, case.configuration)(**case.settings)
    theirs = getattr(original, case.model)(configuration).eval()
    row = {"network": case.model}

    def ours() -> Any:
        other = getattr(converted, case.configuration)(**case.settings)
        model = getattr(converted, case.model)(other).eval()
        model.load_state_dict(copied(theirs))
        return model

    def outputs() -> str:
        return f"{compare_outputs(theirs, ours(), case)[0]:.1e}"

    def gradients() -> str:
        model = ours()
        _, expected, found = compare_outputs(theirs, model, case)
        expected.backward()
        found.backward()
        return f"{compare_gradients(theirs, model):.1e}"

    def training() -> str:
        model = ours()
        left, right = steps(torch, theirs, case), steps(metaop, model, case)
        return f"{max(abs(a - b) / abs(a) for a, b in zip(left, right)):.1e}"

    def reading() -> str:
        with tempfile.TemporaryDirectory() as folder:
            theirs.save_pretrained(folder)
            model = getattr(converted, case.model).from_pretrained(folder).eval()
            return f"{compare_outputs(theirs, model, case)[0]:.1e}"

    for name, measure in (
        ("outputs", outputs),
        ("from_pretrained", reading),
        ("gradients", gradients),
        ("AdamW", training),
    ):
        row[name] = attempt(measure)
    return row


def attempt(measure: Callable[[], str]) -> str:
    """The result of a measurement, or the first line of its error."""
    try:
        return measure()
    except Exception as error:
        if VERBOSE:
            traceback.print_exc()
        return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


VERBOSE = False


def main() -> int:
    """Prints the table; the exit status is the number of networks that differ."""
    global VERBOSE
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the converted package lies")
    parser.add_argument("--name", default="transformers_metaop", help="what it is called there")
    parser.add_argument("--only", nargs="*", default=[], help="parts of the names to run")
    parser.add_argument("--verbose", action="store_true", help="show where errors come from")
    arguments = parser.parse_args()
    VERBOSE = arguments.verbose
    sys.path.insert(0, str(arguments.folder))
    original = importlib.import_module("transformers")
    if not (arguments.folder / arguments.name).is_dir():
        convert_needed(original, arguments.folder / arguments.name)
        importlib.invalidate_caches()
    converted = importlib.import_module(arguments.name)
    bad = 0
    print("| network | outputs | from_pretrained | gradients | AdamW |")
    print("| --- | --- | --- | --- | --- |")
    for case in CASES:
        if arguments.only and not any(part in case.model for part in arguments.only):
            continue
        row = run(case, original, converted)
        bad += not all(is_small(value) for key, value in row.items() if key != "network")
        print("| " + " | ".join(row.values()) + " |", flush=True)
    return bad


def is_small(text: str) -> bool:
    """Whether a measurement is a number within 1e-3."""
    try:
        return float(text) < 1e-3
    except ValueError:
        return False


if __name__ == "__main__":
    sys.exit(main())
