"""Loops and choices against plain Python, in values and in what they refuse."""

import numpy as np
import pytest
import torch

import metaop
from metaop.errors import ControlFlowError


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("lower", "upper"), [(0, 6), (3, 9), (4, 4), (5, 2), (-2, 1)])
def test_fori_loop(lower, upper):
    x = random(3)
    found = metaop.fori_loop(lower, upper, lambda i, v: v / 2 + i, metaop.tensor(x))
    bounds = metaop.tensor(lower), metaop.tensor(upper)
    dynamic = metaop.fori_loop(*bounds, lambda i, v: v / 2 + i, metaop.tensor(x))
    for i in range(lower, upper):
        x = x / 2 + i
    np.testing.assert_allclose(found.numpy(), x, rtol=1e-6)
    np.testing.assert_allclose(dynamic.numpy(), x, rtol=1e-6)


def test_carried_values_may_change_places():
    def swap(i, values):
        return {"a": values["b"], "b": values["a"], "count": values["count"] + 1}

    begin = {"a": metaop.ones(2), "b": metaop.zeros(2), "count": 0}
    found = metaop.fori_loop(0, 3, swap, begin)
    assert found["a"].tolist() == [0, 0] and found["b"].tolist() == [1, 1]
    assert found["count"].item() == 3


def test_while_loop_is_that_of_pytorch():
    x = random(4)

    def is_small(count, total):
        return total.abs().sum() < 100

    def double(count, total):
        return count + 1, total * 2

    expected = torch.tensor(0), torch.tensor(x)
    while is_small(*expected):
        expected = double(*expected)
    count, total = metaop.while_loop(is_small, double, (metaop.tensor(0), metaop.tensor(x)))
    assert count.item() == expected[0].item()
    np.testing.assert_allclose(total.numpy(), expected[1].numpy(), rtol=1e-6)


def test_while_loop_may_have_no_step_and_other_arguments():
    found = metaop.while_loop(
        lambda x, bound: x < bound, lambda x, bound: (x + 1,), (metaop.tensor(7),), (3,)
    )
    assert found[0].item() == 7
    value = metaop.while_loop(lambda x: x < 20, lambda x: x * 3, metaop.tensor(1))
    assert value.item() == 27


@pytest.mark.parametrize("chosen", [True, False])
def test_cond_computes_one_side(chosen):
    x = metaop.tensor([3, 5])

    def divided(x):
        # An index that the other side would refuse.
        return metaop.ones(2)[x - 3], x.sum()

    def kept(x):
        return metaop.zeros(2), x.sum() * 0

    fine = metaop.tensor([3, 4])
    values, total = metaop.cond(metaop.tensor(chosen), divided, kept, (fine if chosen else x,))
    assert values.tolist() == ([1, 1] if chosen else [0, 0])
    assert total.item() == (7 if chosen else 0)


@pytest.mark.parametrize("chosen", [True, False])
def test_nothing_of_the_other_side_runs(chosen):
    """Not even what an index out of range, which is looked up for a sum, belongs to."""
    table, x = metaop.ones(4, 3), metaop.tensor([9, 1] if not chosen else [2, 1])

    def looked_up(x):
        rows = table[x]
        return (rows / rows.sum(0)).sum()

    found = metaop.cond(metaop.tensor(chosen), looked_up, lambda x: x.sum().float(), (x,))
    assert found.item() == (3 if chosen else 10)
    flag, total = metaop.while_loop(
        lambda flag, total: flag,
        lambda flag, total: (flag & False, total + looked_up(x)),
        (metaop.tensor(chosen), metaop.tensor(0.0)),
    )
    assert not flag and total.item() == (3 if chosen else 0)


def test_cond_takes_plain_truth():
    assert metaop.cond(False, lambda: 1, lambda: 2) == 2
    nested = metaop.cond(
        metaop.tensor([True]),
        lambda x: metaop.cond(x.sum() > 10, lambda y: y + 1, lambda y: y - 1, (x,)),
        lambda x: x,
        (metaop.ones(3),),
    )
    assert nested.tolist() == [0, 0, 0]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dim", [0, 1])
