"""`metaop.code`: an operator whose source is an argument of the call."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from string import Template
from typing import Any

import numpy as np

from metaop.codegen.cuda.types import storage_type as cuda_type
from metaop.codegen.llvm.emission.memory import storage_type as llvm_type
from metaop.codegen.llvm.machine import host_machine
from metaop.codegen.llvm.objects import object_code
from metaop.codegen.llvm.program import LLVMProgram
from metaop.codegen.memory.buffers import Buffer
from metaop.codegen.nest import ir
from metaop.compiler import schedule
from metaop.errors import ArgumentError, InternalError, KernelError, user_location
from metaop.kernels import cplusplus, language
from metaop.kernels.gradient import Gradient, differentiable
from metaop.kernels.kernel import Kernel, Output
from metaop.kernels.source import source_of_text
from metaop.tensor.core import Tensor, wrap
from metaop.unified_graph.code import Code, Result
from metaop.unified_graph.composite import Composite
from metaop.unified_graph.node import Node, input_node
from metaop.unified_graph.recording import record, results

_SYMBOL = "body"
_BACKENDS = {"llvm": "the CPU", "cuda": "GPUs"}
_TYPE_NAMES = {"llvm": llvm_type, "cpp": cplusplus.type_name, "cuda": cuda_type}


class ForeignDefinition:
    """A kernel in the languages of backends, for operands of certain types."""

    def __init__(
        self,
        name: str,
        inputs: Sequence[Node],
        made: tuple[Result, ...],
        texts: tuple[tuple[str, str], ...],
        tasks: int,
        threads: int,
        flags: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.results = made
        self._inputs = inputs
        self._tasks = tasks
        self._threads = threads
        self._texts = {
            backend: Template(text).safe_substitute(self._words(backend)) for backend, text in texts
        }
        if "llvm" in self._texts:
            self._verify(self._texts["llvm"])
        content = repr((sorted(self._texts.items()), made, tasks, threads))
        self.digest = blake2b(content.encode(), digest_size=16).hexdigest()
        self._address: int | None = None
        if "cpp" in self._texts:
            kinds = [one.dtype for one in inputs], [one.dtype for one in made]
            self._address = cplusplus.function_of(name, self._texts["cpp"], *kinds, flags)
            self.digest = ""  # the address is not valid in another process

    def _verify(self, text: str) -> None:
        try:
            object_code.verify(text)
        except InternalError as error:
            raise KernelError(
                f"{self.name}: {error}", fix="correct the text that was passed as llvm="
            ) from None

    def _words(self, backend: str) -> Mapping[str, Any]:
        """The substitutions for `$in0_shape1`, `$out0_type` and the like in a text."""
        named = [(f"in{k}", one.shape, one.dtype) for k, one in enumerate(self._inputs)]
        named += [(f"out{k}", one.shape, one.dtype) for k, one in enumerate(self.results)]
        words: dict[str, Any] = {"tasks": self._tasks}
        type_name = _TYPE_NAMES[backend]
        for name, shape, dtype in named:
            words[f"{name}_type"] = type_name(dtype)
            words[f"{name}_size"] = int(np.prod(shape, dtype=np.int64))
            words.update({f"{name}_shape{k}": extent for k, extent in enumerate(shape)})
        return words

    def nests(self, backend: str) -> Sequence[tuple[ir.LoopNest, tuple[int, ...]]]:
        address = self._address if backend == "llvm" else None
        if backend not in self._texts and address is None:
            raise KernelError(
                f"{self.name} has no source for {_BACKENDS[backend]}",
                fix=f"pass {backend}= or python=, or move the inputs to another device",
            )
        kinds = [one.dtype for one in self._inputs] + [one.dtype for one in self.results]
        count = len(self._inputs)
        parameters = tuple(
            ir.Parameter(dtype, "read" if k < count else "update") for k, dtype in enumerate(kinds)
        )
        buffers = tuple(range(len(kinds)))
        task = ir.Sum(((ir.LoopIndex("task"), 1),), 0)
        if address is None:
            arguments: tuple[int, ...] = ()
            texts = ((backend, self._texts[backend]),)
            call = ir.ForeignCall(_SYMBOL, texts, buffers, task, self._threads)
        else:
            arguments = (address,)
            call = ir.ForeignCall(_SYMBOL, (), buffers, task, address=ir.Argument(0))
        loop = ir.For("task", self._tasks, "parallel", (call,))
        return [(ir.LoopNest(self.name, parameters, arguments, (loop,)), buffers)]

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Runs the compiled CPU source, because Python cannot interpret it."""
        leaves = [input_node(k, one.shape, one.dtype) for k, one in enumerate(self._inputs)]
        outputs = [
            Node(Code(self, k), leaves, one.shape, one.dtype) for k, one in enumerate(self.results)
        ]
        program = LLVMProgram(schedule(leaves, outputs, host_machine()))
        buffers = program.run([Buffer.from_numpy(np.asarray(one, order="C")) for one in inputs])
        return [b.view(one.shape, one.dtype.numpy) for b, one in zip(buffers, self.results)]


