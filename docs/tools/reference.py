"""The pages of the reference: what the public modules offer, from their docstrings."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

# Public modules in the order of the contents; `metaop` and `metaop.Tensor` come before them.
MODULES = {
    "Networks": [
        "nn",
        "nn.functional",
        "nn.init",
        "nn.utils",
        "optim",
        "optim.lr_scheduler",
        "amp",
    ],
    "Data": ["data", "vision", "vision.transforms", "vision.ops", "vision.datasets"],
    "Gradients and functions": ["autograd", "func", "control_flow", "capture"],
    "Mathematics": ["linalg", "fft", "special", "distributions", "masked", "sparse", "random"],
    "Graphs": ["graph", "graph.nn"],
    "Files": ["serialization", "export", "onnx", "convert", "hub"],
    "Many processors": ["distributed", "cuda"],
    "Below and beside": ["kernels", "inspect", "tuning", "environment", "errors", "testing"],
}


def public_names(module: ModuleType) -> list[str]:
    """The functions and classes that a module offers, its own and those that it passes on."""
    listed = getattr(module, "__all__", None)
    names = listed or [name for name in vars(module) if not name.startswith("_")]
    home = "metaop" if listed else module.__name__
    return [name for name in names if _is_described(getattr(module, name), home)]


def _is_described(value: Any, home: str) -> bool:
    kind = inspect.isclass(value) or inspect.isroutine(value)
    return kind and (getattr(value, "__module__", None) or "").startswith(home)


def write(folder: Path) -> None:
    """Writes all pages into `folder`; those that have not changed are left alone."""
    folder.mkdir(exist_ok=True)
    pages = {"metaop": _root_page(), "metaop.Tensor": _tensor_page()}
    known = "Examples know `metaop`, `nn` (`metaop.nn`) and `F` (`metaop.nn.functional`).\n"
    contents = ["# Reference\n", known, _contents("Tensors", list(pages))]
    for title, names in MODULES.items():
        names = [f"metaop.{name}" for name in names]
        pages |= {name: _module_page(importlib.import_module(name)) for name in names}
        contents.append(_contents(title, names))
    pages["index"] = "\n".join(contents)
    for name, text in pages.items():
        path = folder / f"{name}.md"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for path in folder.glob("*.md"):
        if path.stem not in pages:
            path.unlink()


def _contents(title: str, names: list[str]) -> str:
    rows = "\n".join(f"| [`{name}`]({name}.md) | {_first_sentence(name)} |" for name in names)
    tree = "\n".join(names)
    return f"## {title}\n\n| | |\n|---|---|\n{rows}\n\n```{{toctree}}\n:hidden:\n\n{tree}\n```\n"


def _first_sentence(name: str) -> str:
    if name == "metaop.Tensor":
        return "The methods of a tensor."
    if name == "metaop":
        return "The functions on tensors, by what they do."
    text = inspect.getdoc(importlib.import_module(name)) or ""
    sentence = re.split(r"(?<=\.)\s|\n\n", text)[0].replace("\n", " ")
    return sentence.replace("|", "\\|").replace("`docs/", "`")


def _directives(*lines: str) -> str:
    return "```{eval-rst}\n" + "\n".join(lines) + "\n```\n"


def _module_page(module: ModuleType) -> str:
    name = module.__name__
    described = [n for n in public_names(module) if inspect.getdoc(getattr(module, n))]
    members = ", ".join(sorted(set(described)))
    return f"# `{name}`\n\n" + _directives(f".. automodule:: {name}", f"   :members: {members}")


def _root_page() -> str:
    """`metaop` has several hundred functions: a section for each module that defines some."""
    import metaop

    sections: dict[str, list[str]] = {}
    for name in public_names(metaop):
        value = getattr(metaop, name)
        if inspect.isroutine(value) and inspect.getdoc(value):
            sections.setdefault(_defining_module(name, value), []).append(name)
    parts = ["# `metaop`\n"]
    # Functions on tensors come before those that other modules pass on.
    order = sorted(sections, key=lambda module: (not module.startswith("metaop.tensor."), module))
    for module, names in ((module, sections[module]) for module in order):
        parts.append(f"## {_first_sentence(module).rstrip('.')}\n")
        parts.append(_directives(*(f".. autofunction:: metaop.{name}" for name in sorted(names))))
    return "\n".join(parts)


def _defining_module(name: str, value: Any) -> str:
    """Where a function stands in the source; those made of a table stand where they are listed."""
    for module in list(sys.modules):
        if module.startswith("metaop.tensor.") and name in vars(sys.modules[module]):
            if getattr(sys.modules[module], "__doc__", None):
                if vars(sys.modules[module])[name] is value and value.__module__ == module:
                    return module
    return value.__module__


def _tensor_page() -> str:
    import metaop

    lines = []
    for name in dir(metaop.Tensor):
        value = getattr(metaop.Tensor, name)
        if not name.startswith("_") and inspect.getdoc(value):
            kind = "automethod" if inspect.isroutine(value) else "autoattribute"
            lines.append(f".. {kind}:: metaop.Tensor.{name}")
    return "# `metaop.Tensor`\n\n" + _directives(*lines)


def as_restructured_text(
    app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    """Docstrings are written like Markdown: `code`, lists, and blocks of code behind a colon."""
    result: list[str] = []
    code = -1  # the indentation of the text around a block of code, or -1 outside of one
    session = False  # an example of a session, which ends with a blank line
    for line in lines:
        before = result[-1] if result else ""
        session = bool(line.strip()) and (session or line.lstrip().startswith(">>> "))
        if session and code < 0:
            result.append(line)
            continue
        if code >= 0 and line.strip() and _indentation(line) <= code:
            code = -1
            result.append("")
        elif code < 0 and before.endswith(":") and _indentation(line) > _indentation(before):
            code = _indentation(before)
            result[-1:] = [before + ":", ""]
        elif code < 0 and line.strip() and before.strip():
            item, continues = line.lstrip().startswith("- "), before.lstrip().startswith("- ")
            if item or (_indentation(line) != _indentation(before) and not continues):
                result.append("")
        result.append(line if code >= 0 else _escaped(line))
    lines[:] = _joined(result)


def _escaped(line: str) -> str:
    return re.sub(r"(?<![`\\])([*|_])(?=[^`]*(?:`[^`]*`[^`]*)*$)", r"\\\1", line)


def _joined(lines: list[str]) -> list[str]:
    """Code in single backticks becomes code in double ones, over the ends of lines too."""
    text = re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``", "\n".join(lines))
    return text.split("\n")


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())
