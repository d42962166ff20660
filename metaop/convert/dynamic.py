"""Names in strings: imports by name, look-ups in namespaces, code in strings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING

import libcst as cst

from metaop.convert.catalogue import hint_for, is_foreign, lookup
from metaop.convert.findings import Verdict
from metaop.convert.resolution import Reference, bound_path, dotted, natural_path
from metaop.convert.tables import PACKAGES, ROOTS

if TYPE_CHECKING:
    from metaop.convert.converter import _Converter as Converter

_IMPORTS = ("importlib.import_module", "importlib.__import__", "builtins.__import__")
# Functions whose first argument is a dotted name to look up.
_NAMERS = ("unittest.mock.patch", "pkgutil.resolve_name", "pydoc.locate")
_QUESTIONS = ("importlib.util.find_spec", "pkgutil.find_loader")
_BY_TEXT = (*_IMPORTS, *_NAMERS, *_QUESTIONS)
_READERS = ("builtins.eval", "builtins.exec", "builtins.compile")
_VERSIONS = (
    *("importlib.metadata.version", "importlib.metadata.distribution"),
    *("importlib_metadata.version", "pkg_resources.get_distribution"),
)
# Functions that `metaop.convert.packages` replaces at run time.
_AT_RUN_TIME = {
    "importlib.import_module": "import_module",
    "importlib.util.find_spec": "find_spec",
    "importlib.metadata.version": "version",
    "importlib_metadata.version": "version",
}
_NAMESPACES = ("builtins.globals", "builtins.locals", "builtins.vars")
_ACCESSES = ("get", "pop", "setdefault", "__getitem__")

_CHAIN = re.compile(r"(?<![\w.\\])[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_ROOT_WORD = re.compile(rf"(?<![\w./-])({'|'.join(r for r in ROOTS if '.' not in r)})(?![\w/-])")
_IMPORT_OF_ROOT = re.compile(rf"\b(?:import|from)\s+({'|'.join(ROOTS)})\b")
_RUN_TIME = "the name is known only at run time"


def convert_named(converter: Converter, node: cst.Call) -> None:
    """Converts a call whose argument is a string with a name."""
    function = converter.resolver.imported(node.func) or ""
    if function == "builtins.getattr":
        _convert_getattr(converter, node)
    elif function in _BY_TEXT:
        _convert_import(converter, node, function)
    elif function in _READERS:
        _convert_code(converter, node, function)
    elif function == "builtins.vars" and len(node.args) == 1:
        note_listing(converter, node.args[0].value, "vars")
    elif function in _AT_RUN_TIME and _is_asked(converter, node):
        _ask_at_run_time(converter, node, function)
    elif function in _VERSIONS and _mentions_root(_first(node)):
        hint = "metaop.version.torch is the version of PyTorch that metaop follows"
        converter.note(node, f"{function}()", Verdict.UNSUPPORTED, hint)
    elif isinstance(node.func, cst.Attribute) and node.func.attr.value in _ACCESSES and node.args:
        _convert_access(converter, node.func.value, node.args[0].value, node)
    elif "import" in _last_name(node.func):
        _convert_module_name(converter, _first(node))


def names_by_text(converter: Converter, node: cst.Call) -> bool:
    """Whether `convert_named` converts the name that the call has as its first argument."""
    return (converter.resolver.imported(node.func) or "") in _BY_TEXT


def convert_subscript_by_name(converter: Converter, node: cst.Subscript) -> None:
    """Converts `sys.modules["torch"]`, `globals()["torch"]` and `torch.__dict__["relu"]`."""
    element = node.slice[0].slice if len(node.slice) == 1 else None
    if isinstance(element, cst.Index):
        _convert_access(converter, node.value, element.value, node)


def convert_membership(converter: Converter, node: cst.Comparison) -> None:
    """Converts `"torch" in sys.modules` and the like."""
    target = node.comparisons[0]
    if not isinstance(target.operator, (cst.In, cst.NotIn)):
        return
    _convert_access(converter, target.comparator, node.left, None)
    owner = _owner_of_table(converter, target.comparator)
    if owner is not None and len(node.comparisons) == 1:
        # A namespace lacks the names that are imported when they are first used.
        negation = "not " if isinstance(target.operator, cst.NotIn) else ""
        text = f"{negation}hasattr({owner.text}, {converter.code(node.left)})"
        converter.note_name(target.comparator, owner.name)
        converter.replace_whole(node, f"({text})" if node.lpar else text)


def convert_annotation_text(converter: Converter, node: cst.SimpleString) -> None:
    """Converts the names in a type annotation that is a string."""
    _convert_chains(converter, node, converter.scopes.get(node) or converter.global_scope)


def note_listing(converter: Converter, node: cst.BaseExpression, listing: str) -> None:
    """Reports that a module does not list the names that it imports when they are first used."""
    reference = converter.resolver.reference(node)
    value = None if reference is None else lookup(reference.name).value
    if reference is not None and "__getattr__" in getattr(value, "__dict__", ()):
        hint = "names that metaop imports when they are first used are not in it; use getattr"
        converter.note(node, f"{listing}({reference.name})", Verdict.SEMANTIC, hint)


def _last_name(function: cst.BaseExpression) -> str:
    """The name of a function without its owner; empty if it has none."""
    if isinstance(function, cst.Attribute):
        return function.attr.value
    return function.value if isinstance(function, cst.Name) else ""


def _first(node: cst.Call) -> cst.BaseExpression | None:
    named = [arg for arg in node.args if arg.keyword and arg.keyword.value == "name"]
    plain = [arg for arg in node.args if arg.keyword is None and not arg.star]
    return (plain or named)[0].value if plain or named else None


def _pieces(node: cst.BaseExpression | None) -> Iterator[str]:
    """The strings in an expression."""
    if isinstance(node, cst.SimpleString):
        yield node.raw_value
    elif isinstance(node, cst.FormattedString):
        yield from (part.value for part in node.parts if isinstance(part, cst.FormattedStringText))
    elif isinstance(node, (cst.BinaryOperation, cst.ConcatenatedString)):
        yield from (*_pieces(node.left), *_pieces(node.right))
    elif isinstance(node, cst.Call):
        if isinstance(node.func, cst.Attribute):
            yield from _pieces(node.func.value)
        for arg in node.args:
            yield from _pieces(arg.value)


def _mentions_root(node: cst.BaseExpression | None) -> bool:
    return any(_ROOT_WORD.search(piece) for piece in _pieces(node))


def _write(converter: Converter, node: cst.SimpleString, text: str) -> None:
    """Replaces the text between the quotes."""
    start, end = converter.span(node)
    quote = len(node.quote)
    converter.source.replace(start + len(node.prefix) + quote, end - quote, text)
    converter.handled.add(node)


def _convert_getattr(converter: Converter, node: cst.Call) -> None:
    """`getattr(torch, "name")`: looks the name up; a computed name is known only at run time."""
    if len(node.args) not in (2, 3):
        return
    owner = converter.resolver.reference(node.args[0].value)
    if owner is None:
        return
    text = node.args[1].value
    if not isinstance(text, cst.SimpleString):
        name = f"getattr({owner.name}, …)"
        converter.note(node, name, Verdict.SEMANTIC, _RUN_TIME)
        return
    _convert_member(converter, node, owner, text, optional=len(node.args) == 3)


def _convert_member(
    converter: Converter,
    node: cst.Call | cst.Subscript,
    owner: Reference,
    key: cst.SimpleString,
    optional: bool,
) -> None:
    """Converts a look-up of an attribute by its name, in a namespace or by `getattr`."""
    name = f"{owner.name}.{key.raw_value}"
    target, parent = lookup(name), lookup(owner.name).path
    if target.path is None:
        if not optional:
            converter.note(node, name, Verdict.UNSUPPORTED, hint_for(name))
        return
    converter.note_name(node, name)
    if not target.path.startswith(f"{parent}."):
        hint = f"write {target.path}"
        converter.note(node, f"{name!r}", Verdict.UNSUPPORTED, hint)
    elif converter.resolver.imported(getattr(node, "func", node)) != "builtins.getattr" or (
        target.path != f"{parent}.{key.raw_value}"
    ):
        converter.replace_whole(node, owner.text + target.path[len(f"{parent}") :])


def _is_asked(converter: Converter, node: cst.Call) -> bool:
    """Whether a package that is looked up by name can be PyTorch or a related one."""
    text = _first(node)
    if isinstance(text, cst.SimpleString) or _mentions_root(text):
        return _mentions_root(text)
    # A relative or composed name is one of the program's own modules.
    own = len(node.args) > 1 or isinstance(text, (cst.BinaryOperation, cst.FormattedString))
    return converter.asks and text is not None and not own


def _ask_at_run_time(converter: Converter, node: cst.Call, function: str) -> None:
    """`find_spec(name)`: replaces the function by one that looks the name up at run time."""
    path = f'__import__("{PACKAGES}").{PACKAGES.partition(".")[2]}.{_AT_RUN_TIME[function]}'
    converter.note(node, f"{function}(…)", Verdict.CONVERTED, f"asks {PACKAGES}")
    converter.replace_whole(node.func, path)


def _convert_import(converter: Converter, node: cst.Call, function: str) -> None:
    """`importlib.import_module("torch.nn")`: replaces the name by its counterpart in metaop."""
    text = _first(node)
    if not isinstance(text, cst.SimpleString):
        if function in _AT_RUN_TIME and _is_asked(converter, node):
            _ask_at_run_time(converter, node, function)
        elif _mentions_root(text):
            converter.note(node, f"{function}(…)", Verdict.UNSUPPORTED, _RUN_TIME)
        return
    name = text.raw_value
    if name.startswith("."):
        _convert_relative(converter, node, name)
        return
    if not is_foreign(name) or name.startswith("metaop"):
        return
    converter.foreign = True
    converter.note_name(text, name)
    asks = function in _QUESTIONS or bool(converter.guards)
    path = natural_path(name) if asks else bound_path(name)
    value = lookup(name).value
    if function in _IMPORTS and isinstance(value, ModuleType):
        path = value.__name__
    names = any(arg.keyword and arg.keyword.value == "fromlist" for arg in node.args)
    returns_root = function != _IMPORTS[0] and function in _IMPORTS and len(node.args) < 4
    root = name.partition(".")[0]
    if returns_root and not names and ROOTS.get(root) != "metaop":
        hint = f"write the statement import {path}: this call returns the outermost package"
        converter.note(node, f"{function}({name!r})", Verdict.UNSUPPORTED, hint)
        return
    _write(converter, text, path)


def _convert_relative(converter: Converter, node: cst.Call, name: str) -> None:
    """`import_module(".functional", package="torch.nn")`: replaces the package."""
    others = [arg.value for arg in node.args if not arg.keyword or arg.keyword.value == "package"]
    package = next((one for one in others if not _is_text(one, name)), None)
    if not isinstance(package, cst.SimpleString) or not is_foreign(package.raw_value):
        return
    parent = lookup(package.raw_value).path
    full = f"{package.raw_value}.{name.lstrip('.')}"
    converter.note_name(node, full)
    if name.count(".") != 1 or parent is None or lookup(full).path != f"{parent}{name}":
        hint = "import the module by its full name"
        converter.note(node, f"import_module({name!r})", Verdict.UNSUPPORTED, hint)
        return
    _write(converter, package, parent)


def _convert_module_name(converter: Converter, text: cst.BaseExpression | None) -> None:
    """`optional_import("torch.nn")`: replaces the name of a module that own code imports."""
    if not isinstance(text, cst.SimpleString) or text.raw_value.startswith("metaop"):
        return
    value = lookup(text.raw_value).value if is_foreign(text.raw_value) else None
    if isinstance(value, ModuleType):
        name = value.__name__
        converter.note(text, text.raw_value, Verdict.CONVERTED, f"the string is now {name}")
        _write(converter, text, name)


def _is_text(node: cst.BaseExpression, text: str) -> bool:
    return isinstance(node, cst.SimpleString) and node.raw_value == text


def _convert_code(converter: Converter, node: cst.Call, function: str) -> None:
    """`eval("torch.relu(x)")`: converts names in the code and reports other uses of PyTorch."""
    text = _first(node)
    if not _mentions_root(text):
        return
    converter.foreign = True
    if isinstance(text, cst.SimpleString) and function == "builtins.eval":
        scope = converter.scopes.get(node.func) or converter.global_scope
        if not _ROOT_WORD.search(_convert_chains(converter, text, scope)):
            return
    name = f"{function.removeprefix('builtins.')}(…)"
    scope, roots = converter.scopes.get(node.func), roots_of_code(node)
    if roots and all(converter.resolver.meanings_of(root, scope) for root in roots):
        hint = "code in a string finds metaop under this name; what metaop lacks fails in it"
        converter.note(node, name, Verdict.SEMANTIC, hint)
        return
    hint = "code in a string: write it for metaop"
    converter.note(node, name, Verdict.UNSUPPORTED, hint)


def roots_of_code(node: cst.Call) -> set[str]:
    """The packages whose own names code in a string needs: `exec(name + " = torch.ones(1)")`.

    Empty for a text that `_convert_code` converts, and for code that imports the packages itself or
    is run elsewhere.
    """
    function, text = dotted(node.func), _first(node)
    if function not in ("eval", "exec") or (
        function == "eval" and isinstance(text, cst.SimpleString)
    ):
        return set()
    tables = [arg.value for arg in node.args[1:]]
    pieces = list(_pieces(text))
    if any(map(_IMPORT_OF_ROOT.search, pieces)) or not all(map(_is_present_namespace, tables)):
        return set()
    return {root for piece in pieces for root in _ROOT_WORD.findall(piece)}


def _is_present_namespace(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Call) and dotted(node.func) in ("globals", "locals")


def _convert_chains(converter: Converter, node: cst.SimpleString, scope: object) -> str:
    """Converts the dotted names in a string, resolved in the scope of the string."""

    def converted(match: re.Match[str]) -> str:
        found = converter.resolver.textual(match.group(), scope)  # type: ignore[arg-type]
        if found is None:
            return match.group()
        converter.note_name(node, found.name)
        return found.text

    text = _CHAIN.sub(converted, node.raw_value)
    _write(converter, node, text)
    return text


def _convert_access(
    converter: Converter,
    table: cst.BaseExpression,
    key: cst.BaseExpression,
    access: cst.Subscript | cst.Call | None,
) -> None:
    """Converts a key looked up in a namespace; `access` is None for a membership test."""
    if converter.resolver.imported(table) == "sys.modules":
        _convert_module_key(converter, key)
    elif isinstance(table, cst.Call) and not table.args:
        if converter.resolver.imported(table.func) in _NAMESPACES:
            _convert_local_key(converter, table, key)
    elif access is not None and isinstance(key, cst.SimpleString):
        owner = _owner_of_table(converter, table)
        method = access.func.attr.value if isinstance(access, cst.Call) else ""  # type: ignore
        if owner is not None and method in ("", "get", "__getitem__"):
            _convert_member(converter, access, owner, key, optional=method == "get")


def _convert_module_key(converter: Converter, key: cst.BaseExpression) -> None:
    if not isinstance(key, cst.SimpleString):
        if _mentions_root(key):
            converter.note(key, "sys.modules[…]", Verdict.UNSUPPORTED, _RUN_TIME)
    elif is_foreign(key.raw_value) and not key.raw_value.startswith("metaop"):
        value = lookup(key.raw_value).value
        is_module = isinstance(value, ModuleType)
        path = value.__name__ if is_module else natural_path(key.raw_value)
        converter.note(key, key.raw_value, Verdict.CONVERTED, f"the string is now {path}")
        _write(converter, key, path)


def _convert_local_key(converter: Converter, table: cst.Call, key: cst.BaseExpression) -> None:
    """`globals()["torch"]`: replaces the key by the name that the converted import binds."""
    if not isinstance(key, cst.SimpleString):
        return
    is_global = converter.resolver.imported(table.func) == "builtins.globals"
    scope = converter.scopes.get(table.func) or converter.global_scope
    scope = converter.global_scope if is_global else scope
    found = converter.resolver.textual(key.raw_value, scope)
    if found is not None and "." not in key.raw_value and found.text != key.raw_value:
        converter.note(key, found.name, Verdict.CONVERTED, f"the string is now {found.text}")
        _write(converter, key, found.text)


def _owner_of_table(converter: Converter, table: cst.BaseExpression) -> Reference | None:
    """The foreign module whose namespace `torch.__dict__` or `vars(torch)` is."""
    module: cst.BaseExpression | None = None
    if isinstance(table, cst.Attribute) and table.attr.value == "__dict__":
        module = table.value
    elif isinstance(table, cst.Call) and len(table.args) == 1:
        if converter.resolver.imported(table.func) == "builtins.vars":
            module = table.args[0].value
    return None if module is None else converter.resolver.reference(module)
