"""Short programs do the same in metaop as in PyTorch: values, errors, warnings, what is printed.

The programs lie in `outcomes/*.txt`, separated by lines of dashes. The value of a last line that is
an expression counts.
"""

from __future__ import annotations

import ast
import io
import warnings
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import metaop

torch = pytest.importorskip("torch")

FOLDER = Path(__file__).parent / "outcomes"
PROGRAMS = [
    pytest.param(program, id=f"{path.stem}-{number}")
    for path in sorted(FOLDER.glob("*.txt"))
    for number, program in enumerate(path.read_text().strip("\n").split("\n---\n"))
]


class Outcome(NamedTuple):
    """What a program did; `error` is the class of the exception that ended it."""

    value: Any
    printed: str
    warned: set[type[Warning]]
    error: type[Exception] | None


def outcome(program: str, library: Any) -> Outcome:
    """Runs `program` with `library` under the names that programs for PyTorch use."""
    names = {"torch": library, "nn": library.nn, "F": library.nn.functional, "np": np}
    names["optim"] = library.optim
    library.manual_seed(0)
    value, error, printed = None, None, io.StringIO()
    with warnings.catch_warnings(record=True) as warned, redirect_stdout(printed):
        warnings.simplefilter("always")
        try:
            value = plain(evaluated(program, names), library)
        except Exception as found:
            error = type(found)
    text = without_name(printed.getvalue())
    return Outcome(value, text, {warning.category for warning in warned}, error)


def evaluated(program: str, names: dict[str, Any]) -> Any:
    """The value of the last expression, after all that stands before it."""
    tree = ast.parse(program)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "program", "exec"), names)
    if last is None:
        return None
    return eval(compile(ast.Expression(last.value), "program", "eval"), names)


def plain(value: Any, library: Any) -> Any:
    """The value without the library's own types: what both have to agree on."""
    if isinstance(value, library.Tensor):
        detached = value.detach()
        if value.dtype in (library.bfloat16, library.float16):
            detached = detached.to(library.float64)
        dtype = str(value.dtype).split(".")[-1]
        return (dtype, tuple(value.shape), value.requires_grad, np.array(detached.numpy()))
    if isinstance(value, Mapping):
        return {plain(key, library): plain(item, library) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return (isinstance(value, list), [plain(item, library) for item in value])
    if isinstance(value, str):
        return without_name(value)
    if value is None or isinstance(value, (bool, int, float, complex, bytes, np.ndarray)):
        return value
    return type(value).__name__.lower(), without_name(repr(value))


def without_name(text: str) -> str:
    return text.replace("torch.", "").replace("metaop.", "")


def parts(value: Any) -> Iterator[Any]:
    """All numbers, arrays and texts of a plain value, with what tells how they are nested."""
    if isinstance(value, dict):
        yield sorted(map(str, value))
        for key in sorted(value, key=str):
            yield from parts(value[key])
    elif isinstance(value, (list, tuple)):
        yield type(value), len(value)
        for item in value:
            yield from parts(item)
    else:
        yield value


def assert_same(found: Any, expected: Any) -> None:
    for own, other in zip(parts(found), parts(expected), strict=True):
        if isinstance(other, (float, complex, np.ndarray)):
            assert np.asarray(own).dtype == np.asarray(other).dtype
            np.testing.assert_allclose(own, other, rtol=2e-5, atol=1e-6)
        else:
            assert own == other


@pytest.mark.parametrize("program", PROGRAMS)
def test_same_outcome(program: str) -> None:
    expected = outcome(program, torch)
    found = outcome(program.replace("from torch", "from metaop"), metaop)
    assert (found.error is None) == (expected.error is None), (found.error, expected.error)
    if expected.error is not None:
        assert found.error is not None and issubclass(found.error, expected.error)
    assert_same(found.value, expected.value)
    assert found.printed == expected.printed
    assert found.warned == expected.warned
