"""Indexing of all kinds against PyTorch: values, writes, gradients and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaop
from tests.helpers import assert_same, check_derivatives

torch = pytest.importorskip("torch")

SHAPE = (4, 3, 5)
MASK = np.random.default_rng(3).random(SHAPE) < 0.4
ROWS = np.array([[0, -1], [2, 2]])
COLUMNS = np.array([1, -1])

# Keys of a tensor of SHAPE; `t` makes a tensor of the library in question.
KEYS: dict[str, Callable[[Callable[[Any], Any]], Any]] = {
    "vector": lambda t: t(COLUMNS),
    "matrix": lambda t: t(ROWS),
    "list": lambda t: [0, 2, 2, -1],
    "int32": lambda t: t(COLUMNS.astype(np.int32)),
    "two tensors": lambda t: (t(ROWS), t(COLUMNS)),
    "apart": lambda t: (t(ROWS), slice(None), t(COLUMNS)),
    "slice first": lambda t: (slice(1, None, 2), t(COLUMNS)),
    "ellipsis": lambda t: (..., t(ROWS)),
    "none": lambda t: (None, t(COLUMNS), None, slice(1, 2)),
    "none between": lambda t: (t(COLUMNS), None, t(COLUMNS)),
    "integer and tensor": lambda t: (1, t(COLUMNS)),
    "integer between": lambda t: (t(COLUMNS), 1, t(COLUMNS)),
    "integer, slice, tensor": lambda t: (0, slice(None), t(COLUMNS)),
    "three": lambda t: (t(ROWS), t(COLUMNS), t(ROWS)),
    "0-d tensor": lambda t: (t(np.array(2)), slice(None)),
    "mask": lambda t: t(MASK),
    "mask of rows": lambda t: t(MASK[:, 0, 0]),
    "mask of a pair": lambda t: (slice(None), t(MASK[0])),
    "mask and slice": lambda t: (t(MASK[:, :, 0]), slice(1, 4)),
    "mask and tensor": lambda t: (t(np.array([True, False, True, False])), t(COLUMNS)),
    "mask list": lambda t: [True, False, False, True],
    "empty mask": lambda t: t(MASK & False),
    "true": lambda t: True,
    "false": lambda t: False,
    "empty list": lambda t: [],
    "slices": lambda t: (slice(None, None, 3), slice(-2, None)),
    "all": lambda t: ...,
    "one element": lambda t: (0, 1, 2),
    "list of slices": lambda t: [slice(1, 3), slice(None, None, 2)],
    "list of tensors": lambda t: [t(ROWS), t(COLUMNS)],
    "list of single tensors": lambda t: [t(np.array(1)), t(np.array(2))],
    "list of arrays": lambda t: [COLUMNS, np.array([0, 2])],
    "list of lists": lambda t: [[0, 1], [2, 0]],
    "list of tuples and ranges": lambda t: [(0, 1), range(1, 3)],
    "list of masks": lambda t: [[True, False, False, True], [True, True, False]],
    "list with an ellipsis": lambda t: [..., 1],
    "list with none": lambda t: [None, 2],
    "tuple of lists": lambda t: ([0, 1], [2, 0]),
    "array of two dimensions": lambda t: np.array([[0, 1], [2, 0]]),
    "long list of lists": lambda t: [[0, 1]] * 33,
}


def both(values: np.ndarray, tracked: bool = False) -> tuple[Any, Any]:
    """The same array as a tensor of each library."""
    ours, theirs = metaop.tensor(values), torch.tensor(values)
    return (ours.requires_grad_(), theirs.requires_grad_()) if tracked else (ours, theirs)


def assert_same_gradient(ours: Any, theirs: Any, name: str) -> None:
    """No gradient and a gradient of zeros are the same."""
    if ours.grad is None or theirs.grad is None:
        rest = theirs.grad if ours.grad is None else ours.grad
        assert rest is None or not bool((rest != 0).any()), name
    else:
        assert_same(ours.grad, theirs.grad, name)


@pytest.mark.filterwarnings("ignore:.*tuple")
@pytest.mark.parametrize("name", KEYS)
def test_read(name: str) -> None:
    values = np.random.default_rng(0).standard_normal(SHAPE)
    ours, theirs = both(values, True)
    result, expected = ours[KEYS[name](metaop.tensor)], theirs[KEYS[name](torch.tensor)]
    assert_same(result, expected, name)
    weights = np.random.default_rng(1).standard_normal(tuple(expected.shape))
    (result * metaop.tensor(weights)).sum().backward()
    (expected * torch.tensor(weights)).sum().backward()
    assert_same_gradient(ours, theirs, name)


@pytest.mark.filterwarnings("ignore:.*tuple")
@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("kind", ["number", "0-d", "broadcast", "full"])
def test_write(name: str, kind: str) -> None:
    rng = np.random.default_rng(0)
    ours, theirs = both(rng.standard_normal(SHAPE), True)
    shape = tuple(theirs[KEYS[name](torch.tensor)].shape)
    if kind == "broadcast":
        shape = tuple(1 if k % 2 else n for k, n in enumerate(shape))
    mine, other = both(np.asarray(rng.standard_normal(() if kind == "0-d" else shape)), True)
    value, expected_value = (2.5, 2.5) if kind == "number" else (mine, other)
    result, expected = ours * 2, theirs * 2
    result[KEYS[name](metaop.tensor)] = value
    expected[KEYS[name](torch.tensor)] = expected_value
    if not has_duplicates(name):
        assert_same(result, expected, name)
    weights = rng.standard_normal(SHAPE)
    (result * metaop.tensor(weights)).sum().backward()
    (expected * torch.tensor(weights)).sum().backward()
    assert_same_gradient(ours, theirs, name)
    if kind != "number" and not has_duplicates(name):
        assert_same_gradient(mine, other, name)


def test_a_list_of_indices_warns() -> None:
    x = metaop.ones(2, 3)
    with pytest.warns(UserWarning, match=r"write x\[tuple\(list\)\]") as found:
        x[[slice(1), 0]]
    assert found[0].filename == __file__


def has_duplicates(name: str) -> bool:
    """Whether a key names a place twice: PyTorch leaves open which value stays."""
    repeated = ("list of tensors", "array of two dimensions", "long list of lists")
    return name in ("matrix", "list", "two tensors", "apart", "ellipsis", "three", *repeated)


def test_last_of_several_writes_stays() -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        index, values = rng.integers(-6, 6, (3, 50)), rng.standard_normal((3, 50))
        expected = np.zeros(6)
        expected[index] = values
        x = metaop.zeros(6, dtype=metaop.float64)
        x[metaop.tensor(index)] = metaop.tensor(values)
        assert np.array_equal(x.numpy(), expected)


@pytest.mark.parametrize(
    "key",
    [
        (slice(None), [2, 0, 2]),
        ([1, 0, 1], slice(None), [3, 3, 3]),
        (slice(1, 4), [[2, 1], [2, 2]], slice(0, 3)),
        ([], slice(None)),
    ],
)
def test_of_rows_that_are_written_again_the_last_stays(key: tuple) -> None:
    source = np.random.default_rng(3).standard_normal((4, 3, 5))
    expected, arrays = (
        source.copy(),
        [np.array(k, np.int64) if isinstance(k, list) else k for k in key],
    )
    values = np.random.default_rng(4).standard_normal(source[tuple(arrays)].shape)
    expected[tuple(arrays)] = values  # NumPy writes in order
    written = metaop.tensor(source)
    written[tuple(metaop.tensor(k) if isinstance(k, np.ndarray) else k for k in arrays)] = (
        metaop.tensor(values)
    )
    np.testing.assert_array_equal(written.numpy(), expected)


def test_accumulate_counts_repeated_places() -> None:
    rng = np.random.default_rng(0)
    index, values = rng.integers(0, 4, (7,)), rng.standard_normal((7, 5))
    ours, theirs = both(rng.standard_normal(SHAPE))
    for x, lib in ((ours, metaop), (theirs, torch)):
        places = (lib.tensor(index), lib.tensor(1))
        x.index_put_(places, lib.tensor(values), accumulate=True)
    assert_same(ours, theirs, "index_put_")


def test_writes_reach_the_base() -> None:
    ours, theirs = both(np.arange(24.0).reshape(4, 6))
    for x, lib in ((ours, metaop), (theirs, torch)):
        y = x.t()[1:4]
        y[lib.tensor([0, 2]), lib.tensor([1, 3])] = -1.0
        y[y > 14] = 0.5
        y[1] += 100
    assert_same(ours, theirs, "base")


@pytest.mark.parametrize(
    "key", [lambda lib: lib.tensor([4]), lambda lib: lib.tensor([-5]), lambda lib: [0, 7]]
)
def test_index_out_of_range(key: Callable[[Any], Any]) -> None:
    x = metaop.tensor(np.arange(8.0).reshape(4, 2))
    with pytest.raises(IndexError):
        x[key(metaop)].numpy()


@pytest.mark.parametrize(
    "key",
    [
        lambda lib: lib.tensor([0.5]),
        lambda lib: lib.tensor([True, False]),
        lambda lib: (0, 0, 0),
        lambda lib: slice(None, None, -1),
        lambda lib: (lib.tensor([0, 1]), lib.tensor([0, 1, 2])),
        lambda lib: "name",
    ],
)
def test_illegal_keys(key: Callable[[Any], Any]) -> None:
    errors = (IndexError, ValueError, TypeError, RuntimeError)
    with pytest.raises(errors):
        torch.zeros(4, 2)[key(torch)]
    with pytest.raises(errors):
        metaop.zeros(4, 2)[key(metaop)]


INDEX = np.array([[0, 2, 1, 0], [2, 0, 0, 1], [1, 3, 3, 1], [0, 0, 0, 2]])
UNIQUE = np.array([[0, 2, 1, 3], [2, 0, 3, 1], [1, 3, 2, 0], [3, 1, 0, 2]])

# Functions of a float tensor (4, 4), a float source (4, 4) and an index maker.
FUNCTIONS: dict[str, Callable[[Any, Any, Callable[[Any], Any]], Any]] = {
    "gather 0": lambda x, s, t: x.gather(0, t(INDEX)),
    "gather 1": lambda x, s, t: x.gather(1, t(INDEX)),
    "scatter": lambda x, s, t: x.scatter(1, t(UNIQUE), s),
    "scatter number": lambda x, s, t: x.scatter(0, t(INDEX), 3.0),
    "scatter_add": lambda x, s, t: x.scatter_add(1, t(INDEX), s),
    "scatter_reduce sum": lambda x, s, t: x.scatter_reduce(0, t(INDEX), s, "sum"),
    "scatter_reduce prod": lambda x, s, t: x.scatter_reduce(0, t(INDEX), s, "prod"),
    "scatter_reduce mean": lambda x, s, t: x.scatter_reduce(0, t(INDEX), s, "mean"),
    "scatter_reduce amax": lambda x, s, t: x.scatter_reduce(0, t(INDEX), s, "amax"),
    "scatter_reduce amin": lambda x, s, t: x.scatter_reduce(
        1, t(INDEX), s, "amin", include_self=False
    ),
    "scatter_reduce mean others": lambda x, s, t: x.scatter_reduce(
        0, t(INDEX), s, "mean", include_self=False
    ),
    "scatter_reduce sum others": lambda x, s, t: x.scatter_reduce(
        0, t(INDEX), s, "sum", include_self=False
    ),
    "index_select": lambda x, s, t: x.index_select(1, t(np.array([3, 0, 0]))),
    "index_add": lambda x, s, t: x.index_add(0, t(np.array([3, 0, 0, 1])), s, alpha=2),
    "index_copy": lambda x, s, t: x.index_copy(1, t(np.array([3, 0, 2, 1])), s),
    "index_fill": lambda x, s, t: x.index_fill(1, t(np.array([3, 0])), -1.0),
    "index_reduce": lambda x, s, t: x.index_reduce(0, t(np.array([1, 1, 0, 3])), s, "mean"),
    "index_put": lambda x, s, t: x.index_put((t(np.array([1, 3])),), s[:2]),
    "take": lambda x, s, t: x.take(t(np.array([[3, -1], [0, 9]]))),
    "put": lambda x, s, t: x.put(t(np.array([3, 15, 4])), s[0, :3]),
    "take_along_dim": lambda x, s, t: x.take_along_dim(t(INDEX[:2, :1]), 0),
    "take_along_dim flat": lambda x, s, t: x.take_along_dim(t(INDEX)),
    "masked_fill": lambda x, s, t: x.masked_fill(x > 0, 7.0),
    "masked_fill broadcast": lambda x, s, t: x.masked_fill(x[0] > 0, 7.0),
    "where bytes": lambda x, s, t: x.where(t((INDEX % 2).astype(np.uint8)), s),
    "masked_select": lambda x, s, t: x.masked_select(x[:, :1] > 0),
    "masked_scatter": lambda x, s, t: x.masked_scatter(x > 0, s),
    "select_scatter": lambda x, s, t: x.select_scatter(s[0], 1, 2),
    "slice_scatter": lambda x, s, t: x.slice_scatter(s[:2], 0, 1, None, 2),
    "diagonal_scatter": lambda x, s, t: x.diagonal_scatter(s[0, :3], 1),
}


@pytest.mark.filterwarnings("ignore:index_reduce", "ignore:where received a uint8")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name: str) -> None:
    rng = np.random.default_rng(0)
    x, source = rng.standard_normal((2, 4, 4))
    (ours, theirs), (mine, other) = both(x, True), both(source, True)
    result = FUNCTIONS[name](ours, mine, metaop.tensor)
    expected = FUNCTIONS[name](theirs, other, torch.tensor)
    assert_same(result, expected, name)
    weights = rng.standard_normal(tuple(expected.shape))
    (result * metaop.tensor(weights)).sum().backward()
    (expected * torch.tensor(weights)).sum().backward()
    assert_same_gradient(ours, theirs, name)
    assert_same_gradient(mine, other, name)


@pytest.mark.parametrize("name", ["gather 1", "scatter_add", "scatter_reduce prod", "index_add"])
def test_second_order(name: str) -> None:
    x, source = np.random.default_rng(0).uniform(0.5, 1.5, (2, 4, 4))
    check_derivatives(lambda a, b: FUNCTIONS[name](a * a * b, b * a, metaop.tensor), x, source)


IN_PLACE = "scatter scatter_add index_add index_copy masked_fill index_fill masked_scatter".split()


@pytest.mark.parametrize("name", [*IN_PLACE, "scatter_reduce amax"])
def test_in_place(name: str) -> None:
    x, source = np.random.default_rng(0).standard_normal((2, 4, 4))
    (ours, theirs), (mine, other) = both(x), both(source)
    word = name.split()[0]
    for tensor, src, lib in ((ours, mine, metaop), (theirs, other, torch)):
        arguments = {
            "scatter": (1, lib.tensor(UNIQUE), src),
            "scatter_add": (1, lib.tensor(INDEX), src),
            "scatter_reduce": (1, lib.tensor(INDEX), src, "amax"),
            "index_add": (0, lib.tensor([1, 1]), src[:2]),
            "index_copy": (0, lib.tensor([3, 1]), src[:2]),
            "index_fill": (0, lib.tensor([3, 1]), 2.0),
            "masked_fill": (src > 0, 2.0),
            "masked_scatter": (src > 0, src),
        }[word]
        getattr(tensor, word + "_")(*arguments)
    assert_same(ours, theirs, name)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "float16"])
def test_types(dtype: str) -> None:
    values = np.random.default_rng(0).integers(0, 2, (5, 4)).astype(dtype)
    ours, theirs = both(values)
    for x, lib in ((ours, metaop), (theirs, torch)):
        x[lib.tensor([0, 3])] = x[1].clone()
        x[:, 1:3] = x[:, ::2].clone()
        x[x == 0] = 1
    assert_same(ours, theirs, dtype)


def test_nonzero() -> None:
    values = np.random.default_rng(0).integers(0, 2, (3, 4, 2))
    ours, theirs = both(values)
    assert_same(ours.nonzero(), theirs.nonzero(), "nonzero")
    assert_same(metaop.argwhere(ours), torch.argwhere(theirs), "argwhere")
    for mine, other in zip(ours.nonzero(as_tuple=True), theirs.nonzero(as_tuple=True)):
        assert_same(mine, other, "as_tuple")
    for mine, other in zip(metaop.where(ours > 0), torch.where(theirs > 0)):
        assert_same(mine, other, "where")


@pytest.mark.parametrize("width", [1, 3, 1 << 20])
def test_rows_of_an_empty_tensor_are_refused_and_not_read(width: int) -> None:
    empty, index = metaop.zeros(0, width), metaop.zeros(2, dtype=metaop.int64)
    with pytest.raises(IndexError, match="index 0 is out of range for a dimension of size 0"):
        empty[index].sum().item()
    with pytest.raises(IndexError, match="size 0"):
        metaop.nn.functional.embedding(index, empty).numpy()
    assert empty[index[:0]].shape == (0, width)
