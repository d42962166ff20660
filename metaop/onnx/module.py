"""A network loaded from an ONNX file, as a module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from onnx import ModelProto, ValueInfoProto

from metaop import nn
from metaop.errors import ArgumentTypeError, CheckpointError, MetaopError, ShapeError
from metaop.onnx.files import check_versions, read_model
from metaop.onnx.graph import Graph, graph_of, setting_of
from metaop.onnx.values import given, has_tensor_type, numpy_type, result, tensor_type, to_tensor
from metaop.tensor.core import Tensor

# Exceptions that reading a damaged file may raise.
_DAMAGE = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError)
# Integer tensors of up to this many elements stay on the host, where sizes and axes are computed.
_MOST_ON_HOST = 64


class Port:
    """An input or output: its name, element type and sizes (a name where any size is allowed)."""

    def __init__(self, proto: ValueInfoProto) -> None:
        self.name = proto.name
        kind = proto.type
        self.form = kind.WhichOneof("value") or "tensor_type"
        tensor = kind.tensor_type
        self.element_type = tensor.elem_type if self.form == "tensor_type" else 0
        self.shape: tuple[int | str, ...] | None = None
        if self.form == "tensor_type" and tensor.HasField("shape"):
            # Some exporters write -1 for an unknown size.
            self.shape = tuple(
                one.dim_value
                if one.HasField("dim_value") and one.dim_value >= 0
                else one.dim_param or "?"
                for one in tensor.shape.dim
            )

    def __repr__(self) -> str:
        if self.form != "tensor_type":
            return f"{self.name}: {self.form.removesuffix('_type')}"
        kind = numpy_type(self.element_type).name if self.element_type else "any"
        kind = "string" if kind == "object" else kind
        sizes = "…" if self.shape is None else ", ".join(map(str, self.shape))
        return f"{self.name}: {kind}[{sizes}]"

    def check(self, value: Any) -> None:
        """Raises for a tensor of another dtype or of sizes that the file does not allow."""
        if not isinstance(value, Tensor) or self.form != "tensor_type":
            return
        wanted = tensor_type(self.element_type) if self.element_type else None
        if wanted is not None and value.dtype is not wanted:
            raise ArgumentTypeError(
                f"input {self.name!r} has type {value.dtype.name}, the network takes {wanted.name}",
                fix=f"convert it with .to(metaop.{wanted.name})",
            )
        if self.shape is None:
            return
        sizes = tuple(value.shape)
        fits = len(sizes) == len(self.shape) and all(
            isinstance(want, str) or want == have for want, have in zip(self.shape, sizes)
        )
        if not fits:
            raise ShapeError(
                f"input {self.name!r} has shape {list(sizes)}, the network takes "
                f"[{', '.join(map(str, self.shape))}]"
            )


class Network(nn.Module):
    """A network of ONNX operators, created by `metaop.onnx.load`.

    Call it with its inputs in the order of the file, or by name. It returns the output, or a tuple
    of several. Float values in the file are parameters under their names there, larger integer
    tensors are buffers; values from which shapes are computed stay on the host.
    """

    def __init__(self, model: ModelProto, folder: Path | None = None) -> None:
        super().__init__()
        versions = check_versions(model)
        graph = graph_of(model.graph, setting_of(model, versions, folder))
        ports = {one.name: Port(one) for one in model.graph.input}
        self.inputs = tuple(ports[name] for name in graph.inputs)
        self.outputs = tuple(Port(one) for one in model.graph.output)
        self.name = model.graph.name
        self.opset_version = versions.get("", 0)
        self._graph = graph
        moments = set(_moments(graph))
        for one in _all_graphs(graph):
            self._hold(one, moments)

    def _hold(self, graph: Graph, moments: set[str]) -> None:
        """Makes the values of a graph members of this module."""
        for name, array in list(graph.constants.items()):
            forms = graph.forms.get(name, set())
            if not forms or forms == {"Host"} or not has_tensor_type(array):
                continue
            is_float = array.dtype.kind == "f" or array.dtype.name == "bfloat16"
            is_weight = is_float and (array.size > 1 or name in graph.weights)
            if not is_weight and array.size <= _MOST_ON_HOST:
                continue
            tensor = to_tensor(array.copy())
            owner, key = _place(self, name)
            if is_float and name not in moments:
                setattr(owner, key, nn.Parameter(tensor))
            else:
                owner.register_buffer(key, tensor)
            graph.members[name] = (owner, key)
            if "Host" not in forms:
                del graph.constants[name]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The outputs for inputs in the order of the file, or by name."""
        names = [port.name for port in self.inputs]
        if len(args) > len(names) or not set(kwargs) <= set(names[len(args) :]):
            raise ArgumentTypeError(
                f"the network takes {', '.join(names) or 'no inputs'}; got {len(args)} inputs and "
                f"{sorted(kwargs)}",
                fix="see the inputs in repr(network)",
            )
        by_name = {**dict(zip(names, args)), **kwargs}
        values = []
        for port in self.inputs:
            if port.name not in by_name and port.form != "optional_type":
                raise ArgumentTypeError(f"the input {port.name!r} is missing")
            value = given(by_name.get(port.name), port.name, port.element_type)
            port.check(value)
            values.append(value)
        device = next((one.device for one in values if isinstance(one, Tensor)), None)
        if device is None:
            device = next((one.device for one in self.parameters()), None)
        found = [result(one, device) for one in self._graph.run(values, {}, device)]
        return found[0] if len(found) == 1 else tuple(found)

    def extra_repr(self) -> str:
        """Inputs, outputs, and how often each operator occurs."""
        counts = Counter(
            step.node.operator for graph in _all_graphs(self._graph) for step in graph.steps
        )
        lines = [
            f"name={self.name!r}, opset_version={self.opset_version}",
            "inputs: " + ", ".join(map(repr, self.inputs)),
            "outputs: " + ", ".join(map(repr, self.outputs)),
            "operators: " + ", ".join(f"{n} {name}" for name, n in counts.most_common()),
        ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        inner = self.extra_repr().replace("\n", "\n  ")
        return f"{type(self).__name__}(\n  {inner}\n)"


def load(f: Any) -> Network:
    """Loads the network in an ONNX file as a module.

    `f` is a path, bytes, a file open for reading, or a `ModelProto`. Supported are operator sets
    from 9 to the newest that the onnx package supports.

    Raises CheckpointError for files that are damaged or not ONNX, and for external data outside of
    the folder of the file; UnsupportedError for operators that metaop lacks, with their names.

    Example: `net = metaop.onnx.load("resnet.onnx"); net(image)`
    """
    model, folder = read_model(f)
    try:
        return Network(model, folder)
    except _DAMAGE as error:
        if isinstance(error, MetaopError):
            raise
        raise CheckpointError(
            f"the network is damaged: {error}", fix="download or export the file again"
        ) from error


def _all_graphs(graph: Graph) -> Iterator[Graph]:
    yield graph
    for one in graph.subgraphs:
        yield from _all_graphs(one)


def _moments(graph: Graph) -> Iterator[str]:
    """The running statistics of batch normalisations, which are not trained."""
    for one in _all_graphs(graph):
        for step in one.steps:
            if step.node.operator == "BatchNormalization":
                yield from step.sources[3:5]


def _place(module: nn.Module, name: str) -> tuple[nn.Module, str]:
    """The submodule and attribute for a name: "layer.0.weight" is in module 0 of module layer."""
    *path, key = name.split(".")
    if all(path) and key:
        owner = module
        for part in path:
            if part not in owner._modules:
                if hasattr(owner, part):
                    break
                owner.add_module(part, nn.Module())
            owner = owner._modules[part]
        else:
            if not hasattr(owner, key):
                return owner, key
    key = name.replace(".", "_") or "value"
    while hasattr(module, key):
        key += "_"
    return module, key
