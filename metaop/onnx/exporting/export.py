"""`export`: writes the recording of a network as an ONNX file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import onnx
from onnx import ModelProto, helper

import metaop
from metaop.errors import ArgumentError, ArgumentTypeError, UnsupportedError
from metaop.nn.module import Module
from metaop.onnx.exporting.expansion import expanded
from metaop.onnx.exporting.options import exporting
from metaop.onnx.exporting.recordings import Recording, Together, Typed, recorded, tensors_in
from metaop.onnx.exporting.rows import ROWS, Operands
from metaop.onnx.exporting.sizes import Size, Sizes
from metaop.onnx.exporting.writer import Writer
from metaop.onnx.values import element_type
from metaop.unified_graph.recording import Call

OLDEST, DEFAULT = 17, 18
# The size limit of a protocol buffer.
_MOST_BYTES = 1 << 31
_EXTERNAL_BYTES = 1024
# A constant with at most this many elements may hold sizes: `metaop.tensor(x.shape)`.
_MOST_SIZES = 64

Axes = Mapping[str, "Mapping[int, str] | Sequence[int]"]


def export(
    model: Callable[..., Any],
    args: Any = (),
    f: Any = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    export_params: bool = True,
    verbose: bool = False,
    training: Any = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset_version: int | None = None,
    dynamic_axes: Axes | None = None,
    keep_initializers_as_inputs: bool = False,
    external_data: bool = False,
    **other: Any,
) -> ONNXProgram:
    """Writes a network to an ONNX file, and returns the program.

    `args` are example inputs, a tensor or a tuple; their tensors become the inputs of the file.
    `dynamic_axes` names the sizes that may vary, such as `{"input": {0: "batch"}}`; the network is
    recorded for several sizes, and nothing is computed. `f` is a path, a file open for writing, or
    None. Modules are exported in evaluation mode. The file is checked. With `external_data` the
    parameters go to a file `NAME.data` beside it; `verbose` prints the graph. `other` are PyTorch's
    options; those that would change the file are refused. `dynamo` and `do_constant_folding` have
    no effect: the file is the same.

    Raises UnsupportedError if the network reads a value, or uses operators that ONNX lacks.

    Example: `export(net, x, "net.onnx", input_names=["x"], dynamic_axes={"x": {0: "n"}})`
    """
    _refuse_options(export_params, training, keep_initializers_as_inputs, other)
    version = _version(opset_version)
    arguments, keywords = _arguments(args, kwargs)
    given = list(tensors_in([arguments, keywords]))
    names = _names(input_names, len(given), "input")
    axes = _axes(dynamic_axes or {}, names, output_names or ())
    with exporting(), _evaluating(model):
        recordings, sizes = recorded(model, arguments, keywords, names, axes)
    outputs = _names(output_names, len(recordings[0].outputs), "output")
    label = type(model).__name__ if isinstance(model, Module) else getattr(model, "__name__", "f")
    graph = _Graph(model, recordings, sizes, names, outputs, axes, version)
    program = ONNXProgram(graph.model(label))
    if verbose:
        print(program)
    if f is not None:
        program.save(f, external_data=external_data)
    return program


def _arguments(
    args: Any, kwargs: Mapping[str, Any] | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments; a dict in last position holds keyword arguments."""
    arguments = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    if kwargs is None and arguments and isinstance(arguments[-1], Mapping):
        return arguments[:-1], dict(arguments[-1])
    return arguments, dict(kwargs or {})


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """Sets a module and its submodules to evaluation mode, and restores their modes."""
    parts = list(model.modules()) if isinstance(model, Module) else []
    modes = [part.training for part in parts]
    try:
        for part in parts:
            part.training = False
        yield
    finally:
        for part, mode in zip(parts, modes):
            part.training = mode


def _refuse_options(
    export_params: bool, training: Any, initializers: bool, other: Mapping[str, Any]
) -> None:
    if not export_params:
        raise UnsupportedError("a file without its parameters cannot be written")
    if training not in (None, 0) and getattr(training, "name", "EVAL") != "EVAL":
        raise UnsupportedError(
            "networks are exported only in evaluation mode", fix="omit `training`"
        )
    if initializers:
        raise UnsupportedError("parameters cannot also be inputs of the file")
    harmless = {"operator_export_type": (None, 0), "custom_opsets": (None, {}),
                "export_modules_as_functions": (None, False), "autograd_inlining": (None, True),
                "report": (None, False), "verify": (None, False), "profile": (None, False),
                "dump_exported_program": (None, False), "optimize": (None, True, False),
                "dynamo": (None, True, False), "do_constant_folding": (None, True, False),
                "fallback": (None, False), "artifacts_dir": (None, "."),
                "dynamic_shapes": (None,), "custom_translation_table": (None,)}  # fmt: skip
    for name, value in other.items():
        if name not in harmless:
            raise ArgumentTypeError(f"export() got an unexpected keyword argument {name!r}")
        if value not in harmless[name]:
            fix = "use dynamic_axes" if name == "dynamic_shapes" else "omit it"
            raise UnsupportedError(f"export does not support {name}={value!r}", fix=fix)


