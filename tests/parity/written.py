"""Writes inputs and results of PyTorch's operators in place before backward, in both libraries."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

import metaop
from tests.parity.op_db import (
    RANDOM,
    OutOfScope,
    counterpart,
    leaves,
    samples_of,
    to_metaop,
)

# What is written: the input or the result of this number.
Place = tuple[str, int]
# Metaop raises an error where PyTorch does not; the reverse, with the gradient of what was there
# before; another gradient.
REFUSED, ALLOWED, WRONG = "refused", "allowed", "wrong"


class Outcome(NamedTuple):
    """What happened: an error, or the gradients of the leaves."""

    error: str | None
    gradients: list[np.ndarray | None]


def differences(entry: Any) -> set[str]:
    """What metaop does otherwise than PyTorch when something is written before backward."""
    function = counterpart(entry)
    found: set[str] = set()
    if function is None or not entry.supports_autograd or entry.name in RANDOM:
        return found
    if torch.float64 not in entry.supported_dtypes("cpu"):
        return found
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in samples_of(entry, torch.float64, True)[:2]:
            try:
                found.update(_of_sample(entry, function, sample))
            except OutOfScope:
                continue
    return found


def _of_sample(entry: Any, function: Callable[..., Any], sample: Any) -> Iterator[str]:
    theirs = (sample.input, sample.args, sample.kwargs)
    given = [one for one in leaves(theirs) if _is_tracked(one)]
    if not given or any(one.numel() == 0 for one in given):
        return
    mine = to_metaop(theirs)
    try:
        results = entry.op(theirs[0], *theirs[1], **theirs[2])
    except Exception:
        return
    count = len([one for one in leaves(results) if isinstance(one, torch.Tensor)])
    places = [("input", k) for k in range(len(given))] + [("result", k) for k in range(count)]
    unwritten = outcome(torch, entry.op, theirs, None)
    for place in places[:8]:
        expected = outcome(torch, entry.op, theirs, place)
        actual = outcome(metaop, function, mine, place)
        if actual.error is not None and expected.error is None:
            yield REFUSED
        elif actual.error is None:
            if expected.error is not None:
                yield ALLOWED
            # What is added to an input or a result later changes no gradient. PyTorch's own may
            # read what was added: behind `kron`, it does.
            if _differ(actual, unwritten):
                yield WRONG


def _is_tracked(value: Any) -> bool:
    return hasattr(value, "requires_grad") and value.requires_grad


def outcome(library: Any, function: Callable[..., Any], given: Any, place: Place | None) -> Outcome:
    """Runs the function on copies of its inputs, writes one of them or a result, and backward."""
    heads: list[Any] = []

    def copied(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(map(copied, value))
        if isinstance(value, dict):
            return {name: copied(part) for name, part in value.items()}
        if not _is_tracked(value):
            return value
        heads.append(value.detach().clone().requires_grad_())
        return heads[-1] * 1

    args = copied(given)
    try:
        tracked = [one for one in leaves(args) if _is_tracked(one)]
        results = [
            one for one in leaves(function(args[0], *args[1], **args[2])) if hasattr(one, "dtype")
        ]
        if place is not None:
            target = (tracked if place[0] == "input" else results)[place[1]]
            target.add_(1)
        used = [one for one in results if one.requires_grad]
        total = sum((one * weight).sum() for weight, one in enumerate(used, 2))
        found = library.autograd.grad(total, heads, allow_unused=True)
    except Exception as error:
        return Outcome(f"{type(error).__name__}: {error}", [])
    return Outcome(None, [None if one is None else _array(one) for one in found])


def _array(value: Any) -> np.ndarray:
    return np.array(value.detach().numpy(force=True))


def _differ(actual: Outcome, expected: Outcome) -> bool:
    pairs = zip(actual.gradients, expected.gradients)
    return not all(
        np.allclose(0 if a is None else a, 0 if b is None else b, 1e-5, 1e-7, equal_nan=True)
        for a, b in pairs
    )
