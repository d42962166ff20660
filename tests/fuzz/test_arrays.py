"""Random programs whose tensors and arrays share memory, compared with PyTorch.

Arrays are written while results are pending, tensors are written in place while arrays show them,
and both disappear in between. `METAOP_FUZZ_COUNT` and `METAOP_FUZZ_SEED` are those of the random
programs.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import metaop

torch = pytest.importorskip("torch")

COUNT = int(os.environ.get("METAOP_FUZZ_COUNT", "100"))
FIRST_SEED = int(os.environ.get("METAOP_FUZZ_SEED", "0"))
STEPS = 30
# Matrices of the last shape are too large to be copied whenever a call reads them.
SHAPES = ((3, 4), (4, 4), (2, 8), (130, 140))

BORROWED = {
    "whole": lambda a: a,
    "rows": lambda a: a[1:],
    "every other": lambda a: a[::2],
    "columns": lambda a: a[:, 1:],
    "transposed": lambda a: a.T,
    "a row": lambda a: a[1],
}
VIEWS = {
    "rows": lambda t: t[1:],
    "transposed": lambda t: t.t(),
    "a row": lambda t: t[0],
    "every other": lambda t: t[..., ::2],
    "detached": lambda t: t.detach(),
    "data": lambda t: t.data,
    "itself": lambda t: t[None][0],
}
WRITES = {
    "add_": lambda t, c: t.add_(c),
    "mul_": lambda t, c: t.mul_(2).remainder_(7),
    "set": lambda t, c: t.__setitem__(0, c),
    "set last": lambda t, c: t.__setitem__((..., -1), c),
    "+=": lambda t, c: t.__iadd__(t),
    "copy_": lambda t, c: t.copy_(t.flip(0)),
    "fill_": lambda t, c: t.fill_(c),
    "row": lambda t, c: t[:1].sub_(c),
    "data": lambda t, c: t.data.clamp_(max=c),
}
ARRAY_WRITES = {
    "add": lambda a, c: np.add(a, c, out=a),
    "set": lambda a, c: a.__setitem__(0, c),
    "set last": lambda a, c: a.__setitem__((..., -1), c),
    "fill": lambda a, c: a.fill(c),
}
CALLS = {
    "scaled": lambda T, t: t * 2 + 1,
    "sum": lambda T, t: t.sum(),
    "sum of rows": lambda T, t: t.sum(-1),
    "largest": lambda T, t: t.max(0).values,
    "places": lambda T, t: t.argmax(-1),
    "gathered": lambda T, t: t[T.tensor([1, 0, 1])],
    "joined": lambda T, t: T.cat([t, t * 2]),
    "product": lambda T, t: t.reshape(t.shape[0], -1).t() @ t.reshape(t.shape[0], -1),
    "cloned": lambda T, t: t.clone(),
    "sorted": lambda T, t: T.sort(t, dim=0)[0],
}


class Program:
    """A random program, the same for each framework and seed."""

    def __init__(self, T: Any, seed: int) -> None:
        self.T = T
        self.draw = np.random.default_rng(seed)
        self.arrays: list[np.ndarray] = []
        self.tensors: list[Any] = []
        self.results: list[Any] = []

    def run(self) -> list[Any]:
        """The values of all that is left."""
        self.step_array()
        self.step_tensor()
        steps = [getattr(self, name) for name in dir(self) if name.startswith("step_")]
        for _ in range(STEPS):
            steps[self.draw.integers(len(steps))]()
        left = [*self.arrays, *self.tensors, *self.results]
        return [np.array(one.tolist(), np.float64) for one in left]

    def one_of(self, items: Any) -> Any:
        """A random element, of a dict a value; the draw does not depend on the values."""
        items = list(items.values()) if isinstance(items, dict) else items
        return items[self.draw.integers(len(items))]

    def matrix(self) -> np.ndarray:
        """A new matrix of small integers."""
        return self.draw.integers(0, 7, self.one_of(SHAPES)).astype(np.float32)

    def number(self) -> int:
        return int(self.draw.integers(1, 6))

    def some(self, items: list[Any]) -> Any:
        """A random one of those that have at least two rows, or None."""
        found = [one for one in items if one.ndim > 0 and one.shape[0] > 1]
        return self.one_of(found) if found else None

    def step_array(self) -> None:
        array = self.matrix()
        self.arrays.append(array)
        self.tensors.append(self.T.from_numpy(self.one_of(BORROWED)(array)))

    def step_borrowed(self) -> None:
        array = self.some(self.arrays)
        if array is not None:
            array = self.one_of(BORROWED)(array) if array.ndim == 2 else array
            self.tensors.append(self.T.as_tensor(array))

    def step_temporary(self) -> None:
        self.tensors.append(self.T.from_numpy(self.matrix()))

    def step_tensor(self) -> None:
        self.tensors.append(self.T.tensor(self.matrix()) + 1)

    def step_lent(self) -> None:
        tensor = self.one_of(self.tensors)
        self.arrays.append(np.asarray(tensor) if self.draw.random() < 0.3 else tensor.numpy())

    def step_view(self) -> None:
        tensor = self.some([t for t in self.tensors if t.ndim == 2])
        if tensor is not None:
            self.tensors.append(self.one_of(VIEWS)(tensor))

    def step_write(self) -> None:
        tensor = self.some(self.tensors)
        if tensor is not None:
            self.one_of(WRITES)(tensor, self.number())

    def step_written_by_another(self) -> None:
        tensor = self.some(self.tensors)
        if tensor is not None:
            same = [t for t in self.tensors if t.shape == tensor.shape]
            tensor.copy_(self.one_of(same) * 1)

    def step_write_array(self) -> None:
        array = self.some(self.arrays)
        if array is not None:
            self.one_of(ARRAY_WRITES)(array, self.number())

    step_write_array_again = step_write_array

    def step_call(self) -> None:
        tensor = self.some(self.tensors)
        if tensor is not None:
            self.results.append(self.one_of(CALLS)(self.T, tensor))

    step_call_again = step_call

    def step_result_is_used(self) -> None:
        if self.results:
            result = self.one_of(self.results)
            (self.tensors if result.dtype == self.T.float32 else self.results).append(result)

    def step_read(self) -> None:
        if self.results:
            self.one_of(self.results).tolist()

    def step_drop(self) -> None:
        kept = self.one_of([self.arrays, self.tensors])
        if len(kept) > 1:
            del kept[self.draw.integers(len(kept))]


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + COUNT))
def test_arrays_and_tensors_see_what_the_other_writes(seed: int) -> None:
    theirs, ours = Program(torch, seed).run(), Program(metaop, seed).run()
    for k, (a, b) in enumerate(zip(theirs, ours, strict=True)):
        np.testing.assert_allclose(b, a, rtol=1e-5, err_msg=f"value {k}")