def test_scan(dim, reverse):
    xs, h = random(4, 5, 3), random(*((5, 3) if dim == 0 else (4, 3)), seed=1)

    def step(carry, x):
        carry = carry * 0.5 + x["x"]
        return carry, (carry.sum(0), x["x"] - 1)

    given = {"x": metaop.tensor(xs)}
    last, (sums, moved) = metaop.scan(step, metaop.tensor(h), given, dim=dim, reverse=reverse)
    slices = np.moveaxis(xs, dim, 0)
    outputs = [None] * len(slices)
    for k in range(len(slices))[:: -1 if reverse else 1]:
        h = h * 0.5 + slices[k]
        outputs[k] = h.sum(0)
    np.testing.assert_allclose(last.numpy(), h, rtol=1e-5)
    np.testing.assert_allclose(sums.numpy(), np.stack(outputs, dim), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(moved.numpy(), xs - 1, rtol=1e-6)


def test_scan_without_slices_or_outputs():
    last, ys = metaop.scan(lambda c, _=None: (c * 2, None), metaop.tensor(1.0), length=10)
    assert last.item() == 1024 and ys is None
    last, ys = metaop.scan(lambda c, x: (c + 1, x), metaop.tensor(1), metaop.ones(0, 3))
    assert last.item() == 1 and ys.shape == (0, 3)


def test_loops_inside_of_loops():
    x = random(3, 4, 2)

    def row(carry, x):
        return metaop.scan(lambda c, y: (c + y, c * y), carry, x)

    last, outputs = metaop.scan(row, metaop.zeros(2), metaop.tensor(x))
    flat = x.reshape(12, 2)
    before = np.cumsum(flat, 0) - flat
    np.testing.assert_allclose(last.numpy(), flat.sum(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(outputs.numpy().reshape(12, 2), before * flat, rtol=1e-4, atol=1e-5)


def test_map():
    x = random(6, 4)
    found = metaop.map(lambda row, scale: (row * scale).softmax(0), metaop.tensor(x), 2.0)
    expected = torch.softmax(torch.tensor(x) * 2, 1)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5)


@pytest.mark.parametrize("length", [1, 2, 3, 8, 13])
@pytest.mark.parametrize("reverse", [False, True])
def test_associative_scan(length, reverse):
    x = random(2, length)
    found = metaop.associative_scan(metaop.mul, metaop.tensor(x), 1, reverse)
    turned = x[:, ::-1] if reverse else x
    expected = np.cumprod(turned, 1)
    np.testing.assert_allclose(found.numpy(), expected[:, ::-1] if reverse else expected, rtol=1e-5)


def test_associative_scan_of_matrices():
    x = random(5, 3, 3)
    products = [x[0]]
    for one in x[1:]:
        products.append(products[-1] @ one)
    for mode in ("pointwise", "generic"):
        found = metaop.associative_scan(metaop.matmul, metaop.tensor(x), 0, combine_mode=mode)
        np.testing.assert_allclose(found.numpy(), np.stack(products), rtol=1e-3, atol=1e-4)


def test_what_a_step_may_not_do():
    x, state, kept = metaop.ones(4, 3), metaop.zeros(3), []

    def writes_carry(c, x):
        return c.add_(1), x

    def writes_state(c, x):
        state.add_(x)
        return c, x

    def keeps(c, x):
        kept.append(c + x)
        return c, x

    for function, words in (
        (writes_carry, "writes or keeps"),
        (writes_state, "writes or keeps"),
        (keeps, "writes or keeps"),
        (lambda c, x: (c.sum(), x), r"begins as float32\[3\] and becomes float32\[\]"),
        (lambda c, x: (c.double(), x), "becomes float64"),
        (lambda c, x: ((c, c), x), "nest of 2 values"),
        (lambda c, x: c, "must return"),
        (lambda c, x: (c + metaop.rand(3), x), "draws random numbers"),
        (lambda c, x: (c if c.sum() > 0 else -c, x), "reads a value"),
    ):
        with pytest.raises(ControlFlowError, match=words) as caught:
            metaop.scan(function, metaop.zeros(3), x)
        assert "test_loops.py" in str(caught.value)
        state, kept = metaop.zeros(3), []


def test_what_a_choice_may_not_do():
    x = metaop.ones(3)
    with pytest.raises(ControlFlowError, match="result 0"):
        metaop.cond(x.sum() > 0, lambda x: x.sum(), lambda x: x, (x,))
    with pytest.raises(ControlFlowError, match="structures"):
        metaop.cond(x.sum() > 0, lambda x: (x, x), lambda x: x, (x,))
    with pytest.raises(ValueError, match="single element"):
        metaop.cond(x > 0, lambda x: x, lambda x: x, (x,))
    with pytest.raises(NotImplementedError, match="no gradient"):
        found = metaop.while_loop(lambda x: x.sum() < 9, lambda x: x * 2, x.requires_grad_())
        assert found.tolist() == [4, 4, 4]
        found.sum().backward()


def test_an_index_out_of_range_in_a_step_is_an_error():
    table, indices = metaop.ones(3), metaop.tensor([0, 2, 5])
    with pytest.raises(IndexError):
        metaop.scan(lambda c, i: (c + table[i], None), metaop.tensor(0.0), indices)[0].item()
