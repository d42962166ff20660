"""`@metaop.kernel`: a function in restricted Python as an operator on tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from metaop.errors import ArgumentError, ArgumentTypeError, KernelError, user_location
from metaop.kernels.debugger import Debugger
from metaop.kernels.definition import KernelDefinition
from metaop.kernels.gradient import Gradient, differentiable
from metaop.kernels.memory import Buffer
from metaop.kernels.source import Source, source_of
from metaop.tensor.core import Tensor, from_array, wrap
from metaop.unified_graph.code import Code, Result
from metaop.unified_graph.composite import Composite
from metaop.unified_graph.dtype import DType, float64
from metaop.unified_graph.node import Node, Scalar
from metaop.unified_graph.recording import Call, record, results, scalar_leaf
from metaop.unified_graph.symbolic import SymInt


class Output(NamedTuple):
    """The shape and type of a kernel's output.

    With `initial`, it is filled before the kernel runs, for example with 0 for atomic additions.
    """

    shape: Sequence[int]
    dtype: DType
    initial: Scalar | None = None


class _Static(NamedTuple):
    """An argument that is compiled in; its type distinguishes 1 from True."""

    value: Any
    kind: type


class Kernel:
    """A kernel; calling it with tensors and numbers returns its output, or a tuple of outputs.

    Tensors are inputs. Floats are inputs too, so a new value needs no compilation; integers,
    booleans and types are compiled in.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        tasks: Callable[..., Any] | int,
        outputs: Any,
        gradient: Gradient | None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.source: Source = source_of(function)
        self._start(tasks, outputs, gradient)

    @staticmethod
    def of(source: Source, tasks: int, outputs: Any) -> Kernel:
        """The kernel of a source that is not a function."""
        kernel = Kernel.__new__(Kernel)
        kernel.source = source
        kernel._start(tasks, outputs, None)
        return kernel

    def _start(self, tasks: Any, outputs: Any, gradient: Gradient | None) -> None:
        self._tasks = tasks
        self._outputs = outputs
        self._gradient = gradient
        self._composite = Composite(self.source.name, self._expand)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        given = self._bound(arguments, named)
        tensors = [one for one in given if isinstance(one, Tensor)]
        return differentiable(self.source.name, self.launcher(given), tensors, self._gradient)

    def check(self, *arguments: Any, **named: Any) -> Any:
        """Interprets the kernel with all checks, which is slow; returns its outputs.

        Raises IndexError for an access out of bounds, and KernelError for a race between tasks (or
        iterations of `lanes`) or a read of uninitialised memory; both name the line.
        """
        call, arrays = self._on_arrays(arguments, named)
        made = zip(_definition(call).run(arrays), results(call))
        tensors = [from_array(array, one.type.dtype) for array, one in made]
        return tensors[0] if len(tensors) == 1 else tuple(tensors)

    def debug(self, *arguments: Any, **named: Any) -> Debugger:
        """A debugger that steps through the kernel on these inputs, from its start.

        The kernel is interpreted and checked as by `check`. See `metaop.kernels.Debugger`.

        Example:
            >>> run = row_sums.debug(metaop.ones(2, 3))
            >>> run.step()
            >>> run.values(task=1)["total"]
            0.0
        """
        call, arrays = self._on_arrays(arguments, named)
        return Debugger(_definition(call), arrays)

    def _on_arrays(
        self, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[Call, list[np.ndarray]]:
        """The call on these arguments, and its operands as arrays."""
        given = self._bound(arguments, named)
        arrays = [one.detach().cpu().numpy() for one in given if isinstance(one, Tensor)]
        numbers = [np.asarray(one, np.float64) for one in given if type(one) is float]
        return self._recorded(given), [*arrays, *numbers]

    def _bound(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
        """The arguments in the order of the parameters."""
        parameters = self.source.parameters
        if len(arguments) > len(parameters):
            raise ArgumentTypeError(
                f"{self.source.name} takes at most {len(parameters)} arguments, got "
                f"{len(arguments)}"
            )
        given = dict(zip(parameters, arguments))
        for name, value in named.items():
            if name not in parameters or name in given:
                raise ArgumentTypeError(f"{self.source.name} does not take {name} here")
            given[name] = value
        listed = [given[name] for name in parameters[: len(given)] if name in given]
        if len(listed) < len(given):
            raise ArgumentTypeError(f"{self.source.name} misses an input before {[*given][-1]}")
        for name, value in given.items():
            if not isinstance(value, (Tensor, bool, int, float, DType)):
                raise ArgumentTypeError(
                    f"{self.source.name}: {name} is a {type(value).__name__}",
                    fix="pass tensors, numbers and types; make arrays tensors with from_numpy()",
                )
        return listed

    def launcher(self, given: Sequence[Any]) -> Callable[[], list[Tensor]]:
        """A function that records the call, without a gradient; `given` is in parameter order."""
        return lambda: [wrap(one) for one in results(self._recorded(given))]

    # --- recording --------------------------------------------------------------------------------

    def _recorded(self, given: Sequence[Any]) -> Call:
        calls = [one.call for one in given if isinstance(one, Tensor)]
        device = calls[0].type.device if calls else None
        for one in given:
            if type(one) is float:
                calls.append(
                    scalar_leaf(one, float64)
                    if device is None
                    else scalar_leaf(one, float64, device)
                )
        spec = tuple(
            Tensor if isinstance(one, Tensor) else float if type(one) is float
            else _Static(one, type(one))
            for one in given
        )  # fmt: skip
        call = record(self._composite, calls, (spec,))
        call.location = user_location()
        return call

    def _expand(self, *operands: Any) -> tuple[Node, ...]:
        """The result nodes for operands: tensors first, then floats."""
        *nodes, spec = operands
        tensors = sum(1 for kind in spec if kind is Tensor)
        queues = {Tensor: iter(range(tensors)), float: iter(range(tensors, len(nodes)))}
        shown: list[Any] = []
        parameters: dict[str, Any] = {}
        for name, kind in zip(self.source.parameters, spec):
            if isinstance(kind, _Static):
                shown.append(kind.value)
                parameters[name] = kind.value
                continue
            position = next(queues[kind])
            node = nodes[position]
            is_number = kind is float
            parameters[name] = Buffer(
                name, node.dtype, node.shape, "global", position, True, is_number
            )
            shown.append(0.0 if is_number else node)
        made = self._results(shown)
        self._add_outputs(parameters, made, len(nodes))
        tasks = self._task_count(shown)
        definition = KernelDefinition(self.source, nodes, made, parameters, tasks)
        return tuple(
            Node(Code(definition, k), tuple(nodes), one.shape, one.dtype)
            for k, one in enumerate(made)
        )

    def _results(self, shown: Sequence[Any]) -> tuple[Result, ...]:
        outputs = self._outputs(*shown) if callable(self._outputs) else self._outputs
        listed = [outputs] if _is_output(outputs) else list(outputs)
        made = []
        for one in listed:
            if isinstance(one, (Node, Tensor)):
                made.append(Result(tuple(one.shape), one.dtype))
                continue
            shape, dtype, *initial = one
            extents = tuple(map(_extent, (shape,) if isinstance(shape, (int, SymInt)) else shape))
            made.append(Result(extents, dtype, *initial))
        return tuple(made)

    def _add_outputs(self, parameters: dict[str, Any], made: Sequence[Result], inputs: int) -> None:
        names = self.source.parameters[len(parameters) :]
        if len(names) != len(made):
            raise KernelError(
                f"{self.source.name} has the parameters {self.source.parameters}; "
                f"{len(parameters)} were given and {len(made)} are outputs",
                fix="the inputs come first, then one parameter for each output",
            )
        for number, (name, one) in enumerate(zip(names, made)):
            parameters[name] = Buffer(name, one.dtype, one.shape, "global", inputs + number)

    def _task_count(self, shown: Sequence[Any]) -> int:
        tasks: Any = self._tasks(*shown) if callable(self._tasks) else self._tasks
        if not isinstance(tasks, (int, SymInt)) or tasks < 0:
            raise ArgumentError(
                f"{self.source.name}: tasks is {tasks!r}", fix="give a number of tasks, or a "
                "function of the inputs that returns one"
            )  # fmt: skip
        return tasks  # type: ignore[return-value]


def _extent(size: Any) -> Any:
    return size if isinstance(size, SymInt) else int(size)


def _is_output(item: Any) -> bool:
    """Whether an item is one output, not a sequence of them."""
    if isinstance(item, (Output, Node, Tensor)):
        return True
    return isinstance(item, tuple) and len(item) in (2, 3) and isinstance(item[1], DType)


def _definition(call: Call) -> KernelDefinition:
    op = call.signature.outputs[0].op  # type: ignore[union-attr]
    assert isinstance(op, Code) and isinstance(op.definition, KernelDefinition)
    return op.definition


def kernel(
    *,
    tasks: Callable[..., int] | int,
    outputs: Any,
    gradient: Gradient | None = None,
) -> Callable[[Callable[..., Any]], Kernel]:
    """Makes an operator of a function in restricted Python, compiled for the CPU and for GPUs.

    The parameters of the function are the inputs, then the outputs. `tasks` (a number, or a
    function of the inputs) says how often it runs, side by side; `outputs` (a function of the
    inputs) gives `Output`s, pairs of shape and type, or tensors to be like. `gradient(inputs,
    outputs, cotangents)` gives the gradient of every tensor among the inputs, or None; it may be
    another kernel, which takes all of these one after another.

    The line of the function is named by every error: KernelError for what kernels cannot say,
    IndexError for an access outside of a tensor.

    >>> from metaop.kernels import lanes, task
    >>> @metaop.kernel(tasks=lambda x: x.shape[0], outputs=lambda x: (x.shape[:1], x.dtype))
    ... def row_sums(x, y):
    ...     total = 0.0
    ...     for column in lanes(x.shape[1]):
    ...         total += x[task(), column]
    ...     y[task()] = total
    >>> row_sums(metaop.ones(2, 3))
    tensor([3., 3.])
    """
    return lambda function: Kernel(function, tasks, outputs, gradient)
