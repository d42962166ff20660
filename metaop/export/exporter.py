"""`export`: writes the graph of a function, for all sizes of its named axes, to a file."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from metaop.errors import (
    ArgumentTypeError,
    CheckpointError,
    ExportError,
    MetaopError,
    UnsupportedError,
)
from metaop.export.container import VERSION, as_read
from metaop.export.dimensions import (
    Axis,
    Dim,
    Sizes,
    axes_of,
    further_choices,
    two_choices,
    varying,
)
from metaop.export.general import Choice, General
from metaop.export.graph_reader import GraphReader
from metaop.export.graph_writer import GraphWriter
from metaop.export.leaves import Weights, check_alike, constant_record, sources_of, used_at
from metaop.export.numbers import Numbers, NumberWriter, UnboundError
from metaop.export.program import Program
from metaop.export.recorded import Recorded, record
from metaop.export.structure import matched_axes, put_together, taken_apart
from metaop.fusion.simplify import simplify
from metaop.fusion.split_complex import split_complex
from metaop.nn.module import Module
from metaop.serialization.damage import Damage
from metaop.tensor.core import Tensor, from_array
from metaop.unified_graph.dtype import DType, from_numpy_dtype
from metaop.unified_graph.loop import Loop
from metaop.unified_graph.node import Node
from metaop.unified_graph.recording import Call
from metaop.unified_graph.rewrite import rebuild
from metaop.unified_graph.symbolic_cut import structure_key
from metaop.unified_graph.tensor_type import CPU
from metaop.version import __version__


def export(
    model: Module | Callable[..., Any],
    inputs: Any,
    file: str | os.PathLike[str],
    *,
    dynamic: Any = None,
) -> Program:
    """Writes the graph of a module or function, with its weights, to one file.

    `inputs` are examples: a tensor, a tuple of positional arguments or a mapping of names to
    arguments. Nothing is computed with them. `file` ends in `.mo`. `dynamic` names the axes whose
    sizes may vary, by the name of the input or in the order of the arguments:
    `{"images": {0: "batch"}}`. Axes of the same name have the same size; `Dim` bounds it.

    Returns the program as `load_program(file)` does. Raises ExportError, with the line, for a
    function that reads values, draws random numbers, writes buffers or inputs, or keeps tensors.

    Example:
        metaop.export(model.eval(), images, "model.mo", dynamic={"images": {0: "batch"}})
    """
    if isinstance(inputs, Mapping):
        given = Arguments(model, (), inputs)
    else:
        given = Arguments(model, inputs if isinstance(inputs, tuple) else (inputs,), {})
    program = program_of(given, dynamic or {}, name=os.fspath(file))
    program.save(file)
    return program


def program_of(
    given: Arguments, dynamic: Any, *, whole: bool = False, name: str = "the program"
) -> Program:
    """The program of a function with its examples; `name` is how messages call it.

    `dynamic` is that of `export`. `whole`: it has all of the state_dict of its module, and not
    only what the graph reads.
    """
    axes, hints = axes_of(dynamic, given.names, given.parameters, given.shapes)

    def exporter(more: Sequence[Axis]) -> _Exporter:
        return _Exporter(given, [*axes, *more], Weights(given.model, whole), name)

    alone = exporter(())
    if not hints:
        return alone.program()
    alone.record_examples()
    found = varying(hints, given.shapes, alone.works_with)
    chosen = [one for one in found if any(hints[k] is Dim.DYNAMIC for k in one.places)]
    if found != chosen:
        try:
            return exporter(found).program()
        except MetaopError:
            pass  # What varies alone may not vary with others, or may be branched on.
    program = exporter(chosen).program()
    for axis in found:
        if axis not in chosen:
            try:
                program = exporter([*chosen, axis]).program()
            except MetaopError:
                continue
            chosen.append(axis)
    return program


class Arguments:
    """A function with its example inputs: the structure of each parameter, the tensors by name."""

    def __init__(self, model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        target = model.forward if isinstance(model, Module) else model
        try:
            bound = inspect.signature(target).bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentTypeError(
                f"the inputs do not match the function: {error}",
                fix="pass a tuple of its positional arguments, or a mapping of names",
            ) from None
        self.model, self.count = model, len(args)
        self.parameters = [*_positional_names(bound, args), *kwargs]
        self.tensors: list[Tensor] = []
        self.names: list[str] = []
        self.structures = [
            taken_apart(value, self.tensors, self.names, name)
            for name, value in zip(self.parameters, [*args, *kwargs.values()])
        ]
        for name, tensor in zip(self.names, self.tensors):
            if tensor.device is not CPU:
                raise ExportError(f"{name} is on {tensor.device}", fix="pass it on the CPU")
        self.types = [tensor.call.type for tensor in self.tensors]
        self.shapes = [kind.shape for kind in self.types]

    def axes(self, dynamic_shapes: Any) -> dict[str, Any]:
        """The axes of each input by name, from those in the structure of the arguments."""
        parameters: dict[str, Any] = {}
        for name, structure in zip(self.parameters, self.structures):
            name, _, position = name.partition(".")
            if position:  # one of *args
                parameters.setdefault(name, {"tuple": []})["tuple"].append(structure)
            else:
                parameters[name] = structure
        ordered = isinstance(dynamic_shapes, (tuple, list))
        found: dict[int, Any] = {}
        matched_axes(
            {"tuple": [*parameters.values()]} if ordered else {"dict": [*parameters.items()]},
            dynamic_shapes,
            found,
        )
        return {self.names[number]: one for number, one in found.items()}

    def call(self, tensors: Sequence[Tensor]) -> Any:
        """The result of the function for other tensors."""
        values = [put_together(one, tensors) for one in self.structures]
        named = dict(zip(self.parameters[self.count :], values[self.count :]))
        return self.model(*values[: self.count], **named)


def _positional_names(bound: inspect.BoundArguments, args: tuple[Any, ...]) -> list[str]:
    names: list[str] = []
    for name, parameter in bound.signature.parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{name}.{k}" for k in range(len(args) - len(names))]
        elif len(names) < len(args):
            names.append(name)
    return names


class _Graph(NamedTuple):
    """A graph as data."""

    nodes: list[dict[str, Any]]
    outputs: list[int]
    numbers: list[list[Any]]
    guards: list[list[Any]]


class _Exporter:
    """Builds the contents of one file."""

    def __init__(self, given: Arguments, axes: Sequence[Axis], weights: Weights, name: str) -> None:
        self.given, self.axes, self.weights, self._name = given, axes, weights, name
        self.examples = {axis.dim.name: axis.size for axis in axes}
        self._recorded: dict[tuple[int, ...], Recorded | Exception] = {}
        # The sizes for which the graph was recorded.
        self._used: list[Sizes] = []

    def program(self) -> Program:
        """The program, which equals the function for all sizes that were tried."""
        content = as_read(self.content())
        arrays = self.weights.arrays
        weights = {name: from_array(one.copy(), _dtype_of(one)) for name, one in arrays.items()}
        try:
            program = Program(content, weights, self._name)
        except CheckpointError as error:
            raise ExportError(
                f"the recorded graph cannot be written to a file: {error}",
                fix="use examples of other sizes, or name fewer axes in dynamic",
            ) from error
        self.confirm(program)
        return Program(program.content, weights, self._name)

    def content(self) -> dict[str, Any]:
        """The contents of the file besides the weights."""
        recorded = self._record(self.examples)
        graph = self._fixed(recorded) if not self.axes else self._general()
        outputs = zip(recorded.names, graph.outputs)
        return {
            "version": VERSION,
            "producer": f"metaop {__version__}",
            "sizes": [
                {
                    "name": axis.dim.name,
                    "min": max(axis.least, 2) if axis.size > 1 else axis.least,
                    "max": axis.dim.max,
                    "multiple": axis.dim.multiple,
                    "example": axis.size,
                }
                for axis in self.axes
            ],
            "arguments": [list(one) for one in zip(self.given.parameters, self.given.structures)],
            "inputs": self._inputs(),
            "weights": list(self.weights.arrays),
            "numbers": graph.numbers,
            "guards": graph.guards,
            "nodes": graph.nodes,
            "outputs": [{"name": name, "node": node} for name, node in outputs],
            "results": recorded.structure,
            **self.weights.kinds,
        }

    def _inputs(self) -> list[dict[str, Any]]:
        places = {place: axis.dim.name for axis in self.axes for place in axis.places}
        return [
            {
                "name": name,
                "dtype": kind.dtype.name,
                "shape": [places.get((k, axis), n) for axis, n in enumerate(kind.shape)],
            }
            for k, (name, kind) in enumerate(zip(self.given.names, self.given.types))
        ]

    # --- recording --------------------------------------------------------------------------

    def record_examples(self) -> None:
        """Raises what the function raises for the sizes of the examples."""
        self._record(self.examples)

    def works_with(self, axis: Axis, size: int) -> bool:
        """Whether the function works for the examples with another size of one more axis."""
        probe = _Exporter(self.given, [*self.axes, axis], self.weights, self._name)
        return probe._works({**self.examples, axis.dim.name: size})

    def _record(self, sizes: Sizes) -> Recorded:
        key = tuple(sizes.values())
        found = self._recorded.get(key)
        if found is None:
            shapes = [list(shape) for shape in self.given.shapes]
            for axis in self.axes:
                for number, position in axis.places:
                    shapes[number][position] = sizes[axis.dim.name]
            try:
                found = record(self.given.call, self.given.types, [tuple(one) for one in shapes])
                _refuse_complex(found)
            except Exception as error:
                found = error
            self._recorded[key] = found
        if isinstance(found, Exception):
            raise found
        return found

    def _works(self, sizes: Sizes) -> bool:
        try:
            self._record(sizes)
        except Exception:
            return False
        return True

    # --- graphs -----------------------------------------------------------------------------

    def _fixed(self, recorded: Recorded) -> _Graph:
        _, outputs = split_complex(*recorded.subgraph.expand())
        sources = [
            constant_record(one["value"], leaf) if "value" in one else one
            for one, leaf in zip(
                sources_of(recorded, recorded.subgraph.leaves, self.weights),
                recorded.subgraph.leaves,
            )
        ]
        return self._written(recorded, outputs, sources, NumberWriter(None, {}), [])

    def _general(self) -> _Graph:
        first, second = two_choices(self.axes, self._works)
        example = Choice.of(first, self._record(first))
        alike = [example, *self._alike(second, example)]
        if len(alike) < 2:
            raise ExportError(
                f"the function does something different for {second} than for {first}",
                fix="avoid branches and loops that depend on sizes, or name fewer axes in dynamic",
            )
        for sizes in further_choices(self.axes, first, second):
            alike += self._alike(sizes, example)
        self._used = [choice.sizes for choice in alike]
        return self._generalised(alike)

    def _generalised(self, choices: Sequence[Choice]) -> _Graph:
        """The graph for all sizes, from recordings of one structure; see `General`."""
        for choice in choices[1:]:
            check_alike(choices[0].recorded, choice.recorded, choice.sizes)
        general = General(choices, self.axes)
        recorded = choices[1].recorded
        sources = sources_of(recorded, recorded.subgraph.leaves, self.weights)
        for number, leaf in enumerate(recorded.subgraph.leaves):
            if "value" in sources[number]:
                values = [one.recorded.subgraph.leaves[number].scalar for one in choices]
                sources[number] = self._number_record(general, values, leaf)
        return self._written(recorded, general.outputs, sources, general.numbers, general.guards())

    def _number_record(self, general: General, values: Sequence[Any], leaf: Call) -> Any:
        try:
            reference = general.value_like(values)
        except UnboundError as reason:
            raise ExportError(
                f"{reason}{used_at(general.subgraph, leaf)}",
                fix="compute it from the sizes of tensors, or name fewer axes in dynamic",
            ) from None
        if not isinstance(reference, str):
            return constant_record(reference, leaf)
        return {"op": "number", "dtype": leaf.type.dtype.name, "shape": [], "value": reference}

    def _written(
        self,
        recorded: Recorded,
        outputs: Sequence[Node],
        sources: list[Any],
        numbers: NumberWriter,
        guards: list[list[Any]],
    ) -> _Graph:
        writer = GraphWriter(numbers, sources)
        positions = dict(zip(recorded.subgraph.outputs, writer.write(outputs)))
        for call in recorded.results:
            if call not in positions:  # an input, or a constant, that is returned unchanged
                (source,) = sources_of(recorded, [call], self.weights)
                one = constant_record(source["value"], call) if "value" in source else source
                writer.records.append(one)
                positions[call] = len(writer.records) - 1
        places = [positions[call] for call in recorded.results]
        return _Graph(writer.records, places, numbers.entries, guards)

    # --- checks -----------------------------------------------------------------------------------

    def confirm(self, program: Program) -> None:
        """Compares the program with recordings of the function for special sizes.

        An axis whose size may be 1 gets that bound.
        """
        for choice in self._special():
            if not self._agrees(program, choice):
                raise ExportError(
                    f"the program would differ from the function for {choice}, which depends on "
                    "sizes irregularly",
                    fix="restrict the sizes: Dim(name, min, max, multiple)",
                )
        for axis, size in zip(self.axes, program.content["sizes"]):
            one = {**self.examples, axis.dim.name: 1}
            if not axis.admits(1):
                continue
            if self._works(one) and self._is_same(program, one):
                size["min"] = 1
            elif 1 in (axis.dim.min, axis.size):
                raise ExportError(
                    f"the function does something else where {axis.dim.name!r} is 1",
                    fix="use a larger example and omit min; export size 1 to a separate file",
                )

    def _special(self) -> list[Sizes]:
        """Sizes from 2 on that were recorded but not used to build the graph."""
        found = [dict(zip(self.examples, key)) for key in self._recorded]
        return [
            sizes
            for sizes in found
            if min(sizes.values(), default=0) > 1 and sizes not in self._used
        ]

    def _agrees(self, program: Program, sizes: Sizes) -> bool:
        """Whether, for these sizes, the program equals the function or refuses them."""
        try:
            program.nodes(sizes)
        except Damage:
            return True
        return self._works(sizes) and self._is_same(program, sizes)

    def _is_same(self, program: Program, sizes: Sizes) -> bool:
        """Whether the function records the program's graph for these sizes."""
        try:
            inputs, weights, outputs = program.nodes(sizes)
        except Damage:
            return False
        found = _in_one_form(outputs)

        def is_found(graph: _Graph) -> bool:
            reader = GraphReader(Numbers(graph.numbers, sizes), inputs, weights)
            wanted = _in_one_form(reader.read(graph.nodes, graph.outputs))
            return all(one is other for one, other in zip(found, wanted))

        if is_found(self._fixed(self._record(sizes))):
            return True
        # Operators may have one form for all sizes and another one for these: windows of equal
        # length, for one. The form for all sizes follows from a recording at other sizes.
        general = self._general_at(sizes)
        return general is not None and is_found(general)

    def _general_at(self, sizes: Sizes) -> _Graph | None:
        """The graph for all sizes that follows from these, and from those used; None if none does.

        An axis of size 1 is fixed.
        """
        here = Choice.of(sizes, self._record(sizes))
        fixed = {name: size for name, size in sizes.items() if size == 1}
        others = [choice for used in self._used for choice in self._alike({**used, **fixed}, here)]
        try:
            return self._generalised([others[0], here, *others[1:]]) if others else None
        except ExportError:
            return None

    def _alike(self, sizes: Sizes, other: Choice) -> list[Choice]:
        """The recording for some sizes, if it is another one of the same structure."""
        if sizes == other.sizes or not self._works(sizes):
            return []
        choice = Choice.of(sizes, self._record(sizes))
        there, here = (structure_key(one.recorded.subgraph) for one in (other, choice))
        return [choice] if there == here else []


def _in_one_form(outputs: Sequence[Node]) -> list[Node]:
    """The outputs simplified, steps of loops included, so that equal graphs are the same nodes."""

    def turned(node: Node) -> Node:
        if not isinstance(node.op, Loop):
            return node
        body, stacked = node.op.definition, node.op.stacked
        plain = body._replace(carried=tuple(_in_one_form(body.carried)))
        value = None if stacked is None else _in_one_form([stacked])[0]
        op = replace(node.op, definition=plain, stacked=value)
        return Node(op, node.inputs, node.shape, node.dtype)

    return rebuild(simplify(outputs), transform=turned)


def _dtype_of(array: np.ndarray) -> DType:
    found = from_numpy_dtype(array.dtype)
    assert found is not None
    return found


def _refuse_complex(recorded: Recorded) -> None:
    """Raises UnsupportedError for a program that takes, keeps or gives complex numbers."""
    if any(call.type.dtype.is_complex for call in (*recorded.subgraph.leaves, *recorded.results)):
        raise UnsupportedError(
            "program files do not support complex numbers",
            fix="pass and return view_as_real(tensor), and use view_as_complex inside",
        )
