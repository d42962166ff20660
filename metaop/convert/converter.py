"""Conversion of the source of one module."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider, ScopeProvider

from metaop.convert.catalogue import (
    Target,
    argument_problem,
    becomes_a_method,
    hint_for,
    is_foreign,
    lookup,
)
from metaop.convert.dynamic import (
    convert_annotation_text,
    convert_membership,
    convert_named,
    convert_subscript_by_name,
    note_listing,
)
from metaop.convert.findings import Finding, Verdict
from metaop.convert.idioms import (
    convert_call,
    convert_decorator,
    convert_string,
    convert_subscript,
)
from metaop.convert.imports import convert_from_import, convert_import
from metaop.convert.methods import missing_attribute
from metaop.convert.renaming import (
    Renaming,
    rename_formatted,
    rename_from_import,
    rename_import,
    rename_string,
)
from metaop.convert.resolution import Resolver, dotted, module_name
from metaop.convert.source import MARK, Source, modern_syntax
from metaop.convert.survey import Survey
from metaop.convert.tables import NEUTRAL_PACKAGES, ROOTS, THIRD_PARTY_HINTS

_CATCHES_IMPORTS = frozenset(
    ("ImportError", "ModuleNotFoundError", "AttributeError", "Exception", "BaseException")
)

_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass
class Conversion:
    """The result of converting one module."""

    text: str
    findings: list[Finding] = field(default_factory=list)


def convert_source(
    text: str,
    local_packages: Sequence[str] = (),
    neighbours: Mapping[str, str] | None = None,
    kept: Collection[str] = (),
    renaming: Renaming | None = None,
    asks: bool = False,
) -> Conversion:
    """Converts the text of a module.

    `local_packages` are the top-level names of the project itself. `neighbours` are the foreign
    names that the project's modules re-export, as {"layers.nn": "torch.nn"}. `kept` are packages
    whose name other modules import from this one, so `import torch` becomes `import metaop as
    torch`. `renaming` has the new name of the project's own package. `asks` says that the project
    looks packages up by strings such as "torch", so computed names may be such strings. Raises
    `SyntaxError` if the text is not Python 3.
    """
    if not may_change(text, neighbours, renaming, asks):
        return Conversion(text, plain_imports(text, local_packages))
    text, module = _parse(text)
    wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
    converter = _Converter(text, wrapper, local_packages, neighbours or {}, kept)
    converter.renaming = renaming
    converter.asks = asks or converter.asks
    module.visit(converter)
    result = converter.source.result()
    compile_check(result)
    return Conversion(result, sorted(set(converter.findings)))


def may_change(
    text: str, neighbours: Mapping[str, str] | None, renaming: Renaming | None, asks: bool
) -> bool:
    """Whether a text has a name to convert; most modules of large projects have none."""
    words = set(_WORD.findall(text))
    if asks and not words.isdisjoint(("importlib", "importlib_metadata")):
        return True
    own = {local for known in getattr(neighbours, "exports", {}).values() for local in known}
    if neighbours and not own:
        return True
    if renaming is not None:
        own.add(renaming.old)
    return not words.isdisjoint({"metaop", *(root for root in ROOTS if "." not in root), *own})


def plain_imports(text: str, local_packages: Sequence[str]) -> list[Finding]:
    """The imports of packages not known to work, in a module with nothing to convert.

    Raises `SyntaxError` if the text is not Python 3.
    """
    findings = []
    for node in ast.walk(ast.parse(text)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names = [node.module]
        for name in names:
            hint = third_party_hint(name, local_packages)
            if hint:
                place = (node.lineno, node.col_offset + 1)  # type: ignore[attr-defined]
                findings.append(Finding(*place, name, Verdict.THIRD_PARTY, hint))
    return sorted(set(findings))


def third_party_hint(module: str, local_packages: Collection[str]) -> str:
    """The hint for an imported package that may not work with metaop, or an empty string."""
    root = module.partition(".")[0]
    if is_foreign(module) or root in local_packages:
        return ""
    if root in THIRD_PARTY_HINTS or module in THIRD_PARTY_HINTS:
        return hint_for(module)
    known = root in NEUTRAL_PACKAGES or root in sys.stdlib_module_names or not root
    return "" if known else "not known to work with metaop"


def _parse(text: str) -> tuple[str, cst.Module]:
    for candidate in (text, modern_syntax(text)):
        try:
            return candidate, cst.parse_module(candidate)
        except cst.ParserSyntaxError as error:
            problem = error
    raise SyntaxError(f"not Python 3: line {problem.editor_line}: {problem.message}") from problem


def compile_check(text: str) -> None:
    """Raises `SyntaxError` if a text does not parse."""
    cst.parse_module(text)


class _Converter(cst.CSTVisitor):
    """Walks a module once and notes findings and edits."""

    def __init__(
        self,
        text: str,
        wrapper: MetadataWrapper,
        local_packages: Sequence[str],
        neighbours: Mapping[str, str],
        kept: Collection[str],
    ) -> None:
        super().__init__()
        self.source = Source(text)
        self.positions = wrapper.resolve(PositionProvider)
        self.scopes = wrapper.resolve(ScopeProvider)
        survey = Survey(wrapper.module)
        kept = {*kept, *survey.kept}
        self.resolver = Resolver(self.scopes, survey.stars, neighbours, kept, survey.repeated)
        self.local_packages = frozenset(local_packages)
        self.findings: list[Finding] = []
        self.handled: set[cst.CSTNode] = set()
        self.renamed_keywords: dict[cst.Arg, str] = {}
        self.guards = 0
        self.annotations = 0
        self.defined = survey.functions | {name.rpartition(".")[2] for name in survey.patched}
        self.patched = survey.patched
        scopes = (scope for scope in self.scopes.values() if scope is not None)
        self.global_scope = next((scope.globals for scope in scopes), None)
        self.foreign = False  # whether anything foreign has been imported so far
        self.renaming: Renaming | None = None
        self.asks = bool(survey.texts.intersection(ROOTS))

    def span(self, node: cst.CSTNode) -> tuple[int, int]:
        """The start and the end of a node in the text."""
        place = self.positions[node]
        return (
            self.source.offset(place.start.line, place.start.column),
            self.source.offset(place.end.line, place.end.column),
        )

    def code(self, node: cst.CSTNode) -> str:
        """The text of a node."""
        start, end = self.span(node)
        return self.source.text[start:end]

    def note(self, node: cst.CSTNode, name: str, verdict: Verdict, hint: str = "") -> None:
        """Adds a finding; unsupported names are marked in the output."""
        line, column = self.source.place(self.span(node)[0])
        name = name.removeprefix("metaop.absent.")
        self.findings.append(Finding(line, column, name, verdict, hint))
        if verdict is Verdict.UNSUPPORTED and not self._marked(line, name):
            self.source.mark(line, f"unsupported: {name}" + (f": {hint}" if hint else ""))

    def _marked(self, line: int, name: str) -> bool:
        start = self.source.line_starts[line - 1]
        following = self.source.line_starts[line : line + 1] or [len(self.source.text)]
        return name.startswith("metaop.") and MARK in self.source.text[start : following[0]]

    def note_name(self, node: cst.CSTNode, name: str) -> None:
        """Adds the finding of a foreign name."""
        target = lookup(name)
        if target.path is None and self.guards:
            hint = "absent: the program's own handler of the ImportError runs"
            self.note(node, name, Verdict.SEMANTIC, hint)
            return
        self.note(node, name, _verdict(target), target.meaning or _renaming(target))

    def visit_Import(self, node: cst.Import) -> bool:
        if self.renaming is not None:
            rename_import(self.source, self.span, node, self.renaming)
        scope = self.scopes.get(node)
        found = convert_import(
            self.source,
            self.span,
            node,
            lambda local: self.resolver.renames(local, scope),
            bool(self.guards),
        )
        self._note_imports(found, [dotted_root(alias) for alias in node.names], node)
        return False

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        if self.renaming is not None:
            rename_from_import(self.source, self.span, node, self.renaming)
        found = convert_from_import(self.source, self.span, node, bool(self.guards))
        roots = [] if node.relative else [module_name(node)]
        self._note_imports(found, roots, node)
        return False

    def _note_imports(
        self, found: list[tuple[cst.CSTNode, str]], modules: list[str], node: cst.CSTNode
    ) -> None:
        for place, name in found:
            self.foreign = True
            self.note_name(place, name)
        for module in modules:
            hint = third_party_hint(module, self.local_packages)
            if hint:
                self.note(node, module, Verdict.THIRD_PARTY, hint)

    def visit_Try(self, node: cst.Try) -> bool:
        catches = any(_catches_imports(handler) for handler in node.handlers)
        self.guards += catches
        node.body.visit(self)
        self.guards -= catches
        for part in (*node.handlers, node.orelse, node.finalbody):
            if part is not None:
                part.visit(self)
        return False

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        if node in self.handled:
            return False
        if node.attr.value == "__dict__":
            note_listing(self, node.value, "vars")
        if not self._convert_reference(node):
            missing = missing_attribute(node, self.defined) if self.foreign else ""
            if missing:
                hint = "tensors have no such attribute"
                self.note(node.attr, f"Tensor.{missing}", Verdict.UNSUPPORTED, hint)
            node.value.visit(self)
        return False

    def visit_Name(self, node: cst.Name) -> None:
        if node not in self.handled:
            self._convert_reference(node)

    def _convert_reference(self, node: cst.BaseExpression) -> bool:
        if self._is_patched(dotted(node) or ""):
            return False
        reference = self.resolver.reference(node, guarded=bool(self.guards))
        if reference is None:
            return False
        self.note_name(node, reference.name)
        self.source.replace(*self.span(node), reference.text)
        return True

    def _is_patched(self, written: str) -> bool:
        """Whether a dotted name refers to an attribute that the program itself sets."""
        while written:
            if written in self.patched:
                return True
            written = written.rpartition(".")[0]
        return False

    def replace_whole(self, node: cst.CSTNode, text: str) -> None:
        """Replaces a node by a text, and skips what is below it."""
        self.source.replace(*self.span(node), text)
        self.skip(node)

    def skip(self, node: cst.CSTNode) -> None:
        """Converts nothing below this node, because it is deleted or already replaced."""
        self.handled.add(node)
        for child in node.children:
            self.skip(child)

    def visit_Call(self, node: cst.Call) -> bool | None:
        convert_named(self, node)
        if node in self.handled:
            return False
        reference = self.resolver.reference(node.func)
        name = reference.name if reference else ""
        path = lookup(name).path if reference else None
        handled = convert_call(self, node, name) if self.foreign or reference else False
        if path is not None and not handled and not self.resolver.is_redefined(node.func):
            self._check_arguments(node, name, path)
        return None

    def _check_arguments(self, node: cst.Call, name: str, path: str) -> None:
        plain = [arg for arg in node.args if not arg.star]
        keywords = tuple(
            self.renamed_keywords.get(arg, arg.keyword.value)
            for arg in plain
            if arg.keyword and arg not in self.handled
        )
        positional = sum(arg.keyword is None for arg in plain)
        complete = len(plain) == len(node.args)
        problem = argument_problem(path, positional, keywords, complete=complete)
        if problem:
            self.note(node.func, f"{name}()", Verdict.UNSUPPORTED, problem)

    def visit_Arg(self, node: cst.Arg) -> bool:
        node.value.visit(self)
        return False

    def visit_Subscript(self, node: cst.Subscript) -> None:
        convert_subscript_by_name(self, node)
        if self.foreign and node not in self.handled:
            convert_subscript(self, node)

    def visit_Comparison(self, node: cst.Comparison) -> None:
        convert_membership(self, node)

    def visit_Annotation(self, node: cst.Annotation) -> None:
        self.annotations += 1

    def leave_Annotation(self, original_node: cst.Annotation) -> None:
        self.annotations -= 1

    def visit_ClassDef_body(self, node: cst.ClassDef) -> None:
        lines = [line for line in node.body.body if isinstance(line, cst.SimpleStatementLine)]
        for statement in (statement for line in lines for statement in line.body):
            for value in _assigned(statement):
                self._keep_static(value)

    def _keep_static(self, node: cst.BaseExpression) -> None:
        """`act = torch.relu` in a class → `act = staticmethod(metaop.relu)`: no method either."""
        reference = None if self._is_patched(dotted(node) or "") else self.resolver.reference(node)
        if reference is not None and becomes_a_method(reference.name):
            text = f"staticmethod({reference.text})"
            self.note(node, reference.name, Verdict.CONVERTED, f"now {text}")
            self.replace_whole(node, text)

    def visit_Decorator(self, node: cst.Decorator) -> None:
        if self.foreign:
            convert_decorator(self, node)

    def visit_FormattedString(self, node: cst.FormattedString) -> None:
        if self.renaming is not None and node not in self.handled:
            rename_formatted(self.source, self.span, node, self.renaming)

    def visit_SimpleString(self, node: cst.SimpleString) -> None:
        if self.renaming is not None and node not in self.handled:
            if rename_string(self.source, self.span, node, self.renaming):
                return
        if node in self.handled or not self.foreign:
            return
        convert = convert_annotation_text if self.annotations else convert_string
        convert(self, node)

    def visit_Expr(self, node: cst.Expr) -> bool:
        # A string that is a statement is a docstring, which stays as it is.
        return not isinstance(node.value, (cst.SimpleString, cst.ConcatenatedString))

    def visit_NameItem(self, node: cst.NameItem) -> bool:
        return False


def _assigned(statement: cst.BaseSmallStatement) -> list[cst.BaseExpression]:
    """The values that an assignment gives to names, each element of a tuple if it is unpacked."""
    if isinstance(statement, cst.AnnAssign) and statement.value is not None:
        return [statement.value]
    if not isinstance(statement, cst.Assign):
        return []
    unpacked = any(isinstance(target.target, cst.Tuple) for target in statement.targets)
    if unpacked and isinstance(statement.value, cst.Tuple):
        return [element.value for element in statement.value.elements]
    return [statement.value]


def dotted_root(alias: cst.ImportAlias) -> str:
    """The module of one part of an import statement."""
    return alias.evaluated_name


def _verdict(target: Target) -> Verdict:
    if target.path is None:
        return Verdict.UNSUPPORTED
    if target.meaning:
        return Verdict.SEMANTIC
    return Verdict.CONVERTED if target.renamed else Verdict.SAME


def _renaming(target: Target) -> str:
    return f"now {target.path}" if target.path and target.renamed else ""


def _catches_imports(handler: cst.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    names = handler.type.elements if isinstance(handler.type, cst.Tuple) else [handler.type]
    kinds = [name.value if isinstance(name, cst.Element) else name for name in names]
    return any(isinstance(kind, cst.Name) and kind.value in _CATCHES_IMPORTS for kind in kinds)
