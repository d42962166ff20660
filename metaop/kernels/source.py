"""The source of a kernel as a syntax tree, with the user's line numbers and names."""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import CellType, CodeType
from typing import Any

from metaop.errors import KernelError


@dataclass(frozen=True, eq=False)
class Source:
    """A kernel before specialisation: its function, and the namespaces of its free names.

    `spaces` are searched in order. Closures are read at look-up, because a kernel may be defined
    before the objects that it names.
    """

    name: str
    tree: ast.FunctionDef
    code: CodeType
    spaces: tuple[Mapping[str, Any], ...]
    cells: Mapping[str, CellType]

    def lookup(self, name: str) -> Any:
        """The value of a free name; raises KeyError if it is not defined."""
        if name in self.cells:
            return self.cells[name].cell_contents
        for space in self.spaces:
            if name in space:
                return space[name]
        raise KeyError(name)

    @property
    def parameters(self) -> list[str]:
        """The names of the parameters, in order."""
        return [argument.arg for argument in self.tree.args.args]

    def error(self, message: str, node: ast.AST | int, fix: str) -> KernelError:
        """An error at a line of the user's program."""
        line = node if isinstance(node, int) else getattr(node, "lineno", self.tree.lineno)
        return KernelError(f"{self.name}: {message}", fix=fix, location=(self.code, line))


def source_of(function: Callable[..., Any]) -> Source:
    """The source of a function; raises KernelError if Python does not know it."""
    name = getattr(function, "__name__", repr(function))
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        raise KernelError(
            f"{name}: the source text of a kernel is not known",
            fix="define the kernel with `def` in a file",
        ) from None
    tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
    code = function.__code__
    if not isinstance(tree, ast.FunctionDef):
        raise KernelError(f"{name} is not defined with `def`", fix="write a function with `def`")
    ast.increment_lineno(tree, first - 1)
    cells = dict(zip(code.co_freevars, function.__closure__ or ()))
    return _checked(Source(name, tree, code, (function.__globals__, vars(builtins)), cells))


def source_of_text(
    name: str, text: str, parameters: Sequence[str], words: Mapping[str, Any]
) -> Source:
    """The source of a kernel given as the text of its body; lines count from 1."""
    file = f"<{name}>"
    body = textwrap.indent(textwrap.dedent(text).strip("\n"), "    ")
    try:
        module = ast.parse(f"def {name}({', '.join(parameters)}):\n{body}\n", file)
    except SyntaxError as error:
        raise KernelError(
            f"{name}: {error.msg} in line {(error.lineno or 1) - 1} of the source",
            fix="correct the text",
        ) from None
    ast.increment_lineno(module, -1)
    tree = module.body[0]
    assert isinstance(tree, ast.FunctionDef)
    # The added head is line 0, but Python's compiler requires lines from 1 on.
    tree.lineno = 1
    code = next(c for c in compile(module, file, "exec").co_consts if isinstance(c, CodeType))
    return _checked(Source(name, tree, code, (words, vars(builtins)), {}))


def _checked(source: Source) -> Source:
    """The source; raises KernelError if its parameters are not those of a kernel."""
    arguments = source.tree.args
    special = (*arguments.posonlyargs, *arguments.kwonlyargs, *arguments.defaults)
    if special or arguments.vararg or arguments.kwarg:
        raise source.error(
            "the parameters of a kernel are plain names",
            source.tree,
            "drop *, /, ** and default values; the inputs come first, then the outputs",
        )
    return source
