"""The programs of `programs/`: reading them, running them, giving two models the same weights."""

from __future__ import annotations

import types
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent / "programs"
PROGRAMS = sorted(FOLDER.glob("*.py"))
STEPS = 3


def load_program(text: str, name: str) -> dict[str, Any]:
    """The names that a program defines."""
    module = types.ModuleType(name)
    module.__dict__["__file__"] = str(FOLDER / f"{name}.py")
    exec(compile(text, name, "exec", dont_inherit=True), module.__dict__)
    return module.__dict__


def modules_of(model: Any) -> Iterator[Any]:
    """The modules that a program built, one or a mapping of several."""
    plain = isinstance(model, Mapping) and not hasattr(model, "state_dict")
    yield from model.values() if plain else (model,)


def determined_weights(models: Any, from_numpy: Any) -> None:
    """Gives models weights that their names determine, the same in every library."""
    for number, model in enumerate(modules_of(models)):
        weights = {}
        for name, value in model.state_dict().items():
            shape = tuple(value.shape)
            random = np.random.default_rng(zlib.crc32(f"{number} {name}".encode()))
            weights[name] = from_numpy(_content(name, shape, random))
        model.load_state_dict(weights)


def _content(name: str, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    if name.endswith("num_batches_tracked"):
        return np.zeros(shape, np.int64)
    if name.endswith("running_var"):
        return random.uniform(0.5, 1.5, shape).astype(np.float32)
    if len(shape) > 1:
        return (random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
    return (random.uniform(-0.1, 0.1, shape) + name.endswith("weight")).astype(np.float32)


def copy_weights(source: Any, target: Any, from_numpy: Any) -> None:
    """Gives the models of one library the weights of another's."""
    for theirs, ours in zip(modules_of(source), modules_of(target), strict=True):
        weights = {
            name: from_numpy(np.array(value.detach().cpu().numpy()))
            for name, value in theirs.state_dict().items()
        }
        ours.load_state_dict(weights)
