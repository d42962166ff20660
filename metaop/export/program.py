"""A program read from a file, called like the exported function."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import IO, Any, NamedTuple

from metaop.errors import ArgumentTypeError, DTypeError, ShapeError
from metaop.export.container import check_suffix, read_file, write_file, written
from metaop.export.graph_reader import GraphReader, dtype_named
from metaop.export.numbers import LARGEST, Numbers
from metaop.export.structure import checked, matched, put_together
from metaop.serialization.damage import Damage, Reading
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.html import table
from metaop.unified_graph.composite import Composite
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.node import Node, input_node
from metaop.unified_graph.recording import record, results
from metaop.unified_graph.tensor_type import CPU, Device

_KEPT_CHOICES = 256
_RELATIONS = {
    "<": lambda value: value < 0,
    ">=": lambda value: value >= 0,
    "==": lambda value: value == 0,
    "!=": lambda value: value != 0,
}


class Size(NamedTuple):
    """A size that calls may choose; `example` is its value at export."""

    name: str
    min: int
    max: int | None
    multiple: int
    example: int

    @property
    def described(self) -> str:
        """The allowed values as text."""
        most = "" if self.max is None else f" to {self.max}"
        step = "" if self.multiple == 1 else f" that are multiples of {self.multiple}"
        return f"from {self.min}{most}{step}"

    def admits(self, value: int) -> bool:
        """Whether a call may choose a value."""
        most = LARGEST if self.max is None else self.max
        return self.min <= value <= most and value % self.multiple == 0


class Input(NamedTuple):
    """A tensor that calls pass; `shape` has numbers and names of sizes."""

    name: str
    dtype: DType
    shape: tuple[int | str, ...]


class Program:
    """A program from a file: call it like the exported module.

    `inputs`, `outputs` and `sizes` describe its signature, `weights` are tensors by name. The
    results are differentiable with respect to inputs and weights that require a gradient.
    """

    def __init__(self, content: dict[str, Any], weights: dict[str, Tensor], name: str) -> None:
        """The program of a file's content; raises CheckpointError if it is not a program."""
        self.content, self._name = content, name
        with Reading(name):
            self.sizes = [_size(one) for one in content["sizes"]]
            names = {size.name for size in self.sizes}
            self.inputs = [_input(one, names) for one in content["inputs"]]
            self.outputs = [str(one["name"]) for one in content["outputs"]]
            if sorted(content["weights"]) != sorted(weights):
                raise Damage("its weights do not match its program")
            if not {*content["parameters"], *content["buffers"]} <= set(weights):
                raise Damage("its parameters or buffers are none of its weights")
            self.weights = {key: weights[key] for key in content["weights"]}
            for parameter in content["arguments"]:
                if len(parameter) != 2 or not isinstance(parameter[0], str):
                    raise Damage("its arguments are damaged")
                checked(parameter[1], len(self.inputs))
            checked(content["results"], len(self.outputs))
            self.nodes({size.name: size.example for size in self.sizes})
        self._composite = Composite("program", self._expansion, variadic=True)
        self._used = self._operands()
        self._admitted: dict[tuple[int, ...], None] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The results for these arguments.

        Raises ArgumentTypeError, DTypeError or ShapeError if the program does not accept them.
        """
        tensors = self._bound(args, kwargs)
        sizes = self.sizes_of([tensor.shape for tensor in tensors])
        self._admit(sizes)
        given, weights = self._used
        values = list(self.weights.values())
        calls = [tensors[k].call for k in given] + [values[k].call for k in weights]
        call = record(self._composite, calls, tuple(sizes.values()))
        return put_together(self.content["results"], [wrap(one) for one in results(call)])

    def save(self, file: str | os.PathLike[str]) -> None:
        """Writes the program, with its current weights, to a file whose name ends in .mo."""
        check_suffix(file)
        self.write(file)

    def write(self, file: str | os.PathLike[str] | IO[bytes]) -> None:
        """Writes the program, with its current weights, to a file of any name or a file object."""
        arrays = {name: tensor.detach()._array() for name, tensor in self.weights.items()}  # type: ignore[attr-defined]
        write_file(file, written(self.content, arrays))

    def nodes(self, sizes: dict[str, Any]) -> tuple[list[Node], list[Node], list[Node]]:
        """The nodes of the inputs, of the weights and of the outputs for plain sizes.

        Raises Damage if the graph has no legal form for them.
        """
        numbers = Numbers(self.content["numbers"], sizes)
        inputs, weights = self.placeholders(numbers)
        self._check_guards(numbers, sizes)
        return inputs, weights, self._read(numbers, inputs, weights)

    def placeholders(self, numbers: Numbers) -> tuple[list[Node], list[Node]]:
        """The nodes of the inputs and of the weights."""
        inputs = [
            input_node(k, numbers.integers(list(one.shape)), one.dtype)
            for k, one in enumerate(self.inputs)
        ]
        weights = [
            input_node(len(inputs) + k, tensor.call.type.shape, tensor.call.type.dtype)
            for k, tensor in enumerate(self.weights.values())
        ]
        return inputs, weights

    def sizes_of(self, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
        """The named sizes of inputs with these shapes. Raises ShapeError if they do not fit."""
        found: dict[str, int] = {}
        for given, shape in zip(self.inputs, shapes):
            fits = len(shape) == len(given.shape)
            for wanted, extent in zip(given.shape, shape):
                here = found.setdefault(wanted, extent) if isinstance(wanted, str) else wanted
                fits = fits and here == extent
            if not fits:
                expected = [found.get(one, one) if type(one) is str else one for one in given.shape]
                raise ShapeError(
                    f"input {given.name!r} has the shape {list(shape)}, the program takes "
                    f"{list(given.shape)}" + (f", here {expected}" if found else ""),
                    fix="name the axes that vary when you export: dynamic={...}",
                )
        sizes = {}
        for size in self.sizes:
            sizes[size.name] = value = found.get(size.name, size.example)
            if not size.admits(value):
                raise ShapeError(
                    f"axis {size.name!r} is {value}, the program takes sizes {size.described}"
                )
        return sizes

    def to(self, device: str | Device) -> Program:
        """Moves the weights to a device; returns the program."""
        moved = {name: tensor.to(device) for name, tensor in self.weights.items()}  # type: ignore[attr-defined]
        self.weights = moved
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Program, (self.content, self.weights, self._name)

    def __repr__(self) -> str:
        inputs = ", ".join(f"{x.name}: {x.dtype.name}{list(x.shape)}" for x in self.inputs)
        return f"Program({inputs}) -> {', '.join(self.outputs)}"

    def _repr_html_(self) -> str:
        rows = [("input", x.name, f"{x.dtype.name}{list(x.shape)}") for x in self.inputs]
        rows += [("output", name, "") for name in self.outputs]
        rows += [("size", size.name, size.described) for size in self.sizes]
        count = sum(tensor.numel() for tensor in self.weights.values())
        rows.append(("weights", f"{len(self.weights):,} tensors", f"{count:,} numbers"))
        return f"<div><b>Program</b>{table(rows)}</div>"

    # --- calls ------------------------------------------------------------------------------

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
        parameters = self.content["arguments"]
        names = [name for name, _ in parameters]
        unknown = set(kwargs).difference(names[len(args) :])
        if len(args) > len(names) or unknown:
            raise ArgumentTypeError(
                f"the program takes the arguments {', '.join(names)}, each once", fix="pass these"
            )
        values = {**dict(zip(names, args)), **kwargs}
        found: dict[int, Tensor] = {}
        for name, structure in parameters:
            if name in values:
                matched(structure, values[name], found, name)
            elif set(structure) != {"value"}:
                raise ArgumentTypeError(f"the program needs the argument {name!r}")
        tensors = [found[k] for k in range(len(self.inputs))]
        for given, tensor in zip(self.inputs, tensors):
            if tensor.call.type.dtype is not given.dtype:
                raise DTypeError(
                    f"input {given.name!r} is {tensor.dtype}, the program takes {given.dtype}",
                    fix=f"convert it: .to({given.dtype})",
                )
        return tensors

    def _admit(self, sizes: dict[str, int]) -> None:
        """Checks the graph for new sizes: it provably accesses only its own tensors."""
        key = tuple(sizes.values())
        if key in self._admitted or all(size.example == sizes[size.name] for size in self.sizes):
            return
        try:
            self.nodes(sizes)
        except Damage as reason:
            raise ShapeError(f"the program has no form for {_listed(sizes)}: {reason}") from None
        if len(self._admitted) >= _KEPT_CHOICES:
            self._admitted.clear()
        self._admitted[key] = None

    def _check_guards(self, numbers: Numbers, sizes: dict[str, Any]) -> None:
        for reference, relation, text in self.content["guards"]:
            if relation not in _RELATIONS:
                raise Damage(f"the relation {relation!r} is unknown")
            if not _RELATIONS[relation](numbers.value(reference)):
                raise Damage(f"{str(text)[:200]} does not hold for {_listed(sizes)}")

    def _read(
        self, numbers: Numbers, inputs: Sequence[Node], weights: Sequence[Node]
    ) -> list[Node]:
        reader = GraphReader(numbers, inputs, weights)
        return reader.read(self.content["nodes"], [one["node"] for one in self.content["outputs"]])

    def _operands(self) -> tuple[list[int], list[int]]:
        """The inputs and the weights that the graph reads."""
        found: dict[str, set[int]] = {"input": set(), "weight": set()}
        for node in self.content["nodes"]:
            if node["op"] in found:
                found[node["op"]].add(node["number"])
        return sorted(found["input"]), sorted(found["weight"])

    def _expansion(self, operands: tuple[Node, ...], *sizes: Any) -> tuple[Node, ...]:
        """The graph on given nodes, for admitted sizes or symbols for them."""
        by_name = dict(zip((size.name for size in self.sizes), sizes))
        numbers = Numbers(self.content["numbers"], by_name)
        given, weights = self._used
        inputs: dict[int, Node] = dict(zip(given, operands))
        values: dict[int, Node] = dict(zip(weights, operands[len(given) :]))
        self._check_guards(numbers, by_name)
        return tuple(self._read(numbers, _Places(inputs), _Places(values)))


class _Places(Sequence[Node]):
    """Nodes by number, some of which are unused."""

    def __init__(self, nodes: dict[int, Node]) -> None:
        self._nodes = nodes

    def __len__(self) -> int:
        return max(self._nodes, default=-1) + 1

    def __getitem__(self, number: Any) -> Any:
        return self._nodes[number]


def load_program(file: str | os.PathLike[str] | IO[bytes], device: str | Device = CPU) -> Program:
    """Reads a program that `metaop.export` wrote; its weights are loaded to `device`.

    The file is data: it contains no code that would be run or compiled, and each field is checked.
    Raises CheckpointError, with the file and the reason, for a file that is damaged, foreign or of
    another version.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile(suffix=".mo") as file:
    ...     metaop.export(nn.ReLU(), (metaop.zeros(2),), file.name)
    ...     metaop.load_program(file.name)(metaop.tensor([-1.0, 2.0]))
    Program(input: float32[2]) -> output
    tensor([0., 2.])
    """
    program = Program(*read_file(file))
    return program if device is CPU else program.to(device)


def _size(one: Any) -> Size:
    size = Size(**one)
    if not isinstance(size.name, str) or not size.name.isidentifier() or len(size.name) > 100:
        raise Damage("a size has no legal name")
    bounds = (size.min, size.multiple, size.example, 1 if size.max is None else size.max)
    if any(type(number) is not int or not 0 < number <= LARGEST for number in bounds):
        raise Damage(f"the size {size.name!r} has impossible bounds")
    if not size.admits(size.example):
        raise Damage(f"the example of the size {size.name!r} is none")
    return size


def _input(one: Any, sizes: set[str]) -> Input:
    shape = tuple(one["shape"])
    for extent in shape:
        if extent not in sizes if isinstance(extent, str) else type(extent) is not int:
            raise Damage(f"the input {one['name']!r} has the unknown extent {extent!r}")
    return Input(str(one["name"]), dtype_named(one["dtype"]), shape)


def _listed(sizes: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in sizes.items())
