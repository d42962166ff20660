"""Random programs of views, functions, reductions and in-place updates against NumPy.

Each program runs lazily in metaop and eagerly in NumPy, whose views share memory too, so aliasing
is checked as well. `METAOP_FUZZ_COUNT` sets how many programs run, `METAOP_FUZZ_SEED` the first
seed; a failure names its seed and prints the program.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaop
import metaop.nn.functional as functional

COUNT = int(os.environ.get("METAOP_FUZZ_COUNT", "100"))
FIRST_SEED = int(os.environ.get("METAOP_FUZZ_SEED", "0"))

UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exp": np.exp,
    "tanh": np.tanh,
    "sin": np.sin,
    "abs": np.abs,
    "neg": np.negative,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "square": np.square,
    "floor": np.floor,
    "sqrt": lambda x: np.sqrt(np.abs(x)),
}
BINARY: dict[str, Callable[[Any, Any], np.ndarray]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
REDUCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "sum": np.sum,
    "mean": np.mean,
    "amax": np.max,
    "amin": np.min,
}


class Program:
    """A random program, run step by step on both sides."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.log: list[str] = []
        self.values: list[tuple[metaop.Tensor, np.ndarray]] = []
        for _ in range(2):
            rank = int(self.random.integers(1, 4))
            shape = tuple(int(n) for n in self.random.integers(1, 9, rank))
            array = self.random.standard_normal(shape).astype(np.float32)
            self.keep(f"input {shape}", metaop.tensor(array), array.copy())

    def keep(self, text: str, tensor: metaop.Tensor, array: np.ndarray) -> None:
        self.log.append(f"v{len(self.values)} = {text}")
        self.values.append((tensor, np.asarray(array)))

    def pick(self) -> int:
        return int(self.random.integers(len(self.values)))

    def choose(self, options: Any) -> Any:
        options = list(options)
        return options[int(self.random.integers(len(options)))]

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.choose(
                (self.unary, self.unary, self.binary, self.binary, self.reduce, self.view,
                 self.view, self.in_place, self.write, self.softmax, self.matmul, self.gather)
            )()  # fmt: skip
            if self.random.random() < 0.1:
                self.compare(self.pick())
        for position in range(len(self.values)):
            self.compare(position)

    def compare(self, position: int) -> None:
        tensor, array = self.values[position]
        actual = tensor.numpy()
        context = f"v{position}\n" + "\n".join(self.log)
        assert actual.shape == array.shape, context
        scale = max(float(np.max(np.abs(array), initial=0.0, where=np.isfinite(array))), 1.0)
        np.testing.assert_allclose(actual, array, rtol=2e-4, atol=2e-4 * scale, err_msg=context)

    # --- steps ------------------------------------------------------------------------------

    def unary(self) -> None:
        k, name = self.pick(), self.choose(UNARY)
        tensor, array = self.values[k]
        if name == "exp":
            tensor, array = metaop.tanh(tensor), np.tanh(array)
        if name == "sqrt":
            result = metaop.sqrt(metaop.abs(tensor))
        elif name == "floor":
            # Rounding noise must not decide: stay away from whole numbers.
            result, array = metaop.floor(tensor * 0 + 0.5), array * 0 + 0.5
        else:
            result = getattr(metaop, name)(tensor)
        self.keep(f"{name}(v{k})", result, UNARY[name](array))

    def binary(self) -> None:
        k, j, name = self.pick(), self.pick(), self.choose(BINARY)
        left, right = self.values[k], self.values[j]
        try:
            array = BINARY[name](left[1], right[1])
        except ValueError:
            number = float(np.float32(self.random.standard_normal()))
            array = BINARY[name](left[1], np.float32(number))
            if name in ("maximum", "minimum"):
                result = getattr(metaop, name)(left[0], metaop.tensor(number))
            else:
                result = getattr(metaop, name)(left[0], number)
            self.keep(f"{name}(v{k}, {number})", result, array)
            return
        if array.size > 4096:
            return
        result = getattr(metaop, name)(left[0], right[0])
        self.keep(f"{name}(v{k}, v{j})", self.bounded(result), self.bounded(array))

    @staticmethod
    def bounded(value: Any) -> Any:
        """Keeps magnitudes small, so that errors stay comparable."""
        return (
            metaop.clamp(value, -50, 50)
            if isinstance(value, metaop.Tensor)
            else np.clip(value, -50, 50)
        )

    def reduce(self) -> None:
        k, name = self.pick(), self.choose(REDUCTIONS)
        tensor, array = self.values[k]
        if array.ndim == 0:
            return
        dims = tuple(
            sorted({int(d) for d in self.random.integers(0, array.ndim, self.choose((1, 2)))})
        )
        keep = bool(self.random.integers(2))
        result = getattr(metaop, name)(tensor, dims, keepdim=keep)
        expected = REDUCTIONS[name](array, axis=dims, keepdims=keep)
        text = f"{name}(v{k}, {dims}, {keep})"
        self.keep(text, self.bounded(result), self.bounded(np.asarray(expected, np.float32)))

    def view(self) -> None:
        k = self.pick()
        tensor, array = self.values[k]
        if array.ndim == 0:
            return
        kind = self.choose(
            ("transpose", "slice", "select", "reshape", "flip", "pad", "roll", "cat")
        )
        dim = int(self.random.integers(array.ndim))
        size = array.shape[dim]
        if kind == "transpose":
            other = int(self.random.integers(array.ndim))
            result, expected = tensor.transpose(dim, other), np.swapaxes(array, dim, other)
        elif kind == "slice":
            start = int(self.random.integers(size))
            step = int(self.random.integers(1, 3))
            index = (slice(None),) * dim + (slice(start, None, step),)
            result, expected = tensor[index], array[index]
        elif kind == "select":
            index = (slice(None),) * dim + (int(self.random.integers(size)), ...)
            result, expected = tensor[index], array[index]
        elif kind == "reshape":
            result, expected = tensor.reshape(-1), np.array(array.reshape(-1))
            result = result.clone()
        elif kind == "flip":
            result, expected = metaop.flip(tensor, (dim,)), np.flip(array, dim).copy()
        elif kind == "roll":
            shift = int(self.random.integers(-5, 6))
            result, expected = metaop.roll(tensor, shift, dim), np.roll(array, shift, dim)
        elif kind == "cat":
            result = metaop.cat([tensor, tensor], dim)
            expected = np.concatenate([array, array], dim)
        else:
            before, after = int(self.random.integers(3)), int(self.random.integers(3))
            widths = [(0, 0)] * array.ndim
            widths[-1] = (before, after)
            result = functional.pad(tensor, (before, after), value=1.5)
            expected = np.pad(array, widths, constant_values=1.5)
        if expected.size <= 4096:
            self.keep(f"{kind}(v{k}, dim {dim})", result, expected)

    def in_place(self) -> None:
        k, name = self.pick(), self.choose(("add_", "mul_", "relu_", "zero_"))
        tensor, array = self.values[k]
        number = float(np.float32(self.random.uniform(0.5, 1.5)))
        if name == "add_":
            tensor.add_(number)
            array += np.float32(number)
        elif name == "mul_":
            tensor.mul_(number)
            array *= np.float32(number)
        elif name == "relu_":
            tensor.relu_()
            np.maximum(array, 0, out=array)
        else:
            tensor.zero_()
            array[...] = 0
        self.log.append(f"v{k}.{name}({number})")

    def write(self) -> None:
        k = self.pick()
        tensor, array = self.values[k]
        if array.ndim == 0:
            return
        start = int(self.random.integers(array.shape[0]))
        number = float(np.float32(self.random.standard_normal()))
        tensor[start:] = number
        array[start:] = np.float32(number)
        self.log.append(f"v{k}[{start}:] = {number}")

    def softmax(self) -> None:
        k = self.pick()
        tensor, array = self.values[k]
        if array.ndim == 0:
            return
        dim = int(self.random.integers(array.ndim))
        exponential = np.exp(array - array.max(dim, keepdims=True))
        expected = exponential / exponential.sum(dim, keepdims=True)
        self.keep(f"softmax(v{k}, {dim})", functional.softmax(tensor, dim), expected)

    def matmul(self) -> None:
        k = self.pick()
        tensor, array = self.values[k]
        if array.ndim != 2:
            return
        expected = array @ array.T / np.float32(array.shape[1])
        result = tensor @ tensor.T / array.shape[1]
        self.keep(f"v{k} @ v{k}.T", self.bounded(result), self.bounded(expected))

    def gather(self) -> None:
        k = self.pick()
        tensor, array = self.values[k]
        if array.ndim == 0:
            return
        index = self.random.integers(-array.shape[0], array.shape[0], 4)
        self.keep(f"v{k}[{index.tolist()}]", tensor[metaop.tensor(index)], array[index])


@pytest.mark.parametrize("block", range(10))
def test_random_programs_agree_with_numpy(block: int) -> None:
    for seed in range(FIRST_SEED + block, FIRST_SEED + COUNT, 10):
        program = Program(seed)
        try:
            program.run(14)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}\n" + "\n".join(program.log)) from error
