"""An ONNX graph as a list of steps, and how it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto

import metaop.onnx.operators  # noqa: F401 (it fills the table)
from metaop.errors import CheckpointError, UnsupportedError
from metaop.onnx.computed import Computed, Scope
from metaop.onnx.files import normalised, read_tensor
from metaop.onnx.table import Node, Row, computed_by, on_host_by
from metaop.tensor.core import Tensor
from metaop.unified_graph.tensor_type import Device

# The nesting limit: a function that calls itself would never end.
_MOST_NESTED = 64
# The node limit: functions that call others twice grow exponentially.
_MOST_NODES = 1 << 18
# Cached definitions per node, by the types of its inputs.
_MOST_BODIES = 64


class Setting(NamedTuple):
    """State shared by all graphs of a file: operator versions, functions, the folder of the file.

    `made` counts the nodes so far.
    """

    versions: Mapping[str, int]
    functions: Mapping[tuple[str, str, str], FunctionProto]
    folder: Path | None
    made: list[int]
    depth: int = 0

    def inside(self, versions: Mapping[str, int]) -> Setting:
        """The setting in the body of a function.

        Raises CheckpointError for endlessly nested functions.
        """
        if self.depth == _MOST_NESTED:
            raise CheckpointError(
                "the functions of the network call themselves", fix="export the file again"
            )
        return self._replace(versions=versions, depth=self.depth + 1)


def setting_of(model: ModelProto, versions: Mapping[str, int], folder: Path | None) -> Setting:
    """The setting of the main graph of a model."""
    functions = {
        (normalised(one.domain), one.name, getattr(one, "overload", "")): one
        for one in model.functions
    }
    return Setting(versions, functions, folder, [0])


class Step(NamedTuple):
    """One node: `run` computes `targets` from `sources`; `dead` values are not read afterwards."""

    run: Callable[[list[Any], Scope, Device | None], Any]
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    node: Node
    dead: list[str]


class Graph:
    """A graph: `inputs` and `outputs` are names, `constants` the values in the file.

    `captured` are the names that it reads from a surrounding graph.
    """

    def __init__(
        self,
        inputs: Sequence[str],
        outputs: Sequence[str],
        nodes: Iterable[NodeProto],
        initializers: Mapping[str, np.ndarray],
        setting: Setting,
        outer: frozenset[str] | None = None,
        references: Mapping[str, AttributeProto] | None = None,
    ) -> None:
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.constants = dict(initializers)
        self.steps: list[Step] = []
        # How each name is read: "Host", "Tensor" or "Any".
        self.forms: dict[str, set[str]] = {}
        self.captured: set[str] = set()
        # Values held by a module, and the graphs of attributes.
        self.members: dict[str, tuple[Any, str]] = {}
        self.subgraphs: list[Graph] = []
        # Initializers, which are parameters even with one element.
        self.weights = frozenset(initializers)
        self._setting, self._outer = setting, outer or frozenset()
        self._references = references or {}
        self._known = {*self.inputs, *self.constants}
        for node in nodes:
            self._add(node)
        for name in self.outputs:
            self._read(name, "Any", "the results")
        self._find_dead()

    def run(self, arguments: Sequence[Any], outer: Scope, device: Device | None) -> list[Any]:
        """The outputs, for values of the inputs and of the surrounding graph."""
        scope: Scope = {**outer, **self.constants, **dict(zip(self.inputs, arguments))}
        for name, (owner, key) in self.members.items():
            if name not in self.constants:
                scope[name] = getattr(owner, key)
        for step in self.steps:
            values = [scope[name] if name else None for name in step.sources]
            try:
                found = step.run(values, scope, device)
            except Exception as error:
                if not hasattr(error, "add_note"):
                    raise
                if not getattr(error, "__notes__", None):
                    error.add_note(f"in the operator {step.node.operator} {step.node.name!r}")
                raise
            results = found if isinstance(found, tuple) else (found,)
            for name, value in zip(step.targets, results):
                if name:
                    scope[name] = value
            for name in step.dead:
                scope.pop(name, None)
        return [scope[name] if name else None for name in self.outputs]

    def _find_dead(self) -> None:
        kept = {*self.outputs, *self._outer}
        for step in reversed(self.steps):
            subgraphs = getattr(step.run, "captured", ())
            for name in (*step.sources, *subgraphs, *step.targets):
                if name and name not in kept:
                    step.dead.append(name)
                    kept.add(name)

    def _read(self, name: str, form: str, reader: str) -> None:
        if not name:
            return
        if name not in self._known:
            if name not in self._outer:
                raise CheckpointError(
                    f"{reader} reads {name!r}, which no earlier node makes",
                    fix="export the file again",
                )
            self.captured.add(name)
        self.forms.setdefault(name, set()).add(form)

    def _add(self, proto: NodeProto) -> None:
        self._setting.made[0] += 1
        if self._setting.made[0] > _MOST_NODES:
            raise CheckpointError(
                f"the network has more than {_MOST_NODES} nodes", fix="export the file again"
            )
        domain = normalised(proto.domain)
        label = f"{proto.op_type} {proto.name!r}"
        attributes = self._attributes(proto)
        if domain == "" and proto.op_type == "Constant":
            self._define(proto.output[0], label)
            self.constants[proto.output[0]] = _constant(attributes)
            return
        version = self._setting.versions.get(domain)
        if version is None and domain in ("", "ai.onnx.ml"):
            raise CheckpointError(
                f"{label}: the file names no version of the operators of {domain or 'ai.onnx'!r}",
                fix="export the file again",
            )
        node = Node(proto.op_type, proto.name, version or 1, tuple(proto.output))
        run, row = self._runner(proto, domain, node, attributes)
        for position, name in enumerate(proto.input):
            self._read(name, "Any" if row is None else row.form(position), label)
        for name in getattr(run, "captured", ()):
            self._read(name, "Any", label)
        for name in proto.output:
            self._define(name, label)
        self.steps.append(Step(run, tuple(proto.input), tuple(proto.output), node, []))

    def _define(self, name: str, maker: str) -> None:
        if name and name in self._known:
            raise CheckpointError(f"{maker} makes {name!r} again", fix="export the file again")
        self._known.add(name)

    def _runner(
        self, proto: NodeProto, domain: str, node: Node, attributes: dict[str, Any]
    ) -> tuple[Any, Row | None]:
        """The function that computes a node: from the file, from a row, or defined by ONNX."""
        key = (domain, proto.op_type, getattr(proto, "overload", ""))
        if key in self._setting.functions:
            return _Body(_function(self._setting.functions[key], proto, self._setting)), None
        row = computed_by(domain, proto.op_type, node.version)
        host = on_host_by(domain, proto.op_type, node.version)
        if row is not None or host is not None:
            graphs = {name: one for name, one in attributes.items() if isinstance(one, Graph)}
            plain = {name: one for name, one in attributes.items() if name not in graphs}
            return Computed(row, host, node, plain, graphs), row or host
        expanded = _Expanded(proto, domain, node.version, self._setting)
        if not expanded.exists:
            raise UnsupportedError(
                f"the operator {proto.op_type} of {domain or 'ai.onnx'} {node.version} (node "
                f"{proto.name!r}) is not in metaop",
                fix="docs/onnx.md lists the supported operators",
            )
        return expanded, None

    def _attributes(self, proto: NodeProto) -> dict[str, Any]:
        found = {}
        for attribute in proto.attribute:
            if attribute.ref_attr_name:
                given = self._references.get(attribute.ref_attr_name)
                if given is None:
                    continue
                attribute = _renamed(given, attribute.name)
            found[attribute.name] = self._attribute(attribute)
        return found

    def _attribute(self, attribute: AttributeProto) -> Any:
        kind = attribute.type
        if kind == AttributeProto.GRAPH:
            return self._subgraph(attribute.g)
        if kind == AttributeProto.GRAPHS:
            return [self._subgraph(one) for one in attribute.graphs]
        if kind == AttributeProto.TENSOR:
            return read_tensor(attribute.t, self._setting.folder)
        if kind == AttributeProto.SPARSE_TENSOR:
            return _dense(attribute.sparse_tensor, self._setting.folder)
        if kind in (AttributeProto.TYPE_PROTO, AttributeProto.TYPE_PROTOS):
            return onnx.helper.get_attribute_value(attribute)
        try:
            value = onnx.helper.get_attribute_value(attribute)
        except (ValueError, TypeError) as error:
            raise CheckpointError(
                f"the attribute {attribute.name!r} is damaged: {error}", fix="export it again"
            ) from None
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        if kind == AttributeProto.STRINGS:
            return [one.decode("utf-8", "replace") for one in value]
        return value

    def _subgraph(self, proto: GraphProto) -> Graph:
        outer = frozenset(self._known | self._outer)
        inside = self._setting.inside(self._setting.versions)
        graph = graph_of(proto, inside, outer, self._references)
        self.subgraphs.append(graph)
        return graph


def graph_of(
    proto: GraphProto,
    setting: Setting,
    outer: frozenset[str] | None = None,
    references: Mapping[str, AttributeProto] | None = None,
) -> Graph:
    """The graph of a protocol buffer; inputs that have an initializer are constants."""
    constants = {one.name: read_tensor(one, setting.folder) for one in proto.initializer}
    for one in proto.sparse_initializer:
        constants[one.values.name] = _dense(one, setting.folder)
    inputs = [one.name for one in proto.input if one.name not in constants]
    outputs = [one.name for one in proto.output]
    return Graph(inputs, outputs, proto.node, constants, setting, outer, references)


class _Body:
    """A node that calls a function: runs its graph on the values of the node."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def __call__(self, values: list[Any], scope: Scope, device: Device | None) -> Any:
        missing = len(self._graph.inputs) - len(values)
        return tuple(self._graph.run([*values, *[None] * missing], {}, device))