def _expand(*operands: Any) -> tuple[Node, ...]:
    *nodes, name, made, texts, tasks, threads, flags = operands
    definition = ForeignDefinition(name, nodes, made, texts, tasks, threads, flags)
    return tuple(
        Node(Code(definition, k), tuple(nodes), one.shape, one.dtype) for k, one in enumerate(made)
    )


_composites: dict[str, Composite] = {}


def code(
    inputs: Sequence[Tensor],
    outputs: Output | Sequence[Output],
    *,
    tasks: int = 1,
    python: str | None = None,
    cpp: str | None = None,
    llvm: str | None = None,
    cuda: str | None = None,
    threads: int = 1,
    flags: Sequence[str] = (),
    gradient: Gradient | None = None,
    name: str = "code",
) -> Any:
    """An operator whose source is a text: its output, or a tuple of outputs.

    `python` is the body of a kernel as `metaop.kernel` takes it, for all devices, on `in0`, `in1`
    …, `out0` …. For the CPU, `cpp` is C++ that defines `void body(const T* in0, …, U* out0, …,
    long long task)`, which the machine's own compiler compiles with `flags` besides its own, and
    `llvm` is LLVM IR that defines `@body(ptr in0, …, ptr out0, …, i64 task)`; `cuda` is CUDA C++
    that defines `__device__ void body(const T* in0, …, U* out0, …, long long task)`, called by
    `threads` threads of a block for every task. `$in0_shape0`, `$in0_size`, `$in0_type` and
    `$tasks` stand for what is known of the operands. `body` runs once for each of `tasks` tasks,
    side by side. `gradient(inputs, outputs, cotangents)` gives the gradients of the inputs. What
    such texts do to memory is not checked: use `python` where you can. ArgumentError for sources
    that do not go together; KernelError for one that its compiler refuses, or without a C++
    compiler.

    Example:
        >>> x = metaop.arange(4.0)
        >>> metaop.code([x], metaop.kernels.Output(x.shape, x.dtype), tasks=4,
        ...             python="out0[task()] = 2 * in0[task()]")
        tensor([0., 2., 4., 6.])
    """
    listed = (outputs,) if isinstance(outputs, Output) else tuple(Output(*one) for one in outputs)
    made = tuple(Result(tuple(one.shape), one.dtype, one.initial) for one in listed)
    tensors = list(inputs)
    given = (("cpp", cpp), ("llvm", llvm), ("cuda", cuda))
    texts = tuple((language, text) for language, text in given if text is not None)
    is_twice = (python is None) is not bool(texts) or None not in (cpp, llvm)
    if is_twice or tasks < 0 or threads < 1 or (flags and cpp is None):
        sources = len(texts) + (python is not None)
        raise ArgumentError(
            f"{name}: {sources} sources, {tasks} tasks, {threads} threads, flags {list(flags)}",
            fix="pass either python=, for all devices, or cpp= or llvm=, and cuda=; at least one "
            "thread; flags= with cpp= only",
        )
    if python is not None:
        launch = _python_kernel(name, python, len(tensors), made, tasks).launcher(tensors)
        return differentiable(name, launch, tensors, gradient)
    composite = _composites.setdefault(name, Composite(name, _expand))

    def record_call() -> list[Tensor]:
        attributes = (name, made, texts, tasks, threads, tuple(flags))
        call = record(composite, [tensor.call for tensor in tensors], attributes)
        call.location = user_location()
        return [wrap(one) for one in results(call)]

    return differentiable(name, record_call, tensors, gradient)


@functools.lru_cache(maxsize=1024)
def _python_kernel(
    name: str, text: str, inputs: int, made: tuple[Result, ...], tasks: int
) -> Kernel:
    """The kernel of a text; equal calls share it and its compiled code."""
    import metaop

    parameters = [f"in{k}" for k in range(inputs)] + [f"out{k}" for k in range(len(made))]
    words = {**{word: function for function, word in language.WORDS.items()}, "metaop": metaop}
    return Kernel.of(source_of_text(name, text, parameters, words), tasks, list(made))
