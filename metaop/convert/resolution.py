"""Resolves expressions to foreign names, through imports and scopes rather than by spelling."""

from __future__ import annotations

import builtins
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import libcst as cst
from libcst.metadata import (
    BaseAssignment,
    BuiltinAssignment,
    ClassScope,
    ImportAssignment,
    Scope,
)

from metaop.convert.catalogue import exists, is_foreign, lookup, root_path
from metaop.convert.tables import ROOTS


def dotted(node: cst.BaseExpression | None) -> str | None:
    """The text of a dotted name such as `torch.nn.Linear`; None for any other expression."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        inner = dotted(node.value)
        return None if inner is None else f"{inner}.{node.attr.value}"
    return None


@dataclass(frozen=True)
class Reference:
    """A use of a foreign name.

    `name` is the full foreign name, `text` its replacement.
    """

    name: str
    text: str


class Resolver:
    """Resolves the names of one module."""

    def __init__(
        self,
        scopes: Mapping[cst.CSTNode, Scope | None],
        stars: Iterable[str],
        neighbours: Mapping[str, str],
        kept: Collection[str],
        repeated: Collection[cst.CSTNode],
    ) -> None:
        self.scopes = scopes
        self.stars = tuple(stars)
        self.neighbours = neighbours
        self.kept = kept  # local names that stay: `import metaop as torch`
        self.repeated = repeated  # targets of `torch = torch`
        self.of_classes = [scope for scope in {*scopes.values()} if isinstance(scope, ClassScope)]
        self._keeps: dict[tuple[int, str], bool] = {}

    def reference(self, node: cst.BaseExpression, guarded: bool = False) -> Reference | None:
        """The foreign name that a name or a chain of attributes refers to, or None.

        `guarded` says that the program catches the error when a name is missing.
        """
        written = dotted(node)
        return None if written is None else self.textual(written, self._scope_of(node), guarded)

    def textual(self, written: str, scope: Scope | None, guarded: bool = False) -> Reference | None:
        """The foreign name that a dotted name refers to in a scope, or None."""
        local, _, rest = written.partition(".")
        prefixes = self.meanings_of(local, scope)
        if not prefixes:
            return None
        names = [f"{prefix}.{rest}" if rest else prefix for prefix in prefixes]
        name = next((name for name in names if lookup(name).path is not None), names[0])
        prefix = prefixes[names.index(name)]
        return Reference(name, self._text(name, prefix, written, scope, guarded))

    def imported(self, node: cst.BaseExpression) -> str | None:
        """The full name of the imported object or builtin that a dotted name refers to."""
        written, scope = dotted(node), self._scope_of(node)
        if written is None or scope is None:
            return None
        local, _, rest = written.partition(".")
        assignments = list(scope[local])
        if all(isinstance(item, BuiltinAssignment) for item in assignments):
            return f"builtins.{written}" if hasattr(builtins, local) else None
        names = {
            imported_name(item.node, local) if isinstance(item, ImportAssignment) else None
            for item in assignments
        }
        name = names.pop() if len(names) == 1 else None
        return f"{name}.{rest}" if name and rest else name

    def is_redefined(self, node: cst.BaseExpression) -> bool:
        """Whether a name without dots may be the program's own: `class Dataset(Dataset)`."""
        scope = self._scope_of(node)
        if not isinstance(node, cst.Name) or scope is None:
            return False
        assignments = self._assignments(node.value, scope)
        return any(
            not isinstance(item, (ImportAssignment, BuiltinAssignment)) for item in assignments
        )

    def _scope_of(self, node: cst.BaseExpression) -> Scope | None:
        base = node
        while isinstance(base, cst.Attribute):
            base = base.value
        return self.scopes.get(base)

    def meanings_of(self, local: str, scope: Scope | None) -> list[str]:
        """The foreign names that a local name may refer to."""
        if scope is None:
            return []
        assignments = self._assignments(local, scope)
        if not all(isinstance(item, BuiltinAssignment) for item in assignments):
            found = [
                imported_name(item.node, local)
                for item in assignments
                if isinstance(item, ImportAssignment)
            ]
            foreign = [self.neighbours.get(name, name) for name in found if name is not None]
            return [name for name in foreign if is_foreign(name)]
        return self._by_star(local)

    def _assignments(self, local: str, scope: Scope) -> Collection[BaseAssignment]:
        """The bindings of a name; `torch = torch` in a class body reads that of the outer scope."""
        assignments = scope[local]
        if isinstance(scope, ClassScope) and all(
            getattr(one, "node", None) in self.repeated for one in assignments
        ):
            return scope.parent[local]
        return assignments

    def _by_star(self, local: str) -> list[str]:
        if hasattr(builtins, local) or local.startswith("_"):
            return []
        candidates = [f"{module}.{local}" for module in self.stars if is_foreign(module)]
        known = [name for name in candidates if lookup(name).path is not None]
        neighbours = [
            self.neighbours[f"{module}.{local}"]
            for module in self.stars
            if f"{module}.{local}" in self.neighbours
        ]
        return known or [name for name in neighbours if is_foreign(name)]

    def _text(
        self, name: str, prefix: str, written: str, scope: Scope | None, guarded: bool
    ) -> str:
        if name.startswith("metaop"):
            return written
        local = written.partition(".")[0]
        bound = bound_path(prefix)
        spelled = bound if self.renames(local, scope) else local
        path = lookup(name).path
        if path is None:
            # If metaop itself is not bound here, the name stays below its alias.
            stays = guarded or bound != "metaop"
            path = bound + name[len(prefix) :] if stays else absent_path(name)
        if path == bound:
            return spelled
        if path.startswith(bound + "."):
            return spelled + path[len(bound) :]
        return path if self.has_root(scope) else written

    def has_root(self, scope: Scope | None) -> bool:
        """Whether the converted program binds the name `metaop` in this scope."""
        if scope is None:
            return False
        return any(
            root in self.meanings_of(root, scope) and self.renames(root, scope) for root in ROOTS
        )

    def renames(self, local: str, scope: Scope | None) -> bool:
        """Whether `import torch` becomes `import metaop` here, rather than `… as torch`."""
        if scope is None:
            return False
        assignments = list(self._assignments(local, scope))
        if local in self.kept:
            return False
        if not assignments:
            return bool(self.stars) and local in ("torch", "torchvision")
        owner = assignments[0].scope
        key = (id(owner), local)
        if key not in self._keeps:
            self._keeps[key] = self._may_rename(local, assignments, owner)
        return self._keeps[key]

    def _may_rename(self, local: str, assignments: Sequence[BaseAssignment], owner: Scope) -> bool:
        imported = all(
            isinstance(item, ImportAssignment)
            and isinstance(item.node, cst.Import)
            and imported_name(item.node, local) == local
            and not _has_alias(item.node, local)
            for item in assignments
        )
        clash = any(not isinstance(item, ImportAssignment) for item in owner["metaop"])
        # In a class body, an assignment hides the outer name from there on.
        hidden = any(
            one.scope is scope and not isinstance(one, ImportAssignment)
            for scope in self.of_classes
            for one in scope[local]
        )
        return imported and is_foreign(local) and not clash and not hidden


