"""Programs in files: a graph of meta-operators with its weights, which runs without its source.

`metaop.export` is a package, and a function as well: called, it writes a program. `load_program`
reads one; `metaop compile` makes a shared library of it. See docs/export.md.
"""

import sys
from types import ModuleType
from typing import Any

from metaop.export.dimensions import Dim as Dim
from metaop.export.exporter import export as export
from metaop.export.program import Program as Program
from metaop.export.program import load_program as load_program


class _Package(ModuleType):
    def __call__(self, model: Any, inputs: Any, file: Any, **options: Any) -> Program:
        """As the function `export` of this package."""
        return export(model, inputs, file, **options)


sys.modules[__name__].__class__ = _Package
