"""Kernels compute what NumPy computes: compiled, interpreted, captured, on several threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import metaop
from metaop.kernels import Output, copy, scratch, task
from tests.kernels.programs import (
    PROGRAMS,
    as_tensors,
    assert_means,
    operands_of,
    row_softmax,
    smooth,
)

meaning = PROGRAMS["softmax"].meaning


@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled(name: str) -> None:
    program, operands = PROGRAMS[name], operands_of(name)
    assert_means(program.kernel(*as_tensors(operands)), program.meaning(*operands))


@pytest.mark.parametrize("name", PROGRAMS)
def test_interpreted(name: str) -> None:
    program, operands = PROGRAMS[name], operands_of(name)
    assert_means(program.kernel.check(*as_tensors(operands)), program.meaning(*operands))


@pytest.mark.parametrize("name", PROGRAMS)
def test_on_the_reference_backend(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAOP_BACKEND", "reference")
    metaop.execution.executor.clear_programs()
    program, operands = PROGRAMS[name], operands_of(name)
    assert_means(program.kernel(*as_tensors(operands)), program.meaning(*operands))
    metaop.execution.executor.clear_programs()


@pytest.mark.parametrize("name", PROGRAMS)
def test_on_one_thread(name: str) -> None:
    program, operands = PROGRAMS[name], operands_of(name)
    before = metaop.get_num_threads()
    metaop.set_num_threads(1)
    try:
        assert_means(program.kernel(*as_tensors(operands)), program.meaning(*operands))
    finally:
        metaop.set_num_threads(before)


def test_kernels_stand_among_other_operators() -> None:
    x = metaop.randn(50)
    y = (smooth(x.exp(), 2) * 2 + x).sum()
    powers = np.exp(x.numpy())
    for _ in range(2):
        powers[1:-1] = (powers[:-2] + powers[1:-1] + powers[2:]) / 3
    np.testing.assert_allclose(y.item(), (powers * 2 + x.numpy()).sum(), rtol=1e-5)


def test_captured() -> None:
    step = metaop.jit(lambda x: smooth(x * 2, 1) + 1)
    for _ in range(3):
        x = metaop.randn(20)
        wanted = 2 * x.numpy()
        wanted[1:-1] = (wanted[:-2] + wanted[1:-1] + wanted[2:]) / 3
        np.testing.assert_allclose(step(x).numpy(), wanted + 1, rtol=1e-4, atol=1e-5)


@metaop.kernel(tasks=lambda x, y: x.shape[0], outputs=lambda x, y: x)
def reversed_difference(x: Any, y: Any, z: Any) -> None:
    z[task()] = x[task()] - y[y.shape[0] - 1 - task()]


def test_an_operand_given_twice_is_not_overwritten() -> None:
    for _ in range(3):
        x = metaop.arange(1000.0) * 1.5
        z = reversed_difference(x, x)
        del x
        np.testing.assert_array_equal(z.numpy(), 1.5 * (2 * np.arange(1000.0) - 999))


@metaop.kernel(tasks=3, outputs=Output((3,), metaop.int64))
def numbers(y: Any) -> None:
    y[task()] = task() * 2


def test_without_inputs() -> None:
    assert numbers().tolist() == [0, 2, 4]


@metaop.kernel(tasks=lambda x: x.shape[0], outputs=lambda x: [x, ((0,), x.dtype)])
def empty_too(x: Any, y: Any, z: Any) -> None:
    y[task()] = x[task()]
    for i in range(z.shape[0]):
        z[i] = 1


@pytest.mark.parametrize("size", (0, 4))
def test_empty_tensors(size: int) -> None:
    y, z = empty_too(metaop.ones(size))
    assert y.tolist() == [1.0] * size
    assert z.shape == (0,)


def test_other_sizes_share_machine_code() -> None:
    from metaop.codegen.llvm.objects import engine

    smooth(metaop.ones(31), 1).numpy()
    smooth(metaop.ones(32), 1).numpy()
    before = engine.statistics.compiled + engine.statistics.loaded_from_disk
    for size in (33, 40, 57):
        smooth(metaop.ones(size), 1).numpy()
    assert engine.statistics.compiled + engine.statistics.loaded_from_disk == before


def test_one_program_serves_all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(rows: int, columns: int) -> None:
        x = np.random.default_rng(rows).standard_normal((rows, columns)).astype("f")
        np.testing.assert_allclose(
            suffix_sums(metaop.from_numpy(x)).numpy(),
            np.cumsum(x[:, ::-1], 1)[:, ::-1][:, ::2],
            rtol=1e-4,
            atol=1e-4,
        )

    for sizes in ((5, 40), (7, 52)):
        work(*sizes)
    made: list[Any] = []
    schedule = metaop.compiler.schedule
    monkeypatch.setattr(
        metaop.compiler, "schedule", lambda *given: made.append(given) or schedule(*given)
    )
    for sizes in ((9, 64), (3, 100), (60, 8)):
        work(*sizes)
    assert not made


@metaop.kernel(
    tasks=lambda x: x.shape[0],
    outputs=lambda x: ((x.shape[0], (x.shape[1] + 1) // 2), x.dtype),
)
def suffix_sums(x, y):  # type: ignore[no-untyped-def]
    line = scratch(x.shape[1], x.dtype)
    copy(line, x[task()])
    for k in range(y.shape[1]):
        total = 0.0
        for j in range(2 * k, x.shape[1]):
            total += line[j]
        y[task(), k] = total


def test_named_arguments() -> None:
    x = metaop.randn(20)
    assert smooth(sweeps=1, x=x).equal(smooth(x, 1))


def test_operands_and_results_of_concatenations() -> None:
    x, w = metaop.randn(3, 20000), metaop.randn(3, 20000)
    doubled, negative = x * 2, metaop.nn.functional.softmax(w, 1)
    joined = metaop.cat([doubled, negative], 1)
    twice = row_softmax(doubled)
    whole = row_softmax(joined)
    again = metaop.cat([twice, whole, negative], 1)
    a, b = 2 * x.numpy(), w.numpy()
    b = np.exp(b - b.max(1, keepdims=True))
    b /= b.sum(1, keepdims=True)
    parts = [meaning(a), meaning(np.concatenate([a, b], 1)), b]
    np.testing.assert_allclose(again.numpy(), np.concatenate(parts, 1), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(twice.numpy(), parts[0], rtol=1e-4, atol=1e-6)


def test_views_as_operands() -> None:
    x = metaop.randn(40, 30)
    np.testing.assert_allclose(row_softmax(x.t()[3:, ::2]).numpy(), meaning(x.numpy().T[3:, ::2]),
                               rtol=1e-5, atol=1e-6)  # fmt: skip


def test_types_of_carried_variables_are_found_in_inner_loops() -> None:
    x = metaop.tensor([0.5, 2.0, 4.0], dtype=metaop.float64)
    made = metaop.code(
        [x],
        Output((), x.dtype),
        python="""
        a = 1
        for i in range(2):
            for k in range(3):
                a = in0[k] - a
        out0[()] = a
        """,
    )
    a = 1.0
    for value in [0.5, 2.0, 4.0] * 2:
        a = value - a
    assert made.item() == a
