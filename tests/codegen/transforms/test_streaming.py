"""Results that go around the caches: which they are, and that every element arrives."""

from __future__ import annotations

import numpy as np
import pytest

import metaop
from metaop.codegen.llvm.emission.emit import emit
from metaop.codegen.llvm.target import host_target
from metaop.codegen.lowering import Machine
from metaop.codegen.machine import PLAIN
from metaop.codegen.nest.ir import (
    For,
    LoopNest,
    Parameter,
    Prefetch,
    QuotientIndex,
    Statement,
    Store,
    Sum,
)
from metaop.compiler import schedule
from metaop.elementwise.meta_op import apply
from metaop.operators.dropout import dropout
from metaop.reduce.meta_op import reduce_axes
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.node import Node, input_node
from tests.codegen.force import change_thresholds
from tests.codegen.run_nest import (
    F32,
    arrays,
    call,
    check_nest,
    index,
    load,
    number,
    reduction,
    run_nest,
    serial,
    store_name,
    vector,
)

_READ, _STREAM = Parameter(F32, "read"), Parameter(F32, "write", streamed=True)
_LENGTHS = [1, 7, 127, 128, 640, 1000]


def _nest(parameters: list[Parameter], *body: Statement) -> LoopNest:
    return LoopNest("test", tuple(parameters), (), body)


@pytest.mark.usefixtures("target")
@pytest.mark.parametrize("length", _LENGTHS)
@pytest.mark.parametrize("shift", [0, 3])
def test_maps_write_every_element(length: int, shift: int) -> None:
    value = call("mul", load(0, F32, i=1), number(3.0, F32))
    nest = _nest([_READ, _STREAM], vector("i", length, Store(1, index(shift, i=1), value)))
    check_nest(nest, arrays((length, F32), (length + 5, F32)), pieces=3)


@pytest.mark.usefixtures("target")
@pytest.mark.parametrize("length", [640, 1000])
def test_results_that_do_not_lie_alike(length: int) -> None:
    stores = [Store(k, index(k, i=1), load(0, F32, i=1)) for k in (1, 2)]
    nest = _nest([_READ, _STREAM, _STREAM], vector("i", length, *stores))
    check_nest(nest, arrays((length, F32), (length + 3, F32), (length + 3, F32)))


@pytest.mark.usefixtures("target")
@pytest.mark.parametrize("shift", [640, 643])
def test_two_parts_of_one_result(shift: int) -> None:
    """One of them begins where a quotient says: an aligned store there would end the process."""
    third = QuotientIndex(index(3, p=1), 4)
    stores = [
        Store(1, index(p=1, i=1), load(0, F32, i=1)),
        Store(1, Sum((*index(shift + 2, i=1).terms, (third, 3)), shift + 2), load(0, F32, i=1)),
    ]
    nest = _nest([_READ, _STREAM], serial("p", 3, vector("i", 640, *stores, kind="serial")))
    check_nest(nest, arrays((640, F32), (shift + 650, F32)))


@pytest.mark.usefixtures("target")
def test_a_part_in_an_inner_loop() -> None:
    inner = serial("k", 3, Store(1, index(643, i=1, k=650), load(0, F32, i=1)))
    body = vector("i", 640, Store(1, index(i=1), load(0, F32, i=1)), inner)
    check_nest(_nest([_READ, _STREAM], body), arrays((640, F32), (2600, F32)))


@pytest.mark.usefixtures("target")
@pytest.mark.parametrize("columns", [256, 1001])
def test_rows_with_a_sum_beside_the_stores(columns: int) -> None:
    rows = 5
    doubled = call("add", load(0, F32, p=columns, k=1), load(0, F32, p=columns, k=1))
    sums = reduction("add", doubled, columns)
    pass_over_row = sums._replace(
        body=(*sums.body, Store(1, index(p=columns, k=1), doubled)),
    )
    row = serial("p", rows, pass_over_row, store_name(2, index(p=1), "total", F32), kind="parallel")
    nest = _nest([_READ, _STREAM, Parameter(F32, "write")], row)
    check_nest(nest, arrays((rows * columns, F32), (rows * columns, F32), (rows, F32)), pieces=2)


def test_only_streamed_results_go_around_the_caches() -> None:
    body = vector("i", 1000, Store(1, index(i=1), load(0, F32, i=1)))
    plain = emit(_nest([_READ, Parameter(F32, "write")], body), host_target(), "kernel")
    streamed = emit(_nest([_READ, _STREAM], body), host_target(), "kernel")
    assert "!nontemporal" in streamed
    assert "!nontemporal" not in plain
    assert "sfence" in streamed
    assert "sfence" not in plain