class _Expanded:
    """A node that ONNX defines by simpler operators.

    Some definitions depend on the types of the inputs, so they are built when these are known.
    """

    def __init__(self, proto: NodeProto, domain: str, version: int, setting: Setting) -> None:
        self._proto, self._setting, self._version = proto, setting, version
        self._bodies: dict[tuple, _Body] = {}
        self._schema: Any = None
        with suppress(onnx.defs.SchemaError):
            self._schema = onnx.defs.get_schema(proto.op_type, version, domain)
        schema = self._schema
        self.exists = schema is not None and (
            schema.has_function or schema.has_context_dependent_function
        )

    def __call__(self, values: list[Any], scope: Scope, device: Device | None) -> Any:
        kinds = [_type_of(value) for value in values]
        key = tuple(kind.SerializeToString() for kind in kinds)
        if key not in self._bodies:
            if len(self._bodies) == _MOST_BODIES:
                del self._bodies[next(iter(self._bodies))]
            # Created per call, not per file.
            setting = self._setting._replace(made=[0])
            self._bodies[key] = _Body(_function(self._function(key), self._proto, setting))
        return self._bodies[key](values, scope, device)

    def _function(self, kinds: tuple[bytes, ...]) -> FunctionProto:
        schema = self._schema
        function = FunctionProto()
        if schema.has_function:
            versions = schema.function_opset_versions
            best = max((one for one in versions if one <= self._version), default=versions[0])
            function.ParseFromString(schema.get_function_with_opset_version(best))
        else:
            versions = schema.context_dependent_function_opset_versions
            best = max((one for one in versions if one <= self._version), default=versions[0])
            content = schema.get_context_dependent_function_with_opset_version(
                best, self._proto.SerializeToString(), list(kinds)
            )
            function.ParseFromString(content)
        if not function.opset_import:
            function.opset_import.append(onnx.helper.make_opsetid("", best))
        known = {one.name for one in function.attribute_proto} | set(function.attribute)
        for name, attribute in schema.attributes.items():
            if name not in known and attribute.default_value.name:
                function.attribute_proto.append(attribute.default_value)
        return function