def _version(asked: int | None) -> int:
    newest = onnx.defs.onnx_opset_version()
    version = DEFAULT if asked is None else asked
    if not OLDEST <= version <= newest:
        raise UnsupportedError(
            f"opset_version is {version}; metaop writes {OLDEST} to {newest}",
            fix="omit it",
        )
    return version


def _names(wanted: Sequence[str] | None, count: int, what: str) -> list[str]:
    found = list(wanted or ())
    if len(found) > count or len(set(found)) < len(found):
        raise ArgumentError(f"{len(found)} {what}_names for {count} {what}s: {found}")
    default = [f"{what}_{k}" if count > 1 else what for k in range(count)]
    return [*found, *default[len(found) :]]


def _axes(
    dynamic: Axes, inputs: Sequence[str], outputs: Sequence[str]
) -> dict[str, dict[int, str]]:
    """The names of dynamic sizes by input and axis; those of outputs follow from the inputs'."""
    found: dict[str, dict[int, str]] = {}
    for name, axes in dynamic.items():
        if name not in inputs:
            if name not in outputs and not name.startswith("output"):
                raise ArgumentError(
                    f"dynamic_axes names {name!r}, which is not an input or output",
                    fix="use names from input_names and output_names",
                )
            continue
        pairs = axes if isinstance(axes, Mapping) else {k: f"{name}_dim_{k}" for k in axes}
        found[name] = dict(pairs)
    return found


class ONNXProgram:
    """An exported network: `model_proto` is the content of the file."""

    def __init__(self, model_proto: ModelProto) -> None:
        self.model_proto = model_proto

    def save(self, destination: Any, *, external_data: bool = False) -> None:
        """Writes the file to a path, or to a file open for writing.

        With `external_data`, or beyond 2 GB, the parameters go to a file `NAME.data` beside it.
        """
        if hasattr(destination, "write"):
            destination.write(self.model_proto.SerializeToString())
            return
        path = os.fspath(destination)
        if not external_data and self.model_proto.ByteSize() < _MOST_BYTES:
            onnx.save_model(self.model_proto, path)
            return
        copy = ModelProto()
        copy.CopyFrom(self.model_proto)
        onnx.save_model(
            copy, path, save_as_external_data=True, all_tensors_to_one_file=True,
            location=os.path.basename(path) + ".data", size_threshold=_EXTERNAL_BYTES,
        )  # fmt: skip

    def __repr__(self) -> str:
        return onnx.printer.to_text(self.model_proto)


