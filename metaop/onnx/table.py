"""The operator table: which function computes which ONNX operator, from which version on.

A function takes the inputs of a node as positional parameters, None for absent ones, and the
attributes as keywords. A parameter that is not keyword-only may come from either, so one function
serves versions with an attribute and versions with an input. The annotation of a parameter says
what it takes: `Tensor` a tensor, `Host` an array on the host, `Any` either. A returned tuple is
several results, a list a sequence.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from metaop.errors import ArgumentError

ML = "ai.onnx.ml"
PREVIEW = "ai.onnx.preview"
TRAINING = "ai.onnx.preview.training"
MICROSOFT = "com.microsoft"


class Parameter(NamedTuple):
    """An input that a function takes, and its form."""

    name: str
    form: str  # "Tensor", "Host" or "Any"


class Row(NamedTuple):
    """How an operator is computed from version `since` of its domain on.

    `inputs` are the parameters for inputs, `rest` the one for all further ones, if any.
    `attributes` are the allowed attribute names, None if any are allowed.
    """

    since: int
    function: Callable[..., Any]
    inputs: tuple[Parameter, ...]
    rest: Parameter | None
    attributes: frozenset[str] | None
    takes_node: bool

    def form(self, position: int) -> str:
        """The form in which the function takes an input."""
        if position < len(self.inputs):
            return self.inputs[position].form
        return self.rest.form if self.rest is not None else "Any"


class Node(NamedTuple):
    """The node that a function computes, passed as keyword `node`.

    `outputs` are the names of the results, empty for unused ones.
    """

    operator: str
    name: str
    version: int
    outputs: tuple[str, ...]

    def wants(self, position: int) -> bool:
        """Whether a result is used."""
        return position < len(self.outputs) and self.outputs[position] != ""


Table = dict[tuple[str, str], list[Row]]
_COMPUTED: Table = {}
_ON_HOST: Table = {}


def _row(function: Callable[..., Any], since: int) -> Row:
    inputs, attributes = [], set()
    rest: Parameter | None = None
    any_attribute = False
    for one in inspect.signature(function).parameters.values():
        parameter = Parameter(one.name, _form(one.annotation))
        if one.kind is one.VAR_POSITIONAL:
            rest = parameter
        elif one.kind is one.VAR_KEYWORD:
            any_attribute = True
        else:
            if one.kind is not one.KEYWORD_ONLY:
                inputs.append(parameter)
            attributes.add(one.name)
    takes_node = "node" in attributes
    named = None if any_attribute else frozenset(attributes - {"node"})
    return Row(since, function, tuple(inputs), rest, named, takes_node)


def _form(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    for form in ("Tensor", "Host"):
        if text.startswith(form):
            return form
    return "Any"


def _enter(table: Table, names: str, domain: str, row: Row) -> None:
    for name in names.split():
        rows = table.setdefault((domain, name), [])
        rows.append(row)
        rows.sort(key=lambda one: -one.since)


def operator(names: str, since: int = 1, domain: str = "") -> Callable[[Callable], Callable]:
    """Registers a function for operators, from a version of their domain on.

    Example: `@operator("Relu")`, or `operator("Relu")(relu)`.
    """

    def enter(function: Callable) -> Callable:
        _enter(_COMPUTED, names, domain, _row(function, since))
        return function

    return enter


def on_host(names: str, since: int = 1, domain: str = "") -> Callable[[Callable], Callable]:
    """Registers a function on arrays, for nodes whose inputs are all on the host."""

    def enter(function: Callable) -> Callable:
        _enter(_ON_HOST, names, domain, _row(function, since))
        return function

    return enter


def rows(function: Callable[..., Callable], table: dict[str, Callable]) -> None:
    """Registers many functions: `rows(operator, {"Relu": relu, …})`."""
    for names, one in table.items():
        function(names)(one)


def unary(function: Callable[[Any], Any]) -> Callable[..., Any]:
    """A function of one tensor as a row, without its other parameters."""

    def row(x: Tensor) -> Any:  # type: ignore[name-defined]  # noqa: F821
        return function(x)

    return row


def binary(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """A function of two tensors as a row."""

    def row(a: Tensor, b: Tensor) -> Any:  # type: ignore[name-defined]  # noqa: F821
        return function(a, b)

    return row


def _found(table: Table, domain: str, name: str, version: int) -> Row | None:
    for row in table.get((domain, name), ()):
        if row.since <= version:
            return row
    return None


def computed_by(domain: str, name: str, version: int) -> Row | None:
    """The row of an operator in a version, None if metaop does not have it."""
    return _found(_COMPUTED, domain, name, version)


def on_host_by(domain: str, name: str, version: int) -> Row | None:
    """The row for inputs on the host, None if there is none."""
    return _found(_ON_HOST, domain, name, version)


def operators(domain: str = "") -> list[str]:
    """The operators of a domain that metaop implements itself, in order."""
    return sorted({name for at, name in (*_COMPUTED, *_ON_HOST) if at == domain})


def check_attributes(row: Row, names: Sequence[str], operator: str) -> None:
    """Raises ArgumentError for attributes that the function of an operator does not know."""
    unknown = set() if row.attributes is None else set(names) - row.attributes
    if unknown:
        raise ArgumentError(
            f"{operator} has the attributes {', '.join(sorted(unknown))}, which metaop does not "
            "know",
            fix="convert it with onnx.version_converter to operator set 9 or newer",
        )