def imported_name(node: cst.CSTNode, local: str) -> str | None:
    """The dotted name that an import statement binds to a local name."""
    if isinstance(node, cst.Import):
        for alias in node.names:
            name = dotted(alias.name) or ""
            if alias.asname is not None:
                if dotted(alias.asname.name) == local:
                    return name
            elif name.partition(".")[0] == local:
                return local
    if isinstance(node, cst.ImportFrom) and not isinstance(node.names, cst.ImportStar):
        module = module_name(node)
        for alias in node.names:
            name = dotted(alias.name) or ""
            bound = name if alias.asname is None else dotted(alias.asname.name)
            if bound == local:
                return f"{module}.{name}"
    return None


def module_name(node: cst.ImportFrom) -> str:
    """The module of `from MODULE import …`, with its leading dots."""
    return "." * len(node.relative) + (dotted(node.module) or "")


def _has_alias(node: cst.Import, local: str) -> bool:
    return any(
        alias.asname is not None and dotted(alias.asname.name) == local for alias in node.names
    )


def bound_path(name: str) -> str:
    """The path that an import of a foreign name is bound to after conversion."""
    path = lookup(name).path
    return absent_path(name) if path is None else path


def absent_path(name: str) -> str:
    """The path of the stand-in for a name that metaop lacks."""
    return name if name.startswith("metaop.") else f"metaop.absent.{name}"


def natural_path(name: str) -> str:
    """The path that a name would have; importing it raises ImportError if metaop lacks it."""
    path = lookup(name).path
    return root_path(name) if path is None or not exists(path) else path
