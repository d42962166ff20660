"""Programs of packages that are built on PyTorch, converted with the packages, beside PyTorch.

`python -m benchmarks.packages folder` converts the installed packages of `PACKAGES` into `folder`,
each under its own name, unless they are there already. The programs of `package_programs`, which
are written for PyTorch, then run in two processes: as they are; and converted, where `folder` comes
before the installed packages. All begin with the same weights and return their losses, metrics or
outputs; the table has the largest difference of these numbers, relative for those above 1.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import io
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

PROGRAMS = Path(__file__).parent / "package_programs"
# What is converted for the programs of a file: the package and those that it needs.
PACKAGES = {
    "train_lightning": ("lightning", "torchmetrics", "lightning_utilities"),
    "metrics": ("torchmetrics", "lightning_utilities"),
    "train_accelerate": ("accelerate",),
    "graphs": ("torch_geometric",),
    "agents": ("stable_baselines3",),
    "gaussian_processes": ("gpytorch", "linear_operator", "pyro"),
    "beliefs": ("pyro",),
    "attributions": ("captum",),
    "flows": ("nflows",),
    "differential_equations": ("torchdiffeq",),
    "pictures": ("kornia",),
    "medical": ("monai",),
    "attention": (
        *("vit_pytorch", "x_transformers", "vector_quantize_pytorch"),
        *("einx", "torch_einops_utils"),
    ),
}
LARGEST = 1e-5


def convert_needed(names: Sequence[str], folder: Path) -> None:
    """Converts installed packages into a folder, those that are not there already."""
    from metaop.convert import convert_path

    for name in names:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(f"install {name} to run its programs", name=name)
        if not (folder / name).exists():
            convert_path(Path(spec.origin).parent, folder / name, processes=os.cpu_count() or 1)


def functions_of(program: ModuleType) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The programs of a module: its functions without arguments, in order."""
    for name, value in vars(program).items():
        if callable(value) and getattr(value, "__module__", "") == program.__name__:
            code = getattr(value, "__code__", None)
            if code is not None and not code.co_argcount and not name.startswith("_"):
                yield name, value


def flat(value: Any) -> list[float]:
    """All numbers of a nest of lists, dictionaries and tensors."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [number for item in value for number in flat(item)]
    array = value.detach().numpy() if hasattr(value, "detach") else value
    return np.asarray(array, float).ravel().tolist()


def run_here(module: str, only: Sequence[str]) -> dict[str, Any]:
    """The results of each program of a module, or the first line of its error."""
    results: dict[str, Any] = {}
    for name, function in functions_of(importlib.import_module(module)):
        if only and not any(part in name for part in only):
            continue
        try:
            with contextlib.redirect_stdout(io.StringIO()), tempfile.TemporaryDirectory() as folder:
                os.chdir(folder)
                results[name] = flat(function())
        except Exception as error:
            traceback.print_exc()
            results[name] = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    return results


def import_here(package: str) -> list[str]:
    """The modules of a package that can be imported."""
    found = []
    root = importlib.import_module(package)
    for info in pkgutil.walk_packages(root.__path__, f"{package}.", onerror=lambda name: None):
        with contextlib.suppress(BaseException):
            importlib.import_module(info.name)
            found.append(info.name)
    return found


def child(places: Sequence[Path], verbose: bool, *words: str) -> Any:
    """The output of this module in another process, with folders first on its path."""
    path = [*map(str, places), str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", __spec__.name, *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        stdout=subprocess.PIPE,
        stderr=None if verbose else subprocess.DEVNULL,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def gap(expected: Any, found: Any) -> float | str:
    """The largest difference of two lists of numbers, or the error."""
    for side, value in (("PyTorch", expected), ("metaop", found)):
        if isinstance(value, str):
            return f"{side}: {value}"
    if len(expected) != len(found):
        return f"{len(found)} numbers instead of {len(expected)}"
    left, right = np.array(expected), np.array(found)
    return float(np.max(np.abs(left - right) / np.maximum(1.0, np.abs(left)), initial=0.0))


def compare(
    module: str, folder: Path, only: Sequence[str], verbose: bool
) -> Iterator[tuple[str, int, float | str]]:
    """Each program of a module, how many numbers it returns and how far they are apart."""
    from metaop.convert import convert_path

    with tempfile.TemporaryDirectory() as place:
        convert_path(PROGRAMS, Path(place))
        expected = child([PROGRAMS], verbose, "--run", module, "--only", *only)
        found = child([Path(place), folder], verbose, "--run", module, "--only", *only)
    for name, numbers in expected.items():
        count = 0 if isinstance(numbers, str) else len(numbers)
        yield name, count, gap(numbers, found.get(name, "the program is not there"))


def main() -> int:
    """Prints the tables; the exit status is the number of programs that fail or differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="where the converted packages lie")
    parser.add_argument("--files", nargs="*", default=list(PACKAGES), choices=list(PACKAGES))
    parser.add_argument("--only", nargs="*", default=[], help="parts of the names to run")
    parser.add_argument("--modules", action="store_true", help="import all modules instead")
    parser.add_argument("--verbose", action="store_true", help="show where errors come from")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--import", dest="package", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run or arguments.package:
        warnings.simplefilter("ignore")
        here = import_here(arguments.package) if arguments.package else None
        print(f"\n{json.dumps(run_here(arguments.run, arguments.only) if here is None else here)}")
        return 0
    folder = arguments.folder.resolve()
    convert_needed(sorted({n for file in arguments.files for n in PACKAGES[file]}), folder)
    return (tell_modules if arguments.modules else tell_programs)(folder, arguments)


def tell_programs(folder: Path, arguments: argparse.Namespace) -> int:
    """Prints a line for each program; returns how many fail or differ."""
    bad = 0
    print("| package | program | numbers | largest difference |")
    print("| --- | --- | --- | --- |")
    for file in arguments.files:
        rows = compare(file, folder, arguments.only, arguments.verbose)
        for name, count, difference in rows:
            is_small = isinstance(difference, float) and difference <= LARGEST
            bad += not is_small
            text = difference if isinstance(difference, str) else f"{difference:.1e}"
            print(f"| {PACKAGES[file][0]} | {name} | {count} | {text} |", flush=True)
    return bad


def tell_modules(folder: Path, arguments: argparse.Namespace) -> int:
    """Prints how many modules of each package can be imported; returns how many no longer can."""
    bad = 0
    print("| package | modules with PyTorch | converted |")
    print("| --- | --- | --- |")
    for name in dict.fromkeys(PACKAGES[file][0] for file in arguments.files):
        expected = set(child([], arguments.verbose, "--import", name))
        found = set(child([folder], arguments.verbose, "--import", name))
        bad += len(expected - found)
        print(f"| {name} | {len(expected)} | {len(found)} |", flush=True)
    return bad


if __name__ == "__main__":
    sys.exit(main())
