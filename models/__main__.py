"""Lists the networks, trains one on the small data of its file, or counts the operators of steps.

python -m models list
python -m models resnet train --steps 100
python -m models resnet train --help
python -m models coverage [NAME …]
"""

from __future__ import annotations

import ast
import difflib
import importlib
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


def networks() -> dict[str, str]:
    """The first line of each file that trains a network, by the name of the file."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("[!_]*.py")):
        program = ast.parse(path.read_text(encoding="utf-8"))
        if any(isinstance(part, ast.FunctionDef) and part.name == "main" for part in program.body):
            found[path.stem] = (ast.get_docstring(program) or "").split("\n")[0]
    return found


def main(arguments: Sequence[str] | None = None) -> Any:
    """Prints the networks, or returns what the `main` of one returns; its options come last."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    known = networks()
    if words == ["list"]:
        width = max(map(len, known)) + 1
        for name, line in known.items():
            print(f"{name:{width}}{line}")
        return None
    if words[:1] == ["coverage"]:
        for name in words[1:]:
            check_name(name, known)
        return importlib.import_module(".coverage", __package__).table(words[1:] or list(known))
    if not words or words[0] in ("-h", "--help"):
        raise SystemExit(__doc__)
    name = words[0]
    check_name(name, known)
    if words[1:2] != ["train"]:
        raise SystemExit(f"what to do with {name}? use: python -m models {name} train [--help]")
    if arguments is None:
        # The program's name in the help and in the errors of options.
        sys.argv[0] = f"python -m models {name} train"
    return importlib.import_module(f".{name}", __package__).main(words[2:])


def check_name(name: str, known: Iterable[str]) -> None:
    """Exits with the names that are close, if there is no such network."""
    if name not in known:
        close = difflib.get_close_matches(name, known)
        hint = f"did you mean {' or '.join(close)}? " if close else ""
        raise SystemExit(f"no network {name!r}; {hint}python -m models list shows all names")


if __name__ == "__main__":
    main()
