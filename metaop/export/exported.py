"""The functions of `torch.export`: programs in memory and in files, and modules that run them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metaop.errors import ArgumentError, DTypeError
from metaop.export.program import Program, load_program
from metaop.nn.module import Module
from metaop.nn.parameter import Parameter
from metaop.serialization.files import File
from metaop.tensor.core import Tensor


class ProgramModule(Module):
    """A module that runs a program: the weights of the program are its parameters and buffers.

    They have the names of the exported module's, with submodules that only hold them. `train` and
    `eval` change nothing: a program computes what the module computed in the mode in which it was
    exported. Raises the errors of `Program` for inputs that do not fit, and DTypeError if the
    module was converted to another dtype.
    """

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.training, self._program = False, program
        trained, kept = (set(program.content[kind]) for kind in ("parameters", "buffers"))
        # Where each weight is now. Tables take names that methods have too.
        self._places: dict[str, tuple[dict[str, Any], str]] = {}
        for name, tensor in program.weights.items():
            owner: Module = self
            *path, last = name.split(".")
            for step in path:
                owner = owner._modules.setdefault(step, Module())
            table: dict[str, Any] = owner._parameters if name in trained else owner._buffers
            table[last] = tensor
            if name in trained:
                table[last] = Parameter(tensor, tensor.is_floating_point())
            elif name not in kept:
                owner._non_persistent_buffers_set.add(last)
            self._places[name] = table, last

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The results of the program for these arguments."""
        return self._current()(*args, **kwargs)

    def save(self, f: File) -> None:
        """Writes the program, with the current weights."""
        self._current().write(f)

    def _current(self) -> Program:
        """The program with the weights that the module has now."""
        weights = {name: table[key] for name, (table, key) in self._places.items()}
        for name, tensor in self._program.weights.items():
            if weights[name].dtype != tensor.dtype:
                raise DTypeError(
                    f"{name} is {weights[name].dtype}, the program computes with {tensor.dtype}",
                    fix="convert the module before it is exported",
                )
        self._program.weights = weights
        return self._program


class ExportedProgram:
    """What `export` returns: `module()` runs it, `save` writes it to a file."""

    def __init__(self, program: Program) -> None:
        self._module = ProgramModule(program)

    def module(self) -> ProgramModule:
        """The module that runs the program; each call returns the same one."""
        return self._module

    @property
    def state_dict(self) -> dict[str, Tensor]:
        """The parameters and the saved buffers by name."""
        return dict(self._module.state_dict())

    def __repr__(self) -> str:
        return f"Exported{self._module._program}"


def export(
    mod: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
) -> ExportedProgram:
    """The program of a module or function, with its weights, for inputs like the examples.

    `dynamic_shapes` has a mapping of axes to `Dim` for each tensor, or a list with one for each
    axis, in the structure of the arguments: by the names of the parameters, or in their order. Axes
    that it leaves out are fixed. `strict` has no effect: there is one way to record a function.

    Raises ExportError for a function that `metaop.export` refuses.

    >>> batch = metaop.export.Dim("batch")
    >>> x = metaop.ones(2, 3)
    >>> program = metaop.export.export(nn.ReLU(), (x,), dynamic_shapes={"input": {0: batch}})
    >>> program.module()(metaop.ones(5, 3)).shape
    metaop.Size([5, 3])
    """
    # Importing the exporter is lazy: running programs needs no layers or passes.
    from metaop.export.exporter import Arguments, program_of

    if not isinstance(args, tuple):
        raise ArgumentError(
            f"Expecting `args` to be a tuple of example positional inputs, got {type(args)}",
            fix="pass (x,) for one input",
        )
    given = Arguments(mod, args, kwargs or {})
    return ExportedProgram(program_of(given, given.axes(dynamic_shapes), whole=True))


def save(ep: ExportedProgram, f: File) -> None:
    """Writes a program to a file of any name, or to a file object, with the current weights."""
    ep.module().save(f)


def load(f: File) -> ExportedProgram:
    """Reads a program that `save`, `metaop.scripting.save` or `metaop.export` wrote.

    Raises CheckpointError for other files, such as those of PyTorch.
    """
    return ExportedProgram(load_program(f))
