"""A training program as data, and as the Python text that runs it with torch or metaop."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any

import torch

from tests.fuzz.training.catalogue import ENTRIES, JOINS, MODULES
from tests.fuzz.training.helpers import TORCH, helpers_of
from tests.fuzz.training.loops import LOSSES

# A value is no larger: programs are many, not big.
_MOST_VALUES = 6500
_RANKS = (2, 3, 4, 5)


class Unfit(Exception):
    """PyTorch refuses an operation here."""


@dataclass(frozen=True)
class Operation:
    """One operation on `x`: an entry of the catalogue with options, or a statement, or a branch.

    The kinds apart from the catalogue are "keep", "read" and "write", whose `text` is Python, and
    "branch", which runs both `branches` on `x` and joins them as `text` says.
    """

    kind: str
    options: tuple[tuple[str, Any], ...] = ()
    text: str = ""
    branches: tuple[tuple[Operation, ...], ...] = ()


@dataclass(frozen=True)
class Program:
    """A model and what happens in every step of its training."""

    shape: tuple[int, ...]  # of the input, without the batch
    operations: tuple[Operation, ...]
    loss: str
    optimizer: str
    batches: tuple[int, ...] = (2, 3, 2)
    tokens: int = 0  # so many different tokens are the input; 0: real numbers
    flat: bool = False  # the loss sees one axis
    jit: bool = False
    accumulate: int = 1
    input_gradient: bool = False
    frozen: bool = False  # the first parameter does not learn
    hold_result: bool = True  # the result of the model lives until the step is done
    hold_kept: str = "last"  # the kept values of "no", the "last" or "all" steps live on
    set_to_none: bool = True
    read_before: str = ""  # statements on the result `x` or the loss
    read_after: str = ""
    term: str = ""  # statements that add to the loss: a gradient of the gradient, the model again
    backward: str = "loss.backward()"
    twice: bool = False  # backward runs twice over one graph
    decay: bool = False  # the loss has a term of all parameters
    auxiliary: bool = False  # the loss has a term of the kept values
    clip: str = ""
    observe: str = "end"  # gradients and parameters: at the "end", "clones" or "reads" every step
    scheduler: str = ""
    evaluate: bool = False  # a prediction in evaluation mode follows every step
    prepare: str = ""  # statements before the first step
    between: str = ""  # statements behind each step


class Body:
    """The lines of the model, written operation by operation while PyTorch tells the shapes."""

    def __init__(self, shape: tuple[int, ...], tokens: int) -> None:
        self.lines: list[str] = []
        self.modules: list[str] = []
        self.value = torch.rand(2, *shape) + 0.1
        if tokens:
            self.modules.append(f"T.nn.Embedding({tokens}, 4)")
            self.lines.append("x = modules[0](x)")
            self.value = torch.rand(2, *shape, 4) + 0.1
        self._branches = 0

    def add(self, operation: Operation) -> None:
        """Writes an operation; raises `Unfit`, and writes nothing, where PyTorch refuses it."""
        before = len(self.lines), len(self.modules), self.value
        try:
            if operation.kind == "branch":
                self._branch(operation)
            elif operation.kind in ENTRIES:
                self._entry(operation)
            else:
                self._statement(operation)
        except Unfit:
            del self.lines[before[0] :], self.modules[before[1] :]
            self.value = before[2]
            raise

    def _entry(self, operation: Operation) -> None:
        entry = ENTRIES[operation.kind]
        holes = self._holes() | dict(operation.options)
        if self.value.ndim not in entry.ranks:
            raise Unfit
        text = entry.text.format(**holes)
        if operation.kind in MODULES:
            made = f"T.nn.{operation.kind}{text}" if text.startswith("(") else text
            module = self._try(made, {})
            if not isinstance(module, torch.nn.Module):
                raise Unfit
            line = entry.use.format(m=f"modules[{len(self.modules)}]", **holes)
            value = self._try(entry.use.format(m="module", **holes), {"module": module})
            self.modules.append(made)
        else:
            line, value = text, self._try(text, {})
        if value.ndim not in _RANKS or value.shape[0] != 2 or not 0 < value.numel() <= _MOST_VALUES:
            raise Unfit
        self.value = value.detach()
        self.lines.append(f"x = {line}")

    def _holes(self) -> dict[str, Any]:
        shape = list(self.value.shape)
        return {"c": shape[1], "f": shape[-1], "rest": shape[1:], "spatial": shape[2:]}

    def _statement(self, operation: Operation) -> None:
        if operation.kind == "write":
            text = operation.text
            self._run(text)
        else:
            self._try(operation.text, {})
            keep = operation.kind == "keep"
            text = f"kept.append({operation.text})" if keep else operation.text
        self.lines.append(text)

    def _branch(self, operation: Operation) -> None:
        number = self._branches
        self._branches += 1
        start, values = self.value, []
        source, names = f"source{number}", [f"left{number}", f"right{number}"]
        self.lines.append(f"{source} = x")
        for name, branch in zip(names, operation.branches):
            self.lines.append(f"x = {source}")
            self.value = start
            for one in branch:
                self.add(one)
            self.lines.append(f"{name} = x")
            values.append(self.value)
        text = JOINS[operation.text].format(a=names[0], b=names[1])
        value = self._try(text, dict(zip(names, values)))
        if not 0 < value.numel() <= _MOST_VALUES:
            raise Unfit
        self.value = value
        self.lines.append(f"x = {text}")

    def _try(self, text: str, names: dict[str, Any]) -> Any:
        try:
            return eval(text, {**TORCH, "x": self.value.clone(), **names})
        except Exception as error:
            raise Unfit from error

    def _run(self, text: str) -> None:
        try:
            exec(text, {**TORCH, "x": self.value.clone()})
        except Exception as error:
            raise Unfit from error


def body(program: Program) -> Body:
    """The written model; raises `Unfit` where PyTorch refuses an operation."""
    written = Body(program.shape, program.tokens)
    for operation in program.operations:
        written.add(operation)
    return written


def text(program: Program) -> str:
    """The program as Python: `run(T, number, seed)` gives all compared values by name."""
    model = body(program)
    shape = list(model.value.shape[1:])
    arguments = ", ".join(map(str, program.shape))
    given = f"numbers(b, {arguments})"
    if program.tokens:
        given = f"labels({program.tokens}, b, {arguments})"
    elif program.input_gradient:
        given += ".requires_grad_()"
    return _FRAME.format(
        helpers=_indented(helpers_of("\n".join(model.modules + model.lines)).splitlines(), 1),
        modules="".join(f"        {one},\n" for one in model.modules),
        frozen="parameters.pop(0).requires_grad_(False)" if program.frozen else "",
        optimizer=program.optimizer,
        scheduler=_scheduler(program.scheduler),
        prepare=_indented([program.prepare], 1),
        forward=_indented(model.lines, 2),
        zero=f"optimizer.zero_grad(set_to_none={program.set_to_none})",
        inner=_indented(_micro_step(program), 3),
        outer=_indented([program.clip, "optimizer.step()"], 2),
        jit="step = T.jit(step, fallback=True) if T.__name__ == 'metaop' else step"
        if program.jit
        else "",
        batches=repr(program.batches),
        accumulate=program.accumulate,
        given=given,
        wanted=_wanted(program, shape),
        after=_indented(_after_step(program), 2),
    ).replace("\n    \n", "\n")


def _scheduler(name: str) -> str:
    return f"scheduler = T.optim.lr_scheduler.{name}" if name else ""


def _indented(lines: list[str], depth: int) -> str:
    return textwrap.indent("\n".join(line for line in lines if line), "    " * depth)


def _wanted(program: Program, shape: list[int]) -> str:
    """The text of the targets `y`."""
    kind = LOSSES[program.loss][1]
    if kind == "nothing":
        return "labels(2, 1)"
    if kind == "labels":
        return f"labels({shape[0]}, " + ", ".join(map(str, ["b", *shape[1:]])) + ")"
    if program.flat:
        size = 1
        for extent in shape:
            size *= extent
        return f"numbers(b * {size})"
    return "numbers(" + ", ".join(map(str, ["b", *shape])) + ")"


def _micro_step(program: Program) -> list[str]:
    """The lines from the forward pass to `backward`, for one part of a batch."""
    flat = ".flatten()" if program.flat else ""
    loss = LOSSES[program.loss][0]
    lines = ["taken = x"] if "taken" in program.term else []
    if program.hold_result:
        lines.append(f"x = forward(x, kept){flat}")
        lines += [program.read_before, f"loss = {loss}"]
    else:
        lines.append(f"loss = (lambda x: {loss})(forward(x, kept){flat})")
    if program.decay:
        lines.append("loss = loss + 0.01 * sum(p.square().sum() for p in parameters)")
    if program.auxiliary:
        lines.append("loss = loss + 0.1 * sum(k.square().mean() for k in kept if k.requires_grad)")
    lines.append(program.term)
    if program.accumulate > 1:
        lines.append(f"loss = loss / {program.accumulate}")
    if program.twice:
        lines.append("loss.backward(retain_graph=True)")
    lines += [program.backward, "kept.append(loss)"]
    if program.hold_result or "loss" in program.read_after:
        lines.append(program.read_after)
    return lines


def _after_step(program: Program) -> list[str]:
    """The lines that follow a step: what is held and what is compared."""
    lines = ["scheduler.step()"] if program.scheduler else []
    if program.hold_kept == "no":
        lines.append("found[f'loss {t}'] = kept[-1]")
    elif program.hold_kept == "last":
        lines.append("found.update({f'kept {k}': value for k, value in enumerate(kept)})")
        lines.append("found[f'loss {t}'] = kept[-1]")
    else:
        lines.append("found.update({f'kept {t} {k}': value for k, value in enumerate(kept)})")
    lines.append("del kept")
    if program.observe != "end":
        value = "p.grad.clone()" if program.observe == "clones" else "array(p.grad)"
        lines += [
            "for k, p in enumerate(parameters):",
            "    if p.grad is not None:",
            f"        found[f'gradient {{t}} {{k}}'] = {value}",
        ]
    if program.input_gradient:
        lines.append("found.update({f'input {t} {k}': x.grad for k, x in enumerate(batch[::2])})")
    if program.evaluate:
        lines += [
            "modules.eval()",
            "with T.no_grad():",
            "    found[f'prediction {t}'] = forward(batch[0].detach(), [])",
            "modules.train()",
        ]
    return [*lines, program.between]


_FRAME = """\
import copy
import io

