"""Whether metaop finds what PyTorch finds, and how large a difference counts.

The measure is PyTorch in float64. What PyTorch's own float32 errs by is allowed to metaop fifty
times, and a hundred-thousandth of the largest value of the same sort besides: Winograd's
method rounds to 2e-6, and a program has several layers and steps. Where all values of a sort are
zero, as behind a norm of one element, a few roundings of the numbers near 1 that came in remain.
A relu or a maximum may fall to the other side by rounding; so a difference counts when it shows
with other numbers too. PyTorch's attention is the one that it writes as matrix products: its fused
kernel gives wrong gradients for heads of one number.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.fuzz.training.worker import Broken, Worker

_OWN_ERROR = 50.0
_RELATIVE = 1e-5
_ROUNDINGS = 4 * float(np.finfo(np.float32).eps)
# Numbers for which programs run: a difference must show with all of them.
_SEEDS = (0, 1)
# PyTorch's float32 must be this near to float64, otherwise a program says nothing.
_WELL_CONDITIONED = 1e-4
_LARGEST = 1e3

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Truth:
    """What a program has to find, and by how much PyTorch's float32 errs."""

    values: Arrays
    errors: dict[str, float]


@dataclass(frozen=True)
class Failure:
    """A difference: its `kind` says what to look for again, `report` is for readers."""

    kind: str
    report: str


def truth(text: str, seed: int) -> Truth | None:
    """PyTorch's results, or None when it refuses the program or rounding decides them."""
    scope: dict[str, Any] = {}
    exec(text, scope)
    with warnings.catch_warnings(), sdpa_kernel(SDPBackend.MATH):
        warnings.simplefilter("ignore")
        try:
            exact: Arrays = scope["run"](torch, "float64", seed)
            rounded: Arrays = scope["run"](torch, "float32", seed)
        except Exception:
            return None
    errors = {}
    for name, value in exact.items():
        if not value.size:
            return None
        largest = np.abs(value).max()
        if not np.isfinite(value).all() or largest > _LARGEST:
            return None
        errors[name] = float(np.abs(rounded[name] - value).max())
        if errors[name] > _WELL_CONDITIONED * max(largest, _scale(name, exact)):
            return None
    return Truth(exact, errors)


def failure(text: str, worker: Worker) -> Failure | None:
    """How metaop differs from PyTorch on this program, if it does."""
    found = None
    for seed in _SEEDS:
        wanted = truth(text, seed)
        if wanted is None:
            return None
        found = _difference(worker.run(text, seed), wanted)
        if found is None:
            return None
    return found


def _difference(actual: Arrays | Broken, wanted: Truth) -> Failure | None:
    if isinstance(actual, Broken):
        return Failure(actual.kind, actual.report)
    if set(actual) != set(wanted.values):
        missing = sorted(set(actual) ^ set(wanted.values))
        return Failure("names", f"only one of the two has {', '.join(missing)}")
    wrong = []
    for name, value in wanted.values.items():
        if actual[name].shape != value.shape:
            return Failure("shape", f"{name}: {actual[name].shape} instead of {value.shape}")
        relative = _RELATIVE * _scale(name, wanted.values)
        allowed = _OWN_ERROR * wanted.errors[name] + max(relative, _ROUNDINGS)
        error = float(np.abs(actual[name] - value).max())
        if not error <= allowed:
            wrong.append(
                f"{name}: differs by {error:.3g} of at most {np.abs(value).max():.3g}, "
                f"float32 of PyTorch by {wanted.errors[name]:.3g}"
            )
    return Failure("values", "\n".join(wrong)) if wrong else None


def _scale(name: str, values: Arrays) -> float:
    """The largest value of the same sort (all gradients, say), which rounding is relative to."""
    sort = name.split()[0]
    return max(
        float(np.abs(value).max()) for other, value in values.items() if other.startswith(sort)
    )
