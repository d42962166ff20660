"""Recording and cutting: types, keys that identify structure, what a cut keeps and forgets."""

from __future__ import annotations

import numpy as np
import pytest

import metaop
from metaop.errors import ShapeError
from metaop.execution.executor import pending_subgraph, realize
from metaop.tensor.core import Tensor
from metaop.unified_graph.composite import composite
from metaop.unified_graph.node import Node
from metaop.unified_graph.recording import Call, part, record, results


@composite
def halves(source: Node) -> tuple[Node, Node]:
    """Half of the values, and their doubles."""
    return source * 0.5, source * 2.0


def program(values: np.ndarray, factor: float) -> Tensor:
    x = metaop.tensor(values)
    y = (x * factor).sin()
    return (y + x).sum(0)


def key(tensor: Tensor) -> tuple[int, ...]:
    return pending_subgraph([tensor.call]).key


def test_nothing_is_computed_before_it_is_read() -> None:
    y = program(np.ones((2, 3)), 2.5)
    assert y.call.is_pending and y.shape == (3,)
    assert y.tolist() == pytest.approx([2 * (np.sin(2.5) + 1)] * 3)
    assert not y.call.is_pending and y.call.inputs == ()


def test_key_identifies_structure_not_data() -> None:
    rng = np.random.default_rng(0)
    first = key(program(rng.random((2, 3)), 2.5))
    assert first == key(program(rng.random((2, 3)), 7.25))
    assert first != key(program(rng.random((3, 2)), 2.5))
    assert first != key(program(rng.random((2, 3)).astype(np.float32), 2.5))


def test_key_tells_shared_from_equal_operands() -> None:
    a, b = metaop.tensor([1.0, 2.0]), metaop.tensor([1.0, 2.0])
    assert key(a * a) != key(a * b)
    assert key(a - b) == key(b - a)
    assert key((a + b) * a) != key((a + b) * b)


def test_errors_come_at_the_line_that_records() -> None:
    with pytest.raises(ShapeError, match="test_recording"):
        metaop.ones(2, 3) + metaop.ones(2, 4)


def test_signatures_are_shared() -> None:
    a, b = metaop.ones(2), metaop.ones(2)
    assert (a * b).call.signature is (b * a).call.signature
    assert (a * b).call.signature is not (metaop.ones(3) * metaop.ones(3)).call.signature


def test_several_results() -> None:
    x = metaop.tensor([2.0, 4.0])
    call = record(halves, (x.call,))
    first, second = results(call)
    assert first is call and second.index == 1 and second.is_pending
    realize(first, second)
    assert first.buffer.view((2,), np.float32).tolist() == [1.0, 2.0]
    assert second.buffer.view((2,), np.float32).tolist() == [4.0, 8.0]


def test_a_further_result_of_a_call_that_has_run_already() -> None:
    x = metaop.tensor([2.0, 4.0], requires_grad=True)
    call = record(halves, (x.call,))
    realize(call)
    second = part(call, 1)
    realize(second)
    assert second.buffer.view((2,), np.float32).tolist() == [4.0, 8.0]


def test_cut_takes_what_live_handles_show() -> None:
    x = metaop.tensor([1.0, 2.0])
    kept, dropped = x + 3, x * 5
    gone: Call = dropped.call
    del dropped
    (x - 1).tolist()
    assert not kept.call.is_pending
    assert gone.is_pending


def test_sequence_orders_the_graph() -> None:
    x = metaop.tensor([1.0, 2.0])
    y = ((x + 3) * x).exp()
    order = pending_subgraph([y.call]).order
    assert [call.sequence for call in order] == sorted(call.sequence for call in order)
    place = {call: k for k, call in enumerate(order)}
    assert all(
        place[source] < place[call] for call in order for source in call.inputs if source in place
    )


def test_numbers_are_arguments_not_structure() -> None:
    x = metaop.tensor([1.0, 2.0])
    totals = [(x * number).sum() for number in (3.5, 4.5, 5.5)]
    assert len({key(total) for total in totals}) == 1
    assert [total.item() for total in totals] == [10.5, 13.5, 16.5]


def test_zeros_of_both_signs_are_different_attributes() -> None:
    x = metaop.ones(1)
    for values in ((0.0, -0.0, 0), (-0.0, 0)):
        for value in values:
            padded = metaop.nn.functional.pad(x, (1, 0), value=value)
            assert np.signbit(padded.numpy()[0]) == np.signbit(value)
