"""Random programs of views, writes in place and gradients, compared with PyTorch.

Where PyTorch refuses a program, metaop may refuse it or have the right gradient; where PyTorch runs
it, values, gradients and what requires a gradient are equal. `METAOP_FUZZ_COUNT` and
`METAOP_FUZZ_SEED` are those of the random programs.
"""

from __future__ import annotations

import os
import warnings
from operator import attrgetter
from typing import Any

import numpy as np
import pytest

import metaop

torch = pytest.importorskip("torch")

COUNT = int(os.environ.get("METAOP_FUZZ_COUNT", "100"))
FIRST_SEED = int(os.environ.get("METAOP_FUZZ_SEED", "0"))
STEPS = 25
GRADIENT = attrgetter("grad")
SHAPES = ((3, 4), (4, 4), (4,), (2, 3, 4))

VIEWS = {
    "rows": lambda T, t: t[1:],
    "first": lambda T, t: t[0],
    "transposed": lambda T, t: t.transpose(0, -1),
    "flat": lambda T, t: t.reshape(-1),
    "every other": lambda T, t: t[..., ::2],
    "expanded": lambda T, t: t.unsqueeze(0).expand(2, *t.shape)[1],
    "narrowed": lambda T, t: t.narrow(-1, 1, 2),
    "selected": lambda T, t: t.select(0, -1),
    "view as": lambda T, t: t.view_as(t),
    "diagonal": lambda T, t: t.diagonal() if t.dim() > 1 else t,
}
CALLS = {
    "mul": lambda T, a, b: a * b,
    "add": lambda T, a, b: a + b * 0.5,
    "sub": lambda T, a, b: a - b,
    "tanh": lambda T, a, b: a.tanh(),
    "exp": lambda T, a, b: (a * 0.3).exp(),
    "sigmoid": lambda T, a, b: T.sigmoid(a),
    "relu": lambda T, a, b: T.relu(a),
    "square": lambda T, a, b: a**2,
    "softmax": lambda T, a, b: a.softmax(-1),
    "sum": lambda T, a, b: a.sum(-1, keepdim=True) + b,
    "mean": lambda T, a, b: a - a.mean(),
    "max": lambda T, a, b: T.maximum(a, b),
    "where": lambda T, a, b: T.where(a > b, a, b * 2),
    "cat": lambda T, a, b: T.cat([a, b])[: a.shape[0]],
    "stack": lambda T, a, b: T.stack([a, b]).sum(0),
    "cumsum": lambda T, a, b: a.cumsum(-1),
    "flip": lambda T, a, b: a.flip(0) * b,
    "clone": lambda T, a, b: a.clone(),
    "dot": lambda T, a, b: (a * b).sum() * a,
    "index": lambda T, a, b: a[T.tensor([0, 1, 0])].sum(0) + a,
    "sqrt": lambda T, a, b: (a * a + 1).sqrt(),
    "norm": lambda T, a, b: a / (a.norm() + 1),
}
WRITES = {
    "mul_": lambda T, a, b: a.mul_(0.7),
    "mul_ by": lambda T, a, b: a.mul_(b),
    "add_": lambda T, a, b: a.add_(b, alpha=0.3),
    "tanh_": lambda T, a, b: a.tanh_(),
    "copy_": lambda T, a, b: a.copy_(b),
    "zero_": lambda T, a, b: a.zero_(),
    "set row": lambda T, a, b: a.__setitem__(0, b[0] * 2),
    "set last": lambda T, a, b: a.__setitem__((..., -1), 0.5),
    "set where": lambda T, a, b: a.__setitem__(a > 0.2, 0.1),
    "+= row": lambda T, a, b: a[0].add_(1),
    "*= column": lambda T, a, b: a[..., 0].mul_(b[..., 0]),
    "clamp_": lambda T, a, b: a.clamp_(-0.5, 0.5),
    "relu_": lambda T, a, b: T.nn.functional.relu(a, inplace=True),
    "fill": lambda T, a, b: a.masked_fill_(b > 0, 0.3),
    "index_add_": lambda T, a, b: a.index_add_(0, T.tensor([0, 1]), b[:2]),
    "sigmoid_": lambda T, a, b: a.sigmoid_(),
}


class Refused(Exception):
    """PyTorch's or metaop's error for a program."""