import numpy as np


def run(T, number="float32", seed=0):
    F, dtype = T.nn.functional, getattr(T, number)
    random = np.random.default_rng(seed)

    def numbers(*shape):
        return T.tensor(random.standard_normal(shape), dtype=dtype)

    def labels(count, *shape):
        return T.tensor(random.integers(0, count, shape))

    def array(value):
        return np.array(value.detach().tolist(), np.float64).reshape(tuple(value.shape))

{helpers}

    modules = T.nn.ModuleList([
{modules}    ]).to(dtype)
    parameters = list(modules.parameters())
    with T.no_grad():
        for p in parameters:
            scale = 0.3 if p.ndim < 2 else (p.shape[0] / p.numel()) ** 0.5
            p.copy_(numbers(*p.shape) * scale + (0.3 if p.ndim < 2 else 0))
    {frozen}
    optimizer = T.optim.{optimizer}
    {scheduler}
{prepare}

    def forward(x, kept):
{forward}
        return x

    def step(*batch):
        kept = []
        {zero}
        for x, y in zip(batch[::2], batch[1::2]):
{inner}
{outer}
        return kept

    {jit}
    found = {{}}
    for t, b in enumerate({batches}):
        batch = []
        for _ in range({accumulate}):
            batch += [{given}, {wanted}]
        kept = step(*batch)
{after}
    found.update({{f"gradient {{k}}": p.grad for k, p in enumerate(parameters)}})
    found.update({{f"parameter {{k}}": p for k, p in enumerate(modules.parameters())}})
    found.update({{f"buffer {{k}}": p for k, p in enumerate(modules.buffers())}})
    return {{
        name: value if isinstance(value, np.ndarray) else array(value)
        for name, value in found.items()
        if value is not None
    }}
"""
