"""Every function of the tables, in kernels of every type, is the function of the tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import metaop
from metaop.elementwise.functions import FUNCTIONS
from metaop.kernels import Output
from metaop.kernels.language import word_for
from metaop.unified_graph import dtype as dtypes

NAMED = [row for row in FUNCTIONS.values() if word_for(getattr(metaop, row.name, None)) == row.name]
TOLERANCE = {"float64": 1e-12, "float32": 2e-6, "float16": 1e-3, "bfloat16": 1e-2}


def operands(name: str, dtype: dtypes.DType) -> list[Any]:
    row = FUNCTIONS[name]
    generator = np.random.default_rng(row.arity)
    made = []
    for k in range(row.arity):
        low, high = row.domain[k]
        values = generator.uniform(low, high, 37)
        if dtype.kind != "float":
            values = generator.integers(1, 3, 37)
        kind = dtypes.bool_ if name == "where" and k == 0 else dtype
        made.append(metaop.tensor(values > 1 if kind is dtypes.bool_ else values).to(kind))
    return made


def test_most_functions_have_a_name_that_kernels_can_call() -> None:
    assert len(NAMED) > 70


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda dtype: dtype.name)
def test_functions(dtype: dtypes.DType) -> None:
    rows = [row for row in NAMED if row.name != "where" and row.operand(dtype).kind in row.accepts]
    for row in rows:
        inputs = operands(row.name, dtype)
        listed = ", ".join(f"in{k}[task()]" for k in range(row.arity))
        text = f"out0[task()] = metaop.{row.name}({listed})"
        output = Output((37,), row.result(row.operand(dtype)))
        made = metaop.code(inputs, output, tasks=37, python=text, name=row.name)
        wanted = metaop.kernels.foreign._python_kernel(  # the interpreter
            row.name, text, row.arity, (metaop.unified_graph.code.Result(*output),), 37
        ).check(*inputs)
        tolerance = TOLERANCE.get(output.dtype.name, 0)
        np.testing.assert_allclose(
            made.to(metaop.float64).numpy(), wanted.to(metaop.float64).numpy(),
            rtol=tolerance, atol=tolerance, err_msg=row.name,
        )  # fmt: skip


def test_where_and_mixed_types() -> None:
    x = metaop.tensor([1, 2, 3])
    y = metaop.tensor([0.5, 1.5, 2.5], dtype=metaop.float64)
    made = metaop.code(
        [x, y],
        [Output((3,), metaop.float64), Output((3,), metaop.float32)],
        tasks=3,
        python="""
        i = task()
        out0[i] = metaop.where(in0[i] > 1, in0[i] * in1[i], 0)
        out1[i] = in0[i] / 2 + i * 0.5
        """,
    )
    assert made[0].tolist() == [0, 3, 7.5]
    assert made[1].tolist() == [0.5, 1.5, 2.5]