class Program:
    """A random program, the same for each framework and seed."""

    def __init__(self, T: Any, seed: int) -> None:
        self.T = T
        self.draw = np.random.default_rng(seed)
        self.leaves: list[Any] = []
        self.tensors: list[Any] = []
        self.hooked: list[Any] = []
        self.log: list[str] = []

    def run(self, steps: int = STEPS) -> list[Any]:
        """All values and gradients at the end."""
        for _ in range(3):
            self.step_leaf()
        names = [name for name in dir(self) if name.startswith("step_")]
        weights = np.array([self.weights.get(name, 1.0) for name in names])
        for _ in range(steps):
            name = names[self.draw.choice(len(names), p=weights / weights.sum())]
            self.log.append(name)
            try:
                getattr(self, name)()
            except (RuntimeError, IndexError) as error:
                raise Refused(f"{type(error).__name__}: {error}") from error
        try:
            self.backward(retain=False)
        except RuntimeError as error:
            raise Refused(f"{type(error).__name__}: {error}") from error
        # Of values that were overwritten, PyTorch has gradients of zeros, and metaop none.
        gradients = [g if g is not None and g.any() else None for g in map(GRADIENT, self.leaves)]
        # PyTorch also passes zeros to the hooks of values that were overwritten.
        hooked = [one for one in self.hooked if one.any()]
        found = [one.detach() for one in self.tensors] + gradients + hooked
        return [None if one is None else np.array(one.tolist()) for one in found] + [
            np.array([one.requires_grad for one in self.tensors]),
            np.array([one.is_leaf for one in self.tensors]),
        ]

    weights = {"step_call": 6.0, "step_write": 4.0, "step_view": 3.0}

    def pick(self, table: dict[str, Any]) -> Any:
        name = list(table)[self.draw.integers(len(table))]
        self.log.append("    " + name)
        return table[name]

    def one(self) -> Any:
        k = int(self.draw.integers(len(self.tensors)))
        self.log.append(f"    #{k}")
        return self.tensors[k]

    def pair(self) -> tuple[Any, Any]:
        """A tensor, and one of the same shape."""
        first = self.one()
        same = [k for k, one in enumerate(self.tensors) if one.shape == first.shape]
        k = same[self.draw.integers(len(same))]
        self.log.append(f"    with #{k}")
        return first, self.tensors[k]

    def step_leaf(self) -> None:
        shape = SHAPES[self.draw.integers(len(SHAPES))]
        values = self.draw.standard_normal(shape)
        leaf = self.T.tensor(values, requires_grad=bool(self.draw.random() < 0.7))
        if leaf.requires_grad:
            self.leaves.append(leaf)
        self.tensors.append(leaf)

    def step_call(self) -> None:
        a, b = self.pair()
        call = self.pick(CALLS)
        if a.dim() and a.shape[0] > 1:
            self.tensors.append(call(self.T, a, b))

    def step_view(self) -> None:
        a = self.one()
        view = self.pick(VIEWS)
        if a.dim() and a.shape[0] > 1 and a.shape[-1] > 2:
            self.tensors.append(view(self.T, a))

    def step_write(self) -> None:
        a, b = self.pair()
        write = self.pick(WRITES)
        quietly = bool(self.draw.random() < 0.25)
        if not a.dim() or a.shape[0] < 2 or (a.is_leaf and a.requires_grad and not quietly):
            return
        if quietly:
            with self.T.no_grad():
                write(self.T, a, b)
        else:
            write(self.T, a, b)

    def step_detach(self) -> None:
        a = self.one()
        self.tensors.append(a.detach() if self.draw.random() < 0.6 else a.detach().clone())

    def step_without_gradient(self) -> None:
        a, b = self.pair()
        with self.T.no_grad():
            self.tensors.append(a * b + 1)

    def step_hook(self) -> None:
        # A fresh value: PyTorch crashes for some views that were written.
        a, doubles = self.one() * 1, bool(self.draw.random() < 0.5)
        if a.requires_grad:
            note = self.hooked.append
            a.register_hook((lambda g: g * 2) if doubles else (lambda g: note(g.detach().clone())))
        self.tensors.append(a)

    def step_read(self) -> None:
        self.one().tolist()

    def step_forget(self) -> None:
        if len(self.tensors) > 4:
            k = int(self.draw.integers(len(self.tensors)))
            self.log.append(f"    #{k}")
            del self.tensors[k]

    def step_backward(self) -> None:
        if self.draw.random() < 0.4:
            self.backward(retain=True)

    def step_gradient(self) -> None:
        a, number = self.one(), self.draw.integers(len(self.leaves) + 1)
        if number < len(self.leaves) and a.requires_grad:
            leaf = self.leaves[number]
            create = bool(self.draw.random() < 0.5)
            (g,) = self.T.autograd.grad(
                a.square().sum(), leaf, retain_graph=True, create_graph=create, allow_unused=True
            )
            if g is not None:
                self.tensors.append(g)

    def backward(self, retain: bool) -> None:
        tracked = [one for one in self.tensors if one.requires_grad]
        if tracked:
            last = tracked[-3:]
            sum((one * one).sum() for one in last).backward(retain_graph=retain)


def outcome(T: Any, seed: int) -> Any:
    program = Program(T, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return program.run(), program.log
        except Refused as refused:
            return str(refused), program.log


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + COUNT))
def test_gradients_of_what_was_written_in_place(seed: int) -> None:
    theirs, log = outcome(torch, seed)
    ours, _ = outcome(metaop, seed)
    if isinstance(theirs, str):
        return
    assert not isinstance(ours, str), (ours, "\n".join(log))
    for k, (a, b) in enumerate(zip(theirs, ours, strict=True)):
        assert (a is None) == (b is None), (k, "\n".join(log))
        if a is not None:
            np.testing.assert_allclose(
                b, a, rtol=1e-6, atol=1e-9, err_msg=f"value {k}\n" + "\n".join(log)
            )
