"""`metaop.code(cpp=...)`: C++ that the machine's own compiler compiles."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.codegen.llvm.target import narrower
from metaop.errors import ArgumentError, DTypeError, KernelError
from metaop.kernels import Output, cplusplus

CPP = """
void body(const $in0_type* x, const $in1_type* w, $out0_type* y, long long task) {
  $out0_type sum = 0;
  for (long k = 0; k < $in0_shape1; ++k) sum += x[task * $in0_shape1 + k] * w[k];
  y[task] = std::tanh(sum);
}
"""

PROGRAM = """
import metaop
text = "void body(const float* x, float* y, long long task) { y[task] = x[task] / 4; }"
x = metaop.arange(3.0)
print(metaop.code([x], metaop.kernels.Output(x.shape, x.dtype), tasks=3, cpp=text).tolist())
"""

needs_compiler = pytest.mark.skipif(
    cplusplus.find_compiler() is None, reason="the machine has no C++ compiler"
)


def rows(x: Any, w: Any, **options: Any) -> Any:
    made = Output(x.shape[:1], x.dtype)
    return metaop.code([x, w], made, tasks=x.shape[0], cpp=CPP, name="rows", **options)


@needs_compiler
@pytest.mark.parametrize("backend", ("llvm", "reference"))
@pytest.mark.parametrize("dtype", (metaop.float32, metaop.float64))
def test_values(dtype: Any, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAOP_BACKEND", backend)
    for count in (1, 5, 0, 300):
        x, w = metaop.randn(count, 7, dtype=dtype), metaop.randn(7, dtype=dtype)
        expected = np.tanh(x.double().numpy() @ w.double().numpy()) + 1
        np.testing.assert_allclose((rows(x, w) + 1).numpy(), expected, rtol=1e-5, atol=1e-6)


@needs_compiler
@pytest.mark.parametrize("target", ("native", *narrower()))
def test_processors(target: str, tmp_path: Path) -> None:
    own = {"METAOP_TARGET": target, "METAOP_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**os.environ, **own}, capture_output=True
    )
    assert done.stdout == b"[0.0, 0.25, 0.5]\n", done.stderr


@needs_compiler
def test_gradients_captured() -> None:
    def gradient(inputs: Any, outputs: Any, cotangents: Any) -> Any:
        slope = (1 - outputs[0].square()) * cotangents[0]
        return slope[:, None] * inputs[1], slope @ inputs[0]

    @metaop.jit
    def loss(x: Any, w: Any) -> Any:
        return rows(x, w, gradient=gradient).square().sum()

    for count in (3, 3, 3, 4):
        x, w = metaop.randn(count, 7), metaop.randn(7, requires_grad=True)
        loss(x, w).backward()
        (expected,) = metaop.autograd.grad((x @ w).tanh().square().sum(), w)
        np.testing.assert_allclose(w.grad.numpy(), expected.numpy(), rtol=1e-4, atol=1e-6)


@needs_compiler
def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    """It only asks the compiler for its version, which decides what fits."""
    wrapper, calls = tmp_path / "compiler", tmp_path / "calls"
    command = shlex.join(cplusplus.find_compiler() or ())
    wrapper.write_text(f'#!/bin/sh\necho "$1" >>{calls}\nexec {command} "$@"\n')
    wrapper.chmod(0o755)
    own = {"CXX": str(wrapper), "METAOP_CACHE_DIR": str(tmp_path), "METAOP_DISK_CACHE": "1"}
    seen = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env={**os.environ, **own}, capture_output=True
        )
        assert done.stdout == b"[0.0, 0.25, 0.5]\n", done.stderr
        seen.append([call for call in calls.read_text().split() if call != "--version"])
    assert len(seen[0]) == 1 and seen[1] == seen[0]


@needs_compiler
def test_the_flags_reach_the_compiler() -> None:
    text = "void body(float* y, long long task) { y[task] = SCALE; }"
    made = Output((2,), metaop.float32)
    y = metaop.code([], made, tasks=2, cpp=text, flags=["-DSCALE=3"])
    assert y.tolist() == [3, 3]


@needs_compiler
def test_what_the_compiler_refuses_tells_the_line_of_the_text() -> None:
    x = metaop.ones(3)
    text = "\nvoid body(const float* x, float* y, long long task) { y[task] = z; }"
    with pytest.raises(KernelError, match='(?s)broken "one":2:.*z.*fix: correct the text'):
        metaop.code([x], Output(x.shape, x.dtype), tasks=3, cpp=text, name='broken "one"')


def test_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    x = metaop.ones(3)
    made = Output(x.shape, x.dtype)
    with pytest.raises(ArgumentError, match="2 sources"):
        metaop.code([x], made, cpp="", llvm="")
    with pytest.raises(ArgumentError, match="flags"):
        metaop.code([x], made, python="pass", flags=["-g"])
    with pytest.raises(DTypeError, match="no type for complex64"):
        cplusplus.type_name(metaop.complex64)
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(KernelError, match="CXX=no-such-compiler"):
        metaop.code([x], made, cpp="void body(const float*, float*, long long) {}")
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(KernelError, match="no C\\+\\+ compiler"):
        metaop.code([x], made, cpp="void body(const float*, float*, long long) {;}")