class _Graph:
    """Builds the graph from recordings."""

    def __init__(
        self,
        model: Any,
        recordings: Sequence[Recording],
        sizes: Sizes,
        inputs: Sequence[str],
        outputs: Sequence[str],
        axes: Mapping[str, Mapping[int, str]],
        version: int,
    ) -> None:
        sources: dict[str, tuple[str, int]] = {}
        for name, pairs in axes.items():
            for axis, symbol in pairs.items():
                sources.setdefault(symbol, (name, axis))
        self.w = Writer(version, sources)
        self.recordings, self.sizes = recordings, sizes
        self.inputs, self.outputs = inputs, outputs
        for name in (*inputs, *outputs):
            self.w.name(name)
        self._weights = _weights(model)
        self._names: dict[tuple[Call, int], str] = {}
        first = recordings[0]
        for call, name in zip(first.inputs, inputs):
            self._names[call, 0] = name
        for calls in zip(*(one.order for one in recordings)):
            if (calls[0], 0) not in self._names:
                self._write(calls)

    def _write(self, calls: Sequence[Call]) -> None:
        call = calls[0]
        if call.buffer is not None or (call.signature is None and not call.inputs):
            self._names[call, 0] = self._leaf(calls)
        elif call.signature is None:
            self._names[call, 0] = self._names[call.inputs[0], call.index]
        else:
            for k, name in enumerate(self._call(calls)):
                self._names[call, k] = name

    def _call(self, calls: Sequence[Call]) -> list[str]:
        together = Together(calls, self.sizes)
        names = iter([self._names[one, 0] for one in calls[0].inputs])
        types = together.input_types()
        operands = [None if kind is None else next(names) for kind in types]
        assert together.composite is not None
        row = ROWS.get(together.composite)
        if row is not None:
            o = Operands(self.w, operands, types, together.attributes, together.types)
            found = row(o)
            if found is not None:
                return [found] if isinstance(found, str) else found
        return expanded(self.w, together, [name for name in operands if name is not None])

    def _leaf(self, calls: Sequence[Call]) -> str:
        """A value that exists already: a number, a parameter, or a constant."""
        call = calls[0]
        if call.scalar is not None:
            numbers = [one.scalar for one in calls]
            if all(number == numbers[0] or number != number for number in numbers):
                return self.w.number(call.scalar, call.type.dtype)
            size = self.sizes.size([_whole(number) for number in numbers])
            whole = self.w.squeeze(self.w.size(size), [0])
            return self.w.cast(whole, metaop.int64, call.type.dtype)
        arrays = [one.buffer.view(one.type.shape, one.type.dtype.numpy) for one in calls]
        first = arrays[0]
        alike = all(one.shape == first.shape for one in arrays)
        same = alike and all(a is first or a.tobytes() == first.tobytes() for a in arrays[1:])
        if not same:
            if alike and first.dtype.kind == "i" and first.size <= _MOST_SIZES:
                rows = zip(*(one.ravel().tolist() for one in arrays))
                found = self.w.integers([self.sizes.size(row) for row in rows])
                return self.w.cast(
                    self.w.reshape(found, first.shape), metaop.int64, call.type.dtype
                )
            raise UnsupportedError(
                "a constant that the network makes depends on the sizes of the dynamic axes",
                fix="make it with metaop.arange or the like instead of NumPy",
            )
        name = self._weights.get(id(call.buffer))
        return self.w.array(first, name or "constant")

    def model(self, label: str) -> ModelProto:
        """The whole model, checked."""
        first = self.recordings[0]
        for call, wanted in zip(first.outputs, self.outputs):
            found = self._names[call, 0]
            self.w.nodes.append(helper.make_node("Identity", [found], [wanted]))
        ports = [
            [self._port(name, [getattr(one, kind)[k] for one in self.recordings])
             for k, name in enumerate(names)]
            for kind, names in (("inputs", self.inputs), ("outputs", self.outputs))
        ]  # fmt: skip
        nodes = _needed(self.w.nodes, self.outputs)
        read = {name for node in nodes for name in _read(node)}
        constants = [one for one in self.w.initializers if one.name in read]
        graph = helper.make_graph(nodes, label, ports[0], ports[1], constants)
        version = helper.make_opsetid("", self.w.version)
        model = helper.make_model(
            graph, opset_imports=[version], producer_name="metaop",
            producer_version=metaop.__version__,
            ir_version=helper.find_min_ir_version_for([version]),
        )  # fmt: skip
        if model.ByteSize() < _MOST_BYTES:
            onnx.checker.check_model(model, full_check=True)
        return model

    def _port(self, name: str, calls: Sequence[Call]) -> onnx.ValueInfoProto:
        shape = self.sizes.unified([tuple(call.type.shape) for call in calls])
        kind = Typed(shape, calls[0].type.dtype)
        sizes = [one.symbol if isinstance(one, Size) else one for one in kind.shape]
        return helper.make_tensor_value_info(name, element_type(kind.dtype), sizes)


def _whole(number: Any) -> int:
    if number is None or int(number) != number:
        raise UnsupportedError(
            "a fraction that the network computes from sizes depends on a dynamic axis",
            fix="remove that axis from dynamic_axes",
        )
    return int(number)


def _weights(model: Any) -> dict[int, str]:
    """The names of parameters and buffers, by their memory."""
    found: dict[int, str] = {}
    if isinstance(model, Module):
        for name, tensor in model.state_dict(keep_vars=True).items():
            if isinstance(tensor, metaop.Tensor):
                found.setdefault(id(tensor.buffer()), name)
    return found


def _needed(nodes: Sequence[onnx.NodeProto], outputs: Sequence[str]) -> list[onnx.NodeProto]:
    """The nodes that the outputs need, without mere renames."""
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if wanted & set(node.output):
            wanted.update(_read(node))
            kept.append(node)
    return kept[::-1]


def _read(node: onnx.NodeProto) -> Iterator[str]:
    """The names that a node reads, those of the graphs within it included."""
    yield from node.input
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            for inner in attribute.g.node:
                yield from _read(inner)
