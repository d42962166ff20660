"""Lists the networks, trains one on the small data of its file, or tells what steps consist of.

python -m models list
python -m models resnet train --steps 100
python -m models coverage [NAME …]
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Sequence
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
    """Prints the networks, or returns what the training of one returns; its options come last."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    known = networks()
    if words == ["list"]:
        width = max(map(len, known)) + 1
        for name, line in known.items():
            print(f"{name:{width}}{line}")
        return None
    if words[:1] == ["coverage"] and set(words[1:]) <= set(known):
        return importlib.import_module(".coverage", __package__).table(words[1:] or list(known))
    if len(words) < 2 or words[0] not in known or words[1] != "train":
        raise SystemExit(__doc__)
    return importlib.import_module(f".{words[0]}", __package__).main(words[2:])


if __name__ == "__main__":
    main()
