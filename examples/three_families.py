"""metaop in 300 lines: three families of operators, gradients, fusion, and code made by LLVM.

docs/tutorials/three-hundred-lines.md builds this program piece by piece.
Run: python examples/three_families.py
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
import numpy as np

# --- node
# A map tells an index of a tensor from an index of a box of loops: for each axis of the tensor a
# constant and a factor for each axis of the box. ((0, 0, 1), (0, 1, 0)) takes (i, j) to (j, i).
Map = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class Node:
    """A tensor that is not computed yet: how it follows from other tensors.

    input        numbers from outside
    number       `detail` everywhere
    elementwise  y[i] = g(a[i], b[i], …), where `detail` names the row g of FUNCTIONS
    reindex      y[i] = x[f(i)], where `detail` is the map f
    reduce       y[f(i)] += x[i], where `detail` is the map f
    """

    family: str
    shape: tuple[int, ...]
    inputs: tuple[Node, ...] = ()
    detail: Any = None

    def __add__(self, other: Node | float) -> Node:
        return elementwise("add", self, other)

    def __mul__(self, other: Node | float) -> Node:
        return elementwise("mul", self, other)

    def __sub__(self, other: Node | float) -> Node:
        return self + as_node(other) * -1.0

    def __matmul__(self, other: Node) -> Node:
        return matmul(self, other)

    __radd__, __rmul__ = __add__, __mul__


def as_node(value: Node | float) -> Node:
    """A Python number becomes a tensor without axes."""
    return value if isinstance(value, Node) else Node("number", (), (), float(value))


# --- functions
@dataclass(frozen=True)
class Function:
    """One function of numbers: how LLVM writes it, and its derivative by each operand."""

    code: str
    derivatives: Callable[..., tuple[Node, ...]]


# The derivatives are written in functions of this table, so derivatives have derivatives.
FUNCTIONS = {
    "add": Function("fadd double {}, {}", lambda a, b: (as_node(1), as_node(1))),
    "mul": Function("fmul double {}, {}", lambda a, b: (b, a)),
    "exp": Function("call double @llvm.exp.f64(double {})", lambda a: (exp(a),)),
    "log": Function("call double @llvm.log.f64(double {})", lambda a: (reciprocal(a),)),
    "reciprocal": Function(
        "fdiv double 1.0, {}", lambda a: (reciprocal(a) * reciprocal(a) * -1.0,)
    ),
}


# --- families
def elementwise(name: str, *operands: Node | float) -> Node:
    """One function of the table, on operands that broadcast as in NumPy."""
    nodes = [as_node(operand) for operand in operands]
    shape = np.broadcast_shapes(*(node.shape for node in nodes))
    return Node("elementwise", shape, tuple(broadcast(node, shape) for node in nodes), name)


def reindex(source: Node, shape: tuple[int, ...], map: Map) -> Node:
    """y[i] = source[map(i)] for every i of `shape`; the map has to stay inside of the source."""
    return Node("reindex", shape, (source,), map)


def reduce(source: Node, shape: tuple[int, ...], map: Map) -> Node:
    """y[map(i)] += source[i] for every i of the source, from a y of zeros of `shape`."""
    return Node("reduce", shape, (source,), map)


# --- composites
def pick(axes: list[int | None], ndim: int) -> Map:
    """The map that reads axes of a box of `ndim` loops; None reads index 0."""
    return tuple((0, *(int(axis == k) for k in range(ndim))) for axis in axes)


def broadcast(x: Node, shape: tuple[int, ...]) -> Node:
    """Repeats axes of extent 1 and axes that are missing on the left."""
    if x.shape == shape:
        return x
    first = len(shape) - len(x.shape)
    axes = [None if extent == 1 else first + k for k, extent in enumerate(x.shape)]
    return reindex(x, shape, pick(axes, len(shape)))


def total(x: Node, axis: int | None = None) -> Node:
    """The sum along an axis, or of all elements."""
    kept = [] if axis is None else [k for k in range(len(x.shape)) if k != axis]
    return reduce(x, tuple(x.shape[k] for k in kept), pick(list(kept), len(x.shape)))


def matmul(a: Node, b: Node) -> Node:
    """(rows, inner) times (inner, columns): a box of three loops, the last of which is summed."""
    (rows, inner), (_, columns) = a.shape, b.shape
    box = (rows, columns, inner)
    product = reindex(a, box, pick([0, 2], 3)) * reindex(b, box, pick([2, 1], 3))
    return total(product, 2)


def convolution(x: Node, window: Node) -> Node:
    """y[i] = Σ x[i + k] · window[k]: the same composition with another map."""
    (length,), (width,) = x.shape, window.shape
    box = (length - width + 1, width)
    return total(reindex(x, box, ((0, 1, 1),)) * reindex(window, box, ((0, 0, 1),)), 1)


def exp(x: Node) -> Node:
    """e to the power of each element."""
    return elementwise("exp", x)


def log(x: Node) -> Node:
    """The natural logarithm of each element."""
    return elementwise("log", x)


def reciprocal(x: Node) -> Node:
    """1 over each element."""
    return elementwise("reciprocal", x)


def tanh(x: Node) -> Node:
    """The hyperbolic tangent of each element."""
    return 1.0 + reciprocal(exp(2.0 * x) + 1.0) * -2.0


# --- gradients
def topological(outputs: list[Node]) -> list[Node]:
    """All nodes that the outputs need, each behind its inputs."""
    order: dict[Node, None] = {}

    def visit(node: Node) -> None:
        if node not in order:
            for source in node.inputs:
                visit(source)
            order[node] = None

    for output in outputs:
        visit(output)
    return list(order)


def gradients(output: Node, inputs: list[Node]) -> list[Node]:
    """The derivatives of the sum of `output` by each input, as nodes like all others."""
    slopes: dict[Node, Node] = {output: broadcast(as_node(1), output.shape)}
    for node in reversed(topological([output])):
        if node in slopes:
            for source, slope in zip(node.inputs, passed_back(node, slopes[node]), strict=True):
                slopes[source] = slopes[source] + slope if source in slopes else slope
    return [slopes.get(node, broadcast(as_node(0), node.shape)) for node in inputs]


def passed_back(node: Node, slope: Node) -> list[Node]:
    """The rule of each family: what the inputs of a node get of its slope."""
    if node.family == "elementwise":
        return [slope * by for by in FUNCTIONS[node.detail].derivatives(*node.inputs)]
    if node.family == "reindex":
        return [reduce(slope, node.inputs[0].shape, node.detail)]
    if node.family == "reduce":
        return [reindex(slope, node.inputs[0].shape, node.detail)]
    return []


# --- fusion
def stored(outputs: list[Node]) -> list[Node]:
    """The nodes that get memory and a kernel; all others are computed where they are read.

    An output needs memory, and so does a sum, because its reader would repeat it. What is dear
    (not an addition or a product) is kept as well when it is read through a reindex, which may
    ask for one element many times.
    """
    nodes = topological(outputs)
    repeated = {source for node in nodes if node.family == "reindex" for source in node.inputs}
    dear = {node for node in nodes if node.detail in ("exp", "log", "reciprocal")}
    for node in nodes:  # what an elementwise node is made of may be dear
        if node.family == "elementwise" and dear.intersection(node.inputs):
            dear.add(node)
    keep = set(outputs) | (repeated & dear) | {n for n in nodes if n.family == "reduce"}
    return [node for node in nodes if node in keep and node.family != "input"]


# --- emitter
class Emitter:
    """Writes the text of one function in the language of LLVM."""

    def __init__(self, numbers: dict[Node, int]) -> None:
        self.numbers = numbers  # of the buffers
        self.lines: list[str] = []
        self.known: dict[Any, str] = {}
        self.count = 0

    def let(self, code: str) -> str:
        """Computes something; returns its name. What was computed in this loop is not repeated."""
        if code not in self.known or code.startswith("load"):
            self.count += 1
            self.known[code] = f"%v{self.count}"
            self.lines.append(f"  {self.known[code]} = {code}")
        return self.known[code]

    def index(self, row: tuple[int, ...], indices: list[str]) -> str:
        """constant + Σ factor · index"""
        result = str(row[0])
        for factor, index in zip(row[1:], indices, strict=True):
            if factor:
                term = index if factor == 1 else self.let(f"mul i64 {index}, {factor}")
                result = term if result == "0" else self.let(f"add i64 {result}, {term}")
        return result

    def address(self, node: Node, indices: list[str]) -> str:
        """Where an element of a node lies, in row-major order."""
        strides = [int(np.prod(node.shape[k + 1 :])) for k in range(len(node.shape))]
        offset = self.index((0, *strides), indices)
        return self.let(f"getelementptr double, ptr %b{self.numbers[node]}, i64 {offset}")

    def value(self, node: Node, indices: list[str], inside: bool = False) -> str:
        """One element of a node: read where it is stored, else computed here, which is fusion."""
        if node in self.numbers and not inside:
            return self.let(f"load double, ptr {self.address(node, indices)}")
        if node.family == "number":
            return "0x" + struct.pack(">d", node.detail).hex()
        if node.family == "reindex":
            (source,) = node.inputs
            return self.value(source, [self.index(row, indices) for row in node.detail])
        operands = [self.value(operand, indices) for operand in node.inputs]
        return self.let(FUNCTIONS[node.detail].code.format(*operands))

    def loops(self, shape: tuple[int, ...], body: Callable[[list[str]], None]) -> None:
        """A nest of loops over a box, around what `body` writes."""
        if not shape:
            self.known = {}
            return body([])
        self.count += 1
        k = self.count
        self.lines += [f"  br label %before{k}", f"before{k}:", f"  br label %loop{k}", f"loop{k}:"]
        self.lines.append(f"  %i{k} = phi i64 [ 0, %before{k} ], [ %next{k}, %end{k} ]")
        self.loops(shape[1:], lambda inner: body([f"%i{k}", *inner]))
        self.lines += [f"  br label %end{k}", f"end{k}:", f"  %next{k} = add i64 %i{k}, 1"]
        self.lines.append(f"  %more{k} = icmp slt i64 %next{k}, {shape[0]}")
        self.lines += [f"  br i1 %more{k}, label %loop{k}, label %done{k}", f"done{k}:"]

    def kernel(self, node: Node) -> None:
        """The loops that compute one stored node."""

        def write(indices: list[str]) -> None:
            result = self.value(node, indices, inside=True)
            self.lines.append(f"  store double {result}, ptr {self.address(node, indices)}")

        def accumulate(indices: list[str]) -> None:
            term = self.value(node.inputs[0], indices)
            place = self.address(node, [self.index(row, indices) for row in node.detail])
            result = self.let(f"fadd double {self.let(f'load double, ptr {place}')}, {term}")
            self.lines.append(f"  store double {result}, ptr {place}")

        if node.family == "reduce":
            self.loops(node.inputs[0].shape, accumulate)
        else:
            self.loops(node.shape, write)


# --- program
class Program:
    """Outputs as a function of inputs: `Program([loss], [x, y])(numbers_of_x, numbers_of_y)`."""

    def __init__(self, outputs: list[Node], inputs: list[Node]) -> None:
        self.outputs, self.inputs, self.kernels = outputs, inputs, stored(outputs)
        numbers = {node: k for k, node in enumerate([*inputs, *self.kernels])}
        emitter = Emitter(numbers)
        for node in self.kernels:
            emitter.kernel(node)
        buffers = ", ".join(f"ptr noalias %b{k}" for k in range(len(numbers)))
        self.text = "\n".join(
            ["declare double @llvm.exp.f64(double)", "declare double @llvm.log.f64(double)"]
            + [f"define void @program({buffers}) {{", "entry:", *emitter.lines, "  ret void", "}"]
        )
        self.engine = compiled(self.text)  # holds the machine code
        signature = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(numbers))
        self.function = signature(self.engine.get_function_address("program"))

    def __call__(self, *values: Any) -> list[np.ndarray]:
        given = [np.ascontiguousarray(value, np.float64) for value in values]
        if [one.shape for one in given] != [node.shape for node in self.inputs]:
            raise ValueError(f"expected the shapes {[node.shape for node in self.inputs]}")
        made = {node: np.zeros(node.shape) for node in self.kernels}
        self.function(*(array.ctypes.data for array in [*given, *made.values()]))
        return [made[output] for output in self.outputs]


def compiled(text: str) -> llvm.ExecutionEngine:
    """Machine code of a text in LLVM's language, for this processor."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=3)
    module = llvm.parse_assembly(text)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(module, builder)
    return llvm.create_mcjit_compiler(module, machine)


