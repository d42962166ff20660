"""Collects what name resolution must know of a whole module."""

from __future__ import annotations

import libcst as cst

from metaop.convert.dynamic import roots_of_code
from metaop.convert.resolution import dotted, module_name


class Survey(cst.CSTVisitor):
    """Walks a module and collects names.

    `stars` are the modules of `from MODULE import *`; `functions` the names of all functions;
    `kept` the names in `global` and `nonlocal` statements and those that code in strings needs,
    which no import may rename; `repeated` the targets of assignments like `torch = torch`;
    `patched` the dotted names of attributes that the program sets; `texts` the string arguments.
    """

    def __init__(self, module: cst.Module) -> None:
        super().__init__()
        self.stars: list[str] = []
        self.functions: set[str] = set()
        self.kept: set[str] = set()
        self.repeated: set[cst.CSTNode] = set()
        self.patched: set[str] = set()
        self.texts: set[str] = set()
        module.visit(self)

    def visit_ImportFrom(self, node: cst.ImportFrom) -> None:
        if isinstance(node.names, cst.ImportStar):
            self.stars.append(module_name(node))

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self.functions.add(node.name.value)

    def visit_Global(self, node: cst.Global) -> None:
        self.kept.update(item.name.value for item in node.names)

    def visit_Nonlocal(self, node: cst.Nonlocal) -> None:
        self.kept.update(item.name.value for item in node.names)

    def visit_Assign(self, node: cst.Assign) -> None:
        for target in node.targets:
            self._assigned(target.target, node.value)

    def visit_AnnAssign(self, node: cst.AnnAssign) -> None:
        self._assigned(node.target, node.value)

    def _assigned(self, target: cst.BaseExpression, value: cst.BaseExpression | None) -> None:
        written = dotted(target)
        if isinstance(target, cst.Attribute) and written is not None:
            self.patched.add(written)
        elif isinstance(target, cst.Name) and dotted(value) == target.value:
            self.repeated.add(target)

    def visit_Call(self, node: cst.Call) -> None:
        self.kept.update(roots_of_code(node))
        values = (arg.value for arg in node.args)
        self.texts.update(one.raw_value for one in values if isinstance(one, cst.SimpleString))
        if dotted(node.func) != "setattr" or len(node.args) != 3:
            return
        owner, name = dotted(node.args[0].value), node.args[1].value
        if owner is not None and isinstance(name, cst.SimpleString):
            self.patched.add(f"{owner}.{name.raw_value}")
