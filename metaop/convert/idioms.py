"""Rewrites old idioms of PyTorch in the form that newer versions and metaop accept."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from metaop.convert.catalogue import lookup, signature_of
from metaop.convert.dynamic import names_by_text
from metaop.convert.findings import Verdict
from metaop.convert.resolution import dotted
from metaop.convert.tables import OLD_KEYWORDS
from metaop.unified_graph.dtype import DType

if TYPE_CHECKING:
    from metaop.convert.converter import _Converter as Converter

_VARIABLES = ("torch.autograd.Variable", "torch.autograd.variable.Variable")
# A string that is a dotted name of PyTorch, such as "torch.cuda.FloatTensor".
_NAME_TEXT = re.compile(r"""^([bru]*)('|")(torch(?:\.\w+)+)\2$""", re.IGNORECASE)
# Commands that start the processes of a job from a shell.
_LAUNCHER = re.compile(r"\btorch\.distributed\.(launch|run)\b|\btorchrun\b")
_TYPE_TEXT = re.compile(r"^torch\.(cuda\.)?[A-Z][a-z0-9]+Tensor$")
_SCALAR_NAME = re.compile(
    r"(loss|err|cost|acc|prec|recall|nll|kld|bce|mse|elbo|perplex|ppl|penalty|entropy|correct"
    r"|^(top|prec)[15]$|^[dg]_?x$|norm$)",
    re.IGNORECASE,
)
_ITERATOR_NAME = re.compile(r"iter|loader|gen|batches", re.IGNORECASE)
_TENSOR_TYPES = {
    "FloatTensor": "float32",
    "DoubleTensor": "float64",
    "HalfTensor": "float16",
    "LongTensor": "int64",
    "IntTensor": "int32",
    "ShortTensor": "int16",
    "CharTensor": "int8",
    "ByteTensor": "uint8",
    "BoolTensor": "bool",
}


def convert_call(converter: Converter, node: cst.Call, name: str) -> bool:
    """Modernises a call of the foreign `name`, which may be empty.

    Returns whether its arguments need no further check.
    """
    if name in _VARIABLES:
        return _convert_variable(converter, node)
    if name.rpartition(".")[2] in _TENSOR_TYPES and name.startswith("torch."):
        return _convert_typed_literal(converter, node, name)
    if name:
        _convert_reduction(converter, node, name)
        _convert_keywords(converter, node, name)
    else:
        _convert_next(converter, node)
    return False


def _keyword(node: cst.Call, *names: str) -> cst.Arg | None:
    return next((arg for arg in node.args if arg.keyword and arg.keyword.value in names), None)


def _number(node: cst.BaseExpression) -> str:
    return node.value if isinstance(node, cst.Integer) else ""


def _literal(node: cst.BaseExpression) -> bool | None:
    return {"True": True, "False": False}.get(dotted(node) or "")


def _convert_variable(converter: Converter, node: cst.Call) -> bool:
    """`Variable(x)` → `x.detach()`, and `requires_grad_()` if its arguments request it."""
    values = [arg for arg in node.args if arg.keyword is None and not arg.star]
    wrapped = values[0] if values else _keyword(node, "data")
    known = {"data", "requires_grad", "volatile"}
    odd = any(arg.star or (arg.keyword and arg.keyword.value not in known) for arg in node.args)
    if wrapped is None or odd or len(values) > 2:
        return False
    start, end = converter.span(node)
    inner_start, inner_end = converter.span(wrapped.value)
    source = converter.source
    before, after = source.skeleton(start, inner_start), source.skeleton(inner_end, end)
    suffix, hint, verdict = _variable_suffix(converter, node, values)
    if before or after or not _is_atom(wrapped.value):
        before, after = f"({before}", f"{after})"
    source.replace(start, inner_start, before)
    source.replace(inner_end, end, after + suffix)
    converter.skip(node.func)
    converter.note(node.func, "torch.autograd.Variable", verdict, hint)
    for arg in node.args:
        if arg is not wrapped:
            converter.skip(arg.value)
    return True


def _variable_suffix(
    converter: Converter, node: cst.Call, values: list[cst.Arg]
) -> tuple[str, str, Verdict]:
    """The calls on the tensor instead, the reason, and the verdict."""
    volatile = _keyword(node, "volatile")
    if volatile is not None and _literal(volatile.value) is not False:
        hint = "volatile is gone: put evaluation under metaop.no_grad()"
        return ".detach()", hint, Verdict.SEMANTIC
    wants = _keyword(node, "requires_grad") or (values[1] if len(values) == 2 else None)
    literal = False if wants is None else _literal(wants.value)
    if literal is None and wants is not None:
        flag = converter.code(wants.value).replace("\n", " ")
        hint = "a tensor that may require a gradient"
        return f".detach().requires_grad_({flag})", hint, Verdict.CONVERTED
    if literal:
        return ".detach().requires_grad_()", "a tensor that requires a gradient", Verdict.CONVERTED
    return ".detach()", "a tensor detached from the graph", Verdict.CONVERTED


def _is_atom(node: cst.BaseExpression) -> bool:
    atoms = (cst.Name, cst.Attribute, cst.Subscript, cst.Call)
    return isinstance(node, atoms) or bool(getattr(node, "lpar", ()))


def _convert_typed_literal(converter: Converter, node: cst.Call, name: str) -> bool:
    """`torch.FloatTensor([1, 2])` → `metaop.tensor([1, 2], dtype=metaop.float32)`.

    Only a literal list is converted, because any other argument may be a size.
    """
    module, _, kind = name.rpartition(".")
    written = converter.code(node.func)
    if module != "torch" or len(node.args) != 1 or "." not in written:
        return True
    value = node.args[0].value
    if not isinstance(value, (cst.List, cst.ListComp)):
        return True
    reference = converter.resolver.reference(node.func)
    root = reference.text.removesuffix(f".{kind}") if reference else "metaop"
    converter.source.replace(*converter.span(node.func), f"{root}.tensor")
    end = converter.span(value)[1]
    converter.source.replace(end, end, f", dtype={root}.{_TENSOR_TYPES[kind]}")
    converter.skip(node.func)
    converter.note(node.func, name, Verdict.CONVERTED, f"tensor(…, dtype={_TENSOR_TYPES[kind]})")
    return True


def _convert_reduction(converter: Converter, node: cst.Call, name: str) -> None:
    """`size_average=False` → `reduction="sum"`."""
    path = lookup(name).path
    signature = signature_of(path) if path else None
    if signature is None or "reduction" not in signature.parameters:
        return
    average, reduce = _keyword(node, "size_average"), _keyword(node, "reduce")
    old = [arg for arg in (average, reduce) if arg is not None]
    if not old or _keyword(node, "reduction"):
        return
    text = _reduction_text(converter, average, reduce)
    first, last = min(old, key=node.args.index), max(old, key=node.args.index)
    start, end = converter.span(first)[0], converter.span(last)[1]
    adjacent = node.args.index(last) - node.args.index(first) == len(old) - 1
    if text is None or not adjacent or not converter.source.plain_between(start, end):
        return
    converter.source.replace(start, converter.span(last.value)[1], f"reduction={text}")
    for arg in old:
        converter.skip(arg.value)
        converter.handled.add(arg)
    converter.note(first, f"{name}(size_average=)", Verdict.CONVERTED, f"reduction={text}")


def _convert_keywords(converter: Converter, node: cst.Call, name: str) -> None:
    """Renames NumPy's keywords (`axis=` → `dim=`, `keepdims=` → `keepdim=`) and old ones."""
    path = lookup(name).path
    signature = signature_of(path) if path else None
    gone = OLD_KEYWORDS.get(name, {})
    for old, new in (("axis", "dim"), ("keepdims", "keepdim"), *gone.items()):
        arg = _keyword(node, old)
        if arg is None or signature is None or arg.keyword is None:
            continue
        parameters = signature.parameters
        if old in gone or (old not in parameters and new in parameters):
            converter.source.replace(*converter.span(arg.keyword), new)
            converter.renamed_keywords[arg] = new
            converter.note(arg, f"{name}({old}=)", Verdict.CONVERTED, f"{new}=")


def _reduction_text(
    converter: Converter, average: cst.Arg | None, reduce: cst.Arg | None
) -> str | None:
    reduces = True if reduce is None else _literal(reduce.value)
    if reduces is None:
        return None
    if not reduces:
        return '"none"'
    if average is None or _literal(average.value):
        return '"mean"'
    if _literal(average.value) is False:
        return '"sum"'
    flag = average.value
    return f'"mean" if {converter.code(flag)} else "sum"' if isinstance(flag, cst.Name) else None


def _convert_next(converter: Converter, node: cst.Call) -> None:
    """`iterator.next()` → `next(iterator)`."""
    function = node.func
    if node.args or not isinstance(function, cst.Attribute) or function.attr.value != "next":
        return
    receiver = dotted(function.value) or dotted(getattr(function.value, "func", None)) or ""
    if "next" in converter.defined or not _ITERATOR_NAME.search(receiver.rpartition(".")[2]):
        return
    inner_start, inner_end = converter.span(function.value)
    start, end = converter.span(node)
    if converter.source.plain_between(inner_end, end):
        converter.source.replace(start, inner_start, "next(")
        converter.source.replace(inner_end, end, ")")
        converter.note(node, "iterator.next", Verdict.CONVERTED, "next(iterator)")


def convert_subscript(converter: Converter, node: cst.Subscript) -> None:
    """`loss.data[0]` → `loss.item()`, for names that suggest a scalar."""
    value = node.value
    index = node.slice[0].slice if len(node.slice) == 1 else None
    if not isinstance(index, cst.Index) or _number(index.value) != "0":
        return
    if not isinstance(value, cst.Attribute) or value.attr.value != "data":
        return
    last = (dotted(value.value) or "").rpartition(".")[2]
    if isinstance(value.value, cst.Call):
        last = (dotted(value.value.func) or "").rpartition(".")[2]
    if not _SCALAR_NAME.search(last):
        hint = "the first row; write .item() when the tensor is a single number"
        converter.note(node, "Tensor.data[0]", Verdict.SEMANTIC, hint)
        return
    start, end = converter.span(value.value)[1], converter.span(node)[1]
    if converter.source.plain_between(start, end):
        converter.source.replace(start, end, ".item()")
        converter.note(node, "Tensor.data[0]", Verdict.CONVERTED, "Tensor.item()")


def convert_string(converter: Converter, node: cst.SimpleString) -> None:
    """Converts a string that names a type, such as "torch.cuda.FloatTensor"."""
    match = _NAME_TEXT.match(node.value)
    if _LAUNCHER.search(node.value):
        hint = "a command that starts processes: start them with mpirun"
        converter.note(node, "torch.distributed.run", Verdict.SEMANTIC, hint)
    if match is None:
        return
    name = match.group(3)
    target = lookup(name)
    if not isinstance(target.value, (type, DType)) and not _TYPE_TEXT.match(name):
        if target.path is not None:
            hint = "a string: write metaop's name if the program looks it up"
            converter.note(node, name, Verdict.SEMANTIC, hint)
        return
    _convert_name_text(converter, node, match)


def convert_decorator(converter: Converter, node: cst.Decorator) -> None:
    """`@patch("torch.nn.Linear.forward")`: a decorator looks up what its text names."""
    call = node.decorator
    if not isinstance(call, cst.Call) or names_by_text(converter, call):
        return
    for argument in call.args:
        text = argument.value
        if not isinstance(text, cst.SimpleString) or text in converter.handled:
            continue
        match = _NAME_TEXT.match(text.value)
        if match is not None:
            _convert_name_text(converter, text, match)


def _convert_name_text(converter: Converter, node: cst.SimpleString, match: re.Match) -> None:
    prefix, quote, name = match.groups()
    path = lookup(name).path or "metaop" + name[len("torch") :]
    converter.source.replace(*converter.span(node), f"{prefix}{quote}{path}{quote}")
    converter.note(node, name, Verdict.CONVERTED, f"the string is now {path}")
    converter.handled.add(node)