def _type_of(value: Any) -> onnx.TypeProto:
    if value is None:
        return onnx.TypeProto()
    if isinstance(value, list):
        return onnx.helper.make_sequence_type_proto(_type_of(value[0] if value else np.zeros(0)))
    kind = value.dtype.numpy if isinstance(value, Tensor) else value.dtype
    number = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    return onnx.helper.make_tensor_type_proto(number, list(value.shape))


def _function(function: FunctionProto, call: NodeProto, setting: Setting) -> Graph:
    """The graph of a function, for the attributes of the node that calls it."""
    references = {one.name: one for one in function.attribute_proto}
    references.update({one.name: one for one in call.attribute})
    versions = {"": onnx.defs.onnx_opset_version(), **setting.versions}
    versions.update({normalised(one.domain): one.version for one in function.opset_import})
    inside = setting.inside(versions)
    # A body need not compute results that the node does not use.
    wanted = [*call.output, *[""] * len(function.output)]
    made = {name for node in function.node for name in node.output} | set(function.input)
    outputs = [name if want or name in made else "" for name, want in zip(function.output, wanted)]
    return Graph(function.input, outputs, function.node, {}, inside, references=references)


def _renamed(attribute: AttributeProto, name: str) -> AttributeProto:
    copy = AttributeProto()
    copy.CopyFrom(attribute)
    copy.name = name
    return copy


def _dense(proto: Any, folder: Path | None) -> np.ndarray:
    """A sparse tensor as a dense array."""
    values, indices = read_tensor(proto.values, folder), read_tensor(proto.indices, folder)
    shape = tuple(proto.dims)
    dense = np.zeros(int(np.prod(shape)), values.dtype)
    places = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), shape)
    dense[places] = values
    return dense.reshape(shape)


def _constant(attributes: dict[str, Any]) -> np.ndarray:
    """The value of a Constant, from whichever attribute holds it."""
    if len(attributes) != 1:
        raise CheckpointError("a Constant has one attribute", fix="export the file again")
    name, value = next(iter(attributes.items()))
    types: dict[str, Any] = {"value_float": np.float32, "value_floats": np.float32}
    types.update(value_int=np.int64, value_ints=np.int64)
    types.update(value_string=object, value_strings=object)
    if name in ("value", "sparse_value"):
        return value
    if name not in types:
        raise CheckpointError(f"a Constant has no attribute {name!r}", fix="export it again")
    return np.array(value, types[name])
