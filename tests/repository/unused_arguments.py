"""Which arguments of a function are never read in its body."""

from __future__ import annotations

import ast
import inspect
from textwrap import dedent


def unused(function: object) -> set[str]:
    """The parameters of which nothing is made in the body; none where the body only raises."""
    (tree,) = ast.parse(dedent(inspect.getsource(function))).body  # type: ignore[arg-type]
    if not isinstance(tree, ast.FunctionDef):
        return set()
    body = tree.body[1:] if ast.get_docstring(tree) is not None else tree.body
    if all(isinstance(line, (ast.Raise, ast.Pass)) for line in body):
        return set()
    given = tree.args
    extra = [one for one in (given.vararg, given.kwarg) if one is not None]
    names = {one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs, *extra)}
    read = {
        node.id
        for line in body
        for node in ast.walk(line)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    return names - read - {"self", "cls"}