def test_a_prefetch_changes_nothing() -> None:
    body = serial(
        "p",
        4,
        vector("i", 40, Prefetch(0, index(1 << 40, p=40, i=1)), kind="serial"),
        vector("i", 40, Store(1, index(p=40, i=1), load(0, F32, p=40, i=1)), kind="serial"),
        kind="parallel",
    )
    nest = _nest([_READ, Parameter(F32, "write")], body)
    given = arrays((160, F32), (160, F32))
    (_, written), _ = run_nest(nest, given)
    np.testing.assert_array_equal(written, given[0])


# --- which results --------------------------------------------------------------------------------

_SIDE = 1024


def _matrix() -> Node:
    return input_node(0, (_SIDE, _SIDE), dtypes.float32)


def _streamed(outputs: list[Node], cache_bytes: int) -> list[bool]:
    """Whether the results of each launch are streamed."""
    machine = Machine(thresholds=PLAIN._replace(stream_bytes=cache_bytes))
    plan = schedule([_matrix()], outputs, machine)
    return [any(p.streamed for p in launch.nest.parameters) for launch in plan.launches]


def test_large_results_of_a_program_are_streamed() -> None:
    doubled = [apply("exp", _matrix())]
    assert _streamed(doubled, cache_bytes=8 << 20) == [True]
    assert _streamed(doubled, cache_bytes=9 << 20) == [False]
    assert _streamed(doubled, cache_bytes=0) == [False]


def test_what_the_next_launch_reads_counts_the_bytes_in_between() -> None:
    columns = reduce_axes("add", apply("exp", _matrix()), [0], keepdim=True)
    outputs = [apply("exp", _matrix()), apply("exp", _matrix()) * columns]
    assert any(_streamed(outputs, cache_bytes=8 << 20))
    assert not any(_streamed(outputs, cache_bytes=64 << 20))


def test_rows_ask_for_the_next_row() -> None:
    matrix = _matrix()
    powers = apply("exp", matrix - reduce_axes("max", matrix, [1], keepdim=True))
    softmax = powers / reduce_axes("add", powers, [1], keepdim=True)
    (launch,) = schedule([matrix], [softmax]).launches
    (rows,) = launch.nest.body
    assert isinstance(rows, For)
    passes = [part for part in rows.body if isinstance(part, For)]
    asking = [any(isinstance(x, Prefetch) for x in loop.body) for loop in passes]
    assert asking == [False, True, False]


def test_maps_of_random_numbers_ask_for_what_lies_ahead() -> None:
    matrix, seed = _matrix(), input_node(1, (), dtypes.int64)
    for outputs, expected in (([dropout(matrix, seed, 0.5, None)], 1), ([matrix * 2.0], 0)):
        (launch,) = schedule([matrix, seed], outputs).launches
        lanes = launch.nest.body[-1]
        while isinstance(lanes, For) and not lanes.vector:
            lanes = lanes.body[-1]
        assert isinstance(lanes, For)
        asked = [part for part in lanes.body if isinstance(part, Prefetch)]
        assert [part.offset.constant for part in asked] == [256] * expected


# --- whole programs -------------------------------------------------------------------------------


@pytest.fixture
def everything_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """All results that may go around the caches do."""
    monkeypatch.setenv("METAOP_DISK_CACHE", "0")
    change_thresholds(monkeypatch, least_bytes=0, stream_bytes=1)


@pytest.mark.usefixtures("everything_streamed")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(37, 1013), (5, 3, 331), (2, 4099)])
def test_programs_whose_results_are_all_streamed(shape: tuple[int, ...], threads: int) -> None:
    before = metaop.get_num_threads()
    metaop.set_num_threads(threads)
    try:
        # One element behind an aligned address: what is read lies across cache lines.
        numbers = np.random.default_rng(threads).normal(size=(*shape[:-1], shape[-1] + 1))
        numbers[..., 7] = np.nan
        numbers[..., 0, -1] = np.inf
        whole = metaop.tensor(numbers.astype(np.float32))
        x, expected = whole[..., 1:], numbers[..., 1:].astype(np.float32).astype(np.float64)
        y = metaop.cat([x * 2.0, x], -1) + threads
        wanted = np.concatenate([expected * 2.0, expected], -1) + threads
        np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-6)
        clean = metaop.nan_to_num(x, 0.5, 3.0, -3.0)
        wanted = np.nan_to_num(expected, nan=0.5, posinf=3.0, neginf=-3.0)
        powers = np.exp(wanted - wanted.max(-1, keepdims=True))
        softmax = metaop.softmax(clean, -1)
        np.testing.assert_allclose(softmax.numpy(), powers / powers.sum(-1, keepdims=True), 1e-5)
        clean += softmax
        np.testing.assert_allclose(clean.numpy(), wanted + softmax.numpy(), 1e-6)
    finally:
        metaop.set_num_threads(before)
