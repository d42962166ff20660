"""Every public operator names an argument that is not a tensor, with the user's line and a fix."""

from __future__ import annotations

import itertools
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import metaop
from metaop.errors import MetaopError

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")

from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

from tests.parity.names import resolve  # noqa: E402
from tests.parity.op_db import (  # noqa: E402
    OutOfScope,
    counterpart,
    is_public,
    name_of,
    samples_of,
    to_metaop,
)

# Where a tensor belongs, PyTorch refuses each of these.
IN_PLACE_OF_A_TENSOR = {
    "a list": lambda tensor: tensor.tolist(),
    "an array": lambda tensor: tensor.detach().numpy(),
    "a text": lambda tensor: "a text",
}


def wrong_calls(
    arguments: tuple[Any, ...], tensor: type, first: int
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The arguments from `first` on with one tensor after another replaced by what is none."""
    for (what, other), place in itertools.product(IN_PLACE_OF_A_TENSOR.items(), range(first, 3)):
        if place < len(arguments) and isinstance(arguments[place], tensor):
            changed = (*arguments[:place], other(arguments[place]), *arguments[place + 1 :])
            yield f"{what} as argument {place + 1}", changed


def raised(function: Any, arguments: Any, kwargs: Any) -> Exception | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            function(*arguments, **kwargs)
        except Exception as error:
            return error
    return None


def is_within_metaop(error: Exception) -> bool:
    """Whether metaop raised an error, not the database's own function around it."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return frame.f_globals["__name__"].startswith("metaop")


def fault(entry: Any, sample: Any, what: str, theirs: Any, mine: Any) -> str:
    """What is wrong with the error of a call; nothing if PyTorch takes the argument."""
    if not isinstance(raised(entry.op, theirs, sample.kwargs), TypeError):
        return ""
    error = raised(counterpart(entry), mine, to_metaop(sample.kwargs))
    if error is None:  # an array beside a tensor is converted
        return ""
    if not isinstance(error, TypeError):
        return f"{what}: {type(error).__name__} {error}"
    if not isinstance(error, MetaopError):
        return f"{what}: Python's error {error}" if is_within_metaop(error) else ""
    return "" if "  at " in str(error) and "  fix: " in str(error) else f"{what}: only {error}"


@pytest.mark.parametrize("entry", [entry for entry in op_db if is_public(entry)], ids=name_of)
def test_an_argument_that_is_no_tensor(entry: Any) -> None:
    if counterpart(entry) is None:
        return
    dtype = torch.float32 if torch.float32 in entry.supported_dtypes("cpu") else torch.int64
    if dtype not in entry.supported_dtypes("cpu"):
        return
    wrong = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = samples_of(entry, dtype, False)[:1]
    for sample in samples:
        theirs = (sample.input, *sample.args)
        try:
            mine = to_metaop(theirs)
        except OutOfScope:
            return
        # What only tensors have is not called without one.
        is_method = not callable(resolve(metaop, entry.name.split(".")))
        first = int(is_method or entry.variant_test_name == "in_place")
        calls = zip(
            wrong_calls(theirs, torch.Tensor, first), wrong_calls(mine, metaop.Tensor, first)
        )
        wrong += [fault(entry, sample, what, one, other) for (what, one), (_, other) in calls]
    assert not [*filter(None, wrong)]


def test_a_module_of_the_user_raises_what_it_raises() -> None:
    class Choosing(metaop.nn.Module):
        def forward(self, x: metaop.Tensor) -> metaop.Tensor:
            raise KeyError("no such head")

    with pytest.raises(KeyError, match="no such head"):
        Choosing()([1.0])
