"""`--verify`: runs the original with PyTorch and the conversion with metaop on equal inputs.

Modules whose constructors need no arguments are found automatically. The program lists others, and
functions, in a table:

    VERIFY = {"Net": {"arguments": [10], "inputs": [[2, 3, 32, 32]]}}

`inputs` are shapes (of normal numbers) or, as {"shape": [2, 5], "below": 10}, of integers.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import os
import sys
import tempfile
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from metaop.convert.converter import convert_source
from metaop.convert.files import decode

_RELATIVE, _ABSOLUTE = 1e-3, 1e-4
_SIZES = (32, 28, 64, 224, 8, 16)


@dataclass(frozen=True)
class Outcome:
    """The result for one module or function."""

    name: str
    status: str  # "agrees", "differs" or "not run"
    detail: str = ""

    @property
    def agrees(self) -> bool:
        """Whether no difference was found."""
        return self.status != "differs"

    def __str__(self) -> str:
        return f"{self.name}: {self.status}" + (f": {self.detail}" if self.detail else "")


def verify_program(path: Path, content: bytes) -> list[Outcome]:
    """Runs the definitions of a program in both libraries and compares outputs and gradients.

    Only imports, definitions and assignments run, in an empty folder; loops and calls do not.
    """
    text, _ = decode(content)
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return [Outcome(path.name, "not run", "PyTorch is not installed")]
    ours_library = importlib.import_module("metaop")
    with _quiet(path):
        theirs = _definitions(text, path)
        ours = _definitions(convert_source(text).text, path)
    table = theirs.get("VERIFY", {})
    names = [name for name, value in theirs.items() if _is_candidate(torch, theirs, name, value)]
    outcomes: list[Outcome] = []
    for name in dict.fromkeys([*table, *names]):
        with _quiet(path):
            case = _Case(name, table.get(name, {}), torch, ours_library, theirs, ours)
            outcomes.append(case.run())
    return outcomes


def _is_candidate(torch: Any, program: dict[str, Any], name: str, value: Any) -> bool:
    own = getattr(value, "__module__", None) == program["__name__"]
    return own and isinstance(value, type) and issubclass(value, torch.nn.Module)


@contextlib.contextmanager
def _quiet(path: Path) -> Iterator[None]:
    """A context without output or arguments, in an empty folder, that can import from `path`."""
    arguments, modules = sys.argv, list(sys.path)
    before, home = os.getcwd(), str(path.resolve().parent)
    with tempfile.TemporaryDirectory() as folder:
        try:
            os.chdir(folder)
            sys.argv = [str(path)]
            sys.path.insert(0, home)
            with contextlib.redirect_stdout(io.StringIO()):
                yield
        finally:
            os.chdir(before)
            sys.argv, sys.path[:] = arguments, modules


def _definitions(text: str, path: Path) -> dict[str, Any]:
    """The names that the definitions of a program bind; definitions that fail are omitted."""
    module = types.ModuleType(path.stem)
    module.__dict__["__file__"] = str(path)
    for statement in ast.parse(text).body:
        if not _is_definition(statement):
            continue
        code = compile(ast.Module([statement], []), str(path), "exec", dont_inherit=True)
        with contextlib.suppress(Exception, SystemExit):
            exec(code, module.__dict__)
    return module.__dict__


def _is_definition(statement: ast.stmt) -> bool:
    kinds = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef, ast.Assign, ast.AnnAssign)
    adds_argument = isinstance(statement, ast.Expr) and "add_argument" in ast.unparse(statement)
    return isinstance(statement, (*kinds, ast.Try)) or adds_argument


class _Case:
    """One module or function in both libraries."""

    def __init__(
        self,
        name: str,
        entry: dict[str, Any],
        torch: Any,
        metaop: Any,
        theirs: dict[str, Any],
        ours: dict[str, Any],
    ) -> None:
        self.name, self.entry = name, entry
        self.torch, self.metaop = torch, metaop
        self.theirs, self.ours = theirs, ours

    def run(self) -> Outcome:
        """Compares both; if the original does not run, the conversion is not at fault."""
        try:
            subject, inputs, expected = self._original()
        except Exception as error:
            return Outcome(self.name, "not run", f"the original: {_first_line(error)}")
        try:
            found = self._converted(subject, inputs)
        except Exception as error:
            return Outcome(self.name, "differs", f"the conversion: {_first_line(error)}")
        return self._compare(expected, found)

    def _original(self) -> tuple[Any, list[np.ndarray], dict[str, np.ndarray]]:
        self.torch.manual_seed(0)
        made = self.theirs[self.name]
        subject = made
        if isinstance(made, type):
            subject = made(
                *self.entry.get("arguments", ()), **self.entry.get("keywords", {})
            ).eval()
        problem: Exception = ValueError("name its inputs in VERIFY")
        for inputs in self._inputs(subject):
            try:
                return subject, inputs, _results(self.torch, subject, inputs, self.torch.from_numpy)
            except Exception as error:
                problem = error
        raise problem

    def _made(self, kind: type) -> Any:
        return kind(*self.entry.get("arguments", ()), **self.entry.get("keywords", {})).eval()

    def _converted(self, subject: Any, inputs: list[np.ndarray]) -> dict[str, np.ndarray]:
        made = self.ours[self.name]
        if not isinstance(made, type):
            return _results(self.metaop, made, inputs, self.metaop.from_numpy)
        model = self._made(made)
        model.load_state_dict(
            {
                name: self.metaop.from_numpy(value.detach().numpy().copy())
                for name, value in subject.state_dict().items()
            }
        )
        return _results(self.metaop, model, inputs, self.metaop.from_numpy)

    def _inputs(self, subject: Any) -> Iterator[list[np.ndarray]]:
        if "inputs" in self.entry:
            yield [_array(spec, seed) for seed, spec in enumerate(self.entry["inputs"])]
        elif isinstance(subject, self.torch.nn.Module):
            for shape in _guesses(self.torch, subject):
                yield [_array(shape, 0)]

    def _compare(self, expected: dict[str, Any], found: dict[str, Any]) -> Outcome:
        if expected.keys() != found.keys():
            odd = sorted(expected.keys() ^ found.keys())
            return Outcome(self.name, "differs", f"only one side has {', '.join(odd[:5])}")
        worst = 0.0
        for key, value in expected.items():
            if value.shape != found[key].shape:
                detail = f"{key} has shape {found[key].shape}, not {value.shape}"
                return Outcome(self.name, "differs", detail)
            gap = np.abs(found[key].astype(float) - value.astype(float)).max(initial=0)
            worst = max(worst, float(gap))
            if not np.allclose(found[key], value, _RELATIVE, _ABSOLUTE, equal_nan=True):
                return Outcome(self.name, "differs", f"{key} is off by {gap:.3g}")
        return Outcome(self.name, "agrees", f"{len(expected)} arrays, off by at most {worst:.2g}")


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _array(spec: Any, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    if isinstance(spec, dict):
        return np.asarray(generator.integers(0, spec["below"], spec["shape"]))
    return generator.standard_normal(spec).astype(np.float32)


def _guesses(torch: Any, model: Any) -> Iterator[Any]:
    """Input shapes that a network may accept, guessed from its first layer."""
    for layer in model.modules():
        if isinstance(layer, torch.nn.Embedding):
            yield {"shape": [2, 6], "below": layer.num_embeddings}
        elif isinstance(layer, torch.nn.Linear):
            yield [2, layer.in_features]
            yield [2, 6, layer.in_features]
        elif isinstance(layer, torch.nn.modules.conv._ConvNd):
            dimensions = len(layer.kernel_size)
            yield from ([2, layer.in_channels, *[size] * dimensions] for size in _SIZES)
        elif isinstance(layer, torch.nn.modules.batchnorm._BatchNorm):
            yield [2, layer.num_features]
            yield from ([2, layer.num_features, size, size] for size in _SIZES)
        else:
            continue
        return


def _results(library: Any, subject: Any, inputs: list[np.ndarray], make: Any) -> dict[str, Any]:
    """The outputs and the gradients of a weighted sum of them, as arrays by name."""
    tensors = [make(array.copy()) for array in inputs]
    for tensor in tensors:
        tensor.requires_grad_(tensor.is_floating_point())
    outputs = dict(_tensors(library, subject(*tensors), "output"))
    results = {name: value.detach().numpy() for name, value in outputs.items()}
    wanted = [value for value in outputs.values() if value.requires_grad]
    if wanted:
        total = sum((value * make(_weights(value.shape))).sum() for value in wanted)
        total.backward()
    named = [(f"input {index}", tensor) for index, tensor in enumerate(tensors)]
    named += list(subject.named_parameters()) if hasattr(subject, "named_parameters") else []
    for name, tensor in named:
        if tensor.grad is not None:
            results[f"gradient of {name}"] = tensor.grad.numpy()
    return results


def _weights(shape: Any) -> np.ndarray:
    return np.random.default_rng(9).standard_normal(tuple(shape)).astype(np.float32)


def _tensors(library: Any, value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, library.Tensor):
        yield name, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _tensors(library, item, f"{name} {key}")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _tensors(library, item, f"{name} {index}")