# --- training
def main(steps: int = 400, lr: float = 0.3) -> tuple[float, float]:
    """Learns which points lie in a circle; returns the first and the last loss."""
    random = np.random.default_rng(0)
    points = random.uniform(-1, 1, (200, 2))
    inside = ((points**2).sum(1, keepdims=True) < 0.5) * 2.0 - 1.0  # 1 or -1

    x, y = Node("input", (200, 2)), Node("input", (200, 1))
    parameters = [Node("input", shape) for shape in [(2, 16), (16,), (16, 1), (1,)]]
    w1, b1, w2, b2 = parameters
    score = tanh(x @ w1 + b1) @ w2 + b2
    loss = total(log(1.0 + exp(score * y * -1.0))) * (1 / 200)
    updated = [p - lr * slope for p, slope in zip(parameters, gradients(loss, parameters))]
    # Forward, backward and the update are one program.
    step = Program([loss, *updated], [x, y, *parameters])

    values = [random.normal(0, 1, node.shape) for node in parameters]
    losses = []
    for _ in range(steps):
        now, *values = step(points, inside, *values)
        losses.append(float(now))
    print(f"{len(topological(step.outputs))} nodes in {len(step.kernels)} kernels")
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
    return losses[0], losses[-1]


if __name__ == "__main__":
    main()
