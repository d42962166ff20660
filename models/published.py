"""Reading published networks: folders with `config.json` and safetensors files.

Hugging Face's transformers write such folders. The file of each network lists the settings that it
supports and maps the names of parameters; anything else raises an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import metaop
from metaop import nn
from metaop.errors import CheckpointError

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


def read_config(folder: str | Path, **known: Any) -> dict[str, Any]:
    """The settings of a published network.

    `known` has the only supported value of a setting, or a tuple of them, of which the first is the
    default. Raises CheckpointError for any other value.
    """
    path = Path(folder, "config.json")
    if not path.exists():
        raise CheckpointError(f"{folder} has no config.json", fix="name a published folder")
    config = json.loads(path.read_text(encoding="utf-8"))
    for name, values in known.items():
        allowed = values if isinstance(values, tuple) else (values,)
        if config.setdefault(name, allowed[0]) not in allowed:
            raise CheckpointError(
                f"{path} has {name} = {config[name]!r}, but this network knows only "
                f"{' or '.join(map(repr, allowed))}"
            )
    return config


def read_weights(folder: str | Path) -> dict[str, metaop.Tensor]:
    """The tensors of a folder by name, from one file or from the shards of its index.

    Raises CheckpointError if a file is missing.
    """
    files = [WEIGHTS]
    if Path(folder, INDEX).exists():
        index = json.loads(Path(folder, INDEX).read_text(encoding="utf-8"))
        files = sorted(set(index["weight_map"].values()))
    weights: dict[str, metaop.Tensor] = {}
    for file in files:
        if not Path(folder, file).exists():
            raise CheckpointError(f"{folder} has no {file}")
        weights.update(metaop.load(Path(folder, file)))
    return weights


def adopt(
    model: nn.Module,
    weights: Mapping[str, metaop.Tensor],
    rename: Callable[[str], str | None] = lambda name: name,
    tied: Mapping[str, str] | None = None,
) -> None:
    """Loads published weights, all of them, into a model, in the model's dtypes.

    `rename` maps published names to the model's, or to None for weights to ignore. `tied` maps
    parameters to those they share, so files may omit them. Raises RuntimeError, as
    `load_state_dict` does, if names or shapes differ.
    """
    found: dict[str, metaop.Tensor] = {}
    for name, tensor in weights.items():
        renamed = rename(name)
        if renamed is not None:
            found[renamed] = tensor
    for name, original in (tied or {}).items():
        if original not in found:
            raise CheckpointError(f"the weights have no {original!r}")
        if name in found and not metaop.equal(found[name], found[original]):
            raise CheckpointError(f"{name!r} and {original!r} are one parameter, but differ here")
        found[name] = found[original]
    model.load_state_dict(found)
