"""The programs of `programs/`: reading them, running them, giving two models the same weights."""

from __future__ import annotations

import types
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


def copy_weights(source: Any, target: Any, from_numpy: Any) -> None:
    """Gives the models of one library the weights of another's."""
    for theirs, ours in zip(modules_of(source), modules_of(target), strict=True):
        weights = {
            name: from_numpy(np.array(value.detach().cpu().numpy()))
            for name, value in theirs.state_dict().items()
        }
        ours.load_state_dict(weights)
