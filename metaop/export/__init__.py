"""Programs in files: a graph of meta-operators with its weights, which runs without its source.

`metaop.export` is a package and also a function: calling it writes a program. `load_program` reads
one; `metaop compile` builds a shared library from it. `export`, `save`, `load` and `Dim` are those
of `torch.export`. See docs/export.md.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from metaop.export.dimensions import Dim as Dim
from metaop.export.program import Program as Program
from metaop.export.program import load_program as load_program

if TYPE_CHECKING:
    from metaop.export.exported import ExportedProgram as ExportedProgram
    from metaop.export.exported import export as export
    from metaop.export.exported import load as load
    from metaop.export.exported import save as save


class _Package(ModuleType):
    def __call__(self, model: Any, inputs: Any, file: Any, *, dynamic: Any = None) -> Program:
        """Writes what a module or a function computes to a file: see `metaop.export.exporter`."""
        # Importing the exporter is lazy: running programs needs no layers or passes.
        from metaop.export.exporter import export

        return export(model, inputs, file, dynamic=dynamic)


def __getattr__(name: str) -> Any:
    if name not in ("ExportedProgram", "export", "load", "save"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from metaop.export import exported

    return getattr(exported, name)


sys.modules[__name__].__class__ = _Package
