"""What kernels cannot say is refused, with the line of the user and a fix."""

from __future__ import annotations

import re
from typing import Any

import pytest

import metaop
from metaop.dist.placement import Placement
from metaop.dist.sbp import BROADCAST
from metaop.errors import ArgumentError, ArgumentTypeError, KernelError, UnsupportedError
from metaop.kernels import Output, barrier, kernel, scratch, task
from metaop.tensor.sharded.global_tensor import distribute_tensor

# A body, of which the marked line is wrong, and what the message says.
REFUSED = {
    "while": ("while x[0] > 0:  # here\n    pass", "has no meaning in a kernel"),
    "break": ("for i in range(3):\n    break  # here", "has no meaning in a kernel"),
    "return": ("return  # here", "has no meaning in a kernel"),
    "comprehension": ("y[0] = [1 for i in range(3)][0]  # here", "has no meaning in a kernel"),
    "strings": ("y[0] = 'a'  # here", "is not a number"),
    "method": ("y[0] = x.sum()  # here", "parameters have no sum"),
    "other functions": ("y[0] = len(x)  # here", "cannot be called in a kernel"),
    "tensor functions": ("y[0] = metaop.matmul(x, x)  # here", "cannot be called in a kernel"),
    "keywords": ("y[0] = cast(x[0], dtype=metaop.int64)  # here", "have no keywords"),
    "unknown name": ("y[0] = z  # here", "z is not defined"),
    "input written": ("x[0] = 1.0  # here", "x is an input"),
    "too many indices": ("y[0] = x[0, 0]  # here", "2 indices for 1 dimensions"),
    "too few indices": ("y[0] = 1\nx + 1  # here", "`x` is not a number|has no effect"),
    "float index": ("y[0] = x[x[0]]  # here", "an index is an integer"),
    "constant index outside": ("y[x.shape[0]] = 0  # here", r"index 4 is out of range"),
    "negative index": ("y[-1] = 0  # here", r"index -1 is out of range"),
    "slice assigned": ("y[0:2] = 0  # here", r"names \[2\] elements, not one"),
    "open slice": (
        "n = cast(x[0], metaop.int64)\ncopy(y[0:n], x[0:n])  # here",
        "length of a slice",
    ),
    "shapes of a copy": ("copy(y[0:2], x[0:3])  # here", r"copy\(\) of \[3\] elements to \[2\]"),
    "loop over a tensor": ("for v in x:  # here\n    pass", "loops run over range"),
    "carried by lanes": (
        "a = 0.0\nfor i in lanes(4):  # here\n    a = a * 0.5 + x[i]\ny[0] = a",
        "hand a on from one to the next",
    ),
    "lanes in lanes": (
        "for i in lanes(4):\n    for j in lanes(4):  # here\n        pass",
        "inside",
    ),
    "open lanes": ("for i in lanes(task()):  # here\n    pass", "known only when the kernel runs"),
    "barrier under a condition": ("if x[0] > 0:\n    barrier()  # here", "inside a condition"),
    "value after a barrier": ("a = x[0]\nbarrier()\ny[0] = a  # here", "end at a barrier"),
    "value of one branch": ("if x[0] > 0:\n    a = x[0]\ny[0] = a  # here", "only one branch"),
    "value of a loop": (
        "for i in range(3):\n    a = x[i]\ny[0] = a  # here",
        "it was assigned in a loop",
    ),
    "size of scratch": ("s = scratch(x[0], x.dtype)  # here", "size of a memory must be known"),
    "type of scratch": ("s = scratch(4, 4)  # here", "is not a type"),
    "matrix product": ("y[0] = x[0] @ x[1]  # here", "multiplied element by element"),
    "bits of floats": ("y[0] = x[0] & 1  # here", "does not take float32"),
    "number of operands": ("y[0] = metaop.exp(x[0], x[1])  # here", "exp takes 1 operands"),
    "two targets": ("a = b = x[0]  # here", "one target"),
    "two types gathered": (
        "a = 0.0\nfor i in range(4):\n    a += x[i]\n    a += cast(x[i], metaop.float64)  # here",
        "cast",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    body, message = REFUSED[case]
    text = body.replace("x", "in0").replace("y[", "out0[").replace("(y", "(out0")
    text = text.replace("ein0p", "exp")
    line = next(k for k, one in enumerate(text.splitlines(), 1) if "# here" in one)
    x = metaop.ones(4)
    expected = re.sub(r"\bx\b", "in0", message)
    with pytest.raises(KernelError, match=expected) as caught:
        metaop.code([x], Output(x.shape, x.dtype), tasks=2, python=text)
    assert f"at <code>:{line} in code" in str(caught.value)
    assert "fix: " in str(caught.value)


def test_errors_name_the_line_of_the_file() -> None:
    @kernel(tasks=1, outputs=lambda x: x)
    def wrong(x: Any, y: Any) -> None:
        y[0] = x[0]
        y[1] = undefined  # noqa: F821

    line = wrong.__wrapped__.__code__.co_firstlineno + 3
    with pytest.raises(KernelError, match="undefined is not defined") as caught:
        wrong(metaop.ones(2))
    assert f"{__file__}:{line} in wrong" in str(caught.value)


def test_a_lambda_is_no_kernel() -> None:
    with pytest.raises(KernelError, match="not defined with `def`"):
        kernel(tasks=1, outputs=lambda x: x)(lambda x, y: None)


def test_unknown_source() -> None:
    namespace: dict[str, Any] = {}
    exec("def made(x, y):\n    y[0] = x[0]", namespace)
    with pytest.raises(KernelError, match="source text of a kernel is not known"):
        kernel(tasks=1, outputs=lambda x: x)(namespace["made"])


def test_default_values_are_refused() -> None:
    with pytest.raises(KernelError, match="plain names"):

        @kernel(tasks=1, outputs=lambda x: x)
        def made(x: Any, y: Any = None) -> None:
            y[0] = x[0]


@kernel(tasks=lambda x: x.shape[0], outputs=lambda x: x)
def same(x: Any, y: Any) -> None:
    y[task()] = x[task()]


def test_arguments() -> None:
    x = metaop.ones(3)
    with pytest.raises(ArgumentTypeError, match="x is a list"):
        same([1.0])
    with pytest.raises(ArgumentTypeError, match="at most 2 arguments"):
        same(x, x, x)
    with pytest.raises(ArgumentTypeError, match="does not take z"):
        same(z=x)
    with pytest.raises(KernelError, match="2 were given and 1 are outputs"):
        kernel(tasks=1, outputs=lambda x, y: x)(same.__wrapped__)(x, x)
    with pytest.raises(ArgumentError, match=r"tasks is 1\.5"):
        kernel(tasks=lambda x: 1.5, outputs=lambda x: x)(same.__wrapped__)(x)


def test_words_outside_of_kernels() -> None:
    for word in (task, barrier):
        with pytest.raises(KernelError, match="outside a kernel"):
            word()
    with pytest.raises(KernelError, match="outside a kernel"):
        scratch(3, metaop.float32)


def test_spread_tensors_are_refused() -> None:
    place = Placement("cpu", range(2), simulate=True)
    x = distribute_tensor(metaop.ones(4), place, BROADCAST)
    with pytest.raises(UnsupportedError, match=r"to_local\(\)"):
        same(x).to_local().numpy()
