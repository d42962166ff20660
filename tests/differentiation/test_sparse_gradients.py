"""Gradients of tables that are looked up with `sparse=True`, against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

import metaop
from metaop.utils.checkpoint import checkpoint

torch = pytest.importorskip("torch")

INDICES = np.array([[1, 3, 0], [3, 3, 4]])
FLAT, OFFSETS = np.array([1, 3, 0, 3, 4, 2, 2]), np.array([0, 2, 2, 5])


def table(library, dtype="float32"):
    values = np.random.default_rng(0).standard_normal((6, 2)).astype(dtype)
    return library.tensor(values, requires_grad=True)


def both(gradient_of):
    """What a function of the library gives under metaop, then under PyTorch."""
    return gradient_of(metaop), gradient_of(torch)


def check(own, other):
    """The same layout and rows: those that add up to one are compared by their sum."""
    assert own.is_sparse and other.is_sparse
    assert own.shape == tuple(other.shape) and own.sparse_dim() == other.sparse_dim()
    assert own.is_coalesced() == other.is_coalesced()
    assert str(own.dtype).split(".")[1] == str(other.dtype).split(".")[1]
    np.testing.assert_allclose(own.to_dense().numpy(), other.to_dense().numpy(), rtol=1e-5)
    mine, theirs = own.coalesce(), other.coalesce()
    np.testing.assert_array_equal(mine.indices().numpy(), theirs.indices().numpy())
    np.testing.assert_allclose(mine.values().numpy(), theirs.values().numpy(), rtol=1e-5)


@pytest.mark.parametrize("indices", [INDICES, INDICES[0], np.array(2), INDICES.astype(np.int32)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_embedding(indices, dtype):
    def gradient(library):
        weight = table(library, dtype)
        found = library.nn.functional.embedding(library.tensor(indices), weight, sparse=True)
        (found * found).sum().backward()
        return weight.grad

    own, other = both(gradient)
    check(own, other)
    np.testing.assert_array_equal(own._indices().numpy(), other._indices().numpy())
    np.testing.assert_allclose(own._values().numpy(), other._values().numpy(), rtol=1e-5)


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("columns", [1, 3])
def test_small_tables(rows, columns):
    def gradient(library):
        weight = library.ones(rows, columns, requires_grad=True)
        index = library.tensor([0, rows - 1, 0])
        library.nn.functional.embedding(index, weight, sparse=True).sum().backward()
        return weight.grad

    check(*both(gradient))


@pytest.mark.parametrize("options", [{"mode": "sum"}, {"mode": "mean"}])
@pytest.mark.parametrize("indices", [(INDICES,), (FLAT, OFFSETS)])
def test_embedding_bag(options, indices):
    def gradient(library):
        weight = table(library)
        given = [library.tensor(index) for index in indices]
        bag = library.nn.functional.embedding_bag
        bag(given[0], weight, *given[1:], sparse=True, **options).square().sum().backward()
        return weight.grad

    check(*both(gradient))


def test_weighted_embedding_bag():
    def gradient(library):
        weight, share = table(library), library.ones(2, 3, requires_grad=True)
        bag = library.nn.functional.embedding_bag(
            library.tensor(INDICES), weight, mode="sum", per_sample_weights=share, sparse=True
        )
        bag.square().sum().backward()
        return weight.grad, share.grad

    (own, share), (other, wanted) = both(gradient)
    check(own, other)
    np.testing.assert_allclose(share.numpy(), wanted.numpy(), rtol=1e-5)


@pytest.mark.parametrize("dim", [0, 1])
def test_gather(dim):
    def gradient(library):
        weight = table(library)
        found = weight.gather(dim, library.tensor([[0, 1], [1, 1]]), sparse_grad=True)
        found.square().sum().backward()
        return weight.grad

    check(*both(gradient))


@pytest.mark.parametrize("layer", ["Embedding", "EmbeddingBag"])
def test_padding_gets_nothing(layer):
    """The row of the padding is kept with zeros, where PyTorch leaves it out."""

    def gradient(library):
        module = getattr(library.nn, layer)(6, 2, padding_idx=3, sparse=True)
        module.load_state_dict({"weight": library.ones(6, 2)})
        module(library.tensor(INDICES)).square().sum().backward()
        return module.weight.grad.to_dense()

    own, other = both(gradient)
    np.testing.assert_allclose(own.numpy(), other.numpy(), rtol=1e-6)


def test_max_norm():
    def gradient(library):
        weight = table(library)
        found = library.nn.functional.embedding(
            library.tensor(INDICES), weight, max_norm=0.5, sparse=True
        )
        found.square().sum().backward()
        return weight.grad

    check(*both(gradient))


def test_nothing_looked_up():
    def gradient(library):
        weight = table(library)
        index = library.zeros(0, dtype=library.int64)
        library.nn.functional.embedding(index, weight, sparse=True).sum().backward()
        return weight.grad

    own, other = both(gradient)
    assert own.is_sparse and own._nnz() == other._nnz() == 0
    np.testing.assert_array_equal(own.to_dense().numpy(), np.zeros((6, 2)))


def test_several_lookups_and_passes():
    """Lookups of a graph stand behind each other, and so do gradients of several passes."""

    def gradient(library):
        weight = table(library)
        look = library.nn.functional.embedding
        rows = library.tensor(INDICES)
        for factor in (1, 3):
            first = look(rows, weight, sparse=True).square().sum()
            (first + factor * look(rows[:1], weight, sparse=True).sum()).backward()
        return weight.grad

    own, other = both(gradient)
    check(own, other)
    assert own._nnz() == 18


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("sparse_first", [False, True])
def test_dense_and_sparse_are_dense(together, sparse_first):
    def gradient(library):
        weight = table(library)
        look = library.nn.functional.embedding(library.tensor(INDICES), weight, sparse=True)
        losses = [look.square().sum(), (weight * weight).sum()][:: 1 if sparse_first else -1]
        for loss in [losses[0] + losses[1]] if together else losses:
            loss.backward()
        return weight.grad

    own, other = both(gradient)
    assert not own.is_sparse and not other.is_sparse
    np.testing.assert_allclose(own.numpy(), other.numpy(), rtol=1e-5)


def test_tables_that_are_computed():
    """A gradient that flows on through another operator is dense from there on."""
    weight = table(metaop)
    doubled = weight * 2
    doubled.retain_grad()
    metaop.nn.functional.embedding(metaop.tensor(INDICES), doubled, sparse=True).sum().backward()
    assert doubled.grad.is_sparse and not weight.grad.is_sparse
    times = np.bincount(INDICES.reshape(-1), minlength=6)[:, None]
    np.testing.assert_array_equal(weight.grad.numpy(), 2.0 * times * np.ones((1, 2)))


def test_hooks():
    def gradient(library):
        weight, seen = table(library), []
        weight.register_hook(lambda grad: (seen.append(grad.is_sparse), grad * 2)[1])
        weight.register_post_accumulate_grad_hook(lambda x: seen.append(x.grad.is_sparse))
        library.nn.functional.embedding(
            library.tensor(INDICES), weight, sparse=True
        ).sum().backward()
        assert seen == [True, True]
        return weight.grad

    check(*both(gradient))


def test_a_hook_may_make_it_dense():
    weight = table(metaop)
    weight.register_hook(lambda grad: grad.to_dense())
    metaop.nn.functional.embedding(metaop.tensor(INDICES), weight, sparse=True).sum().backward()
    assert not weight.grad.is_sparse


def test_gradients_of_gradients():
    def gradient(library):
        weight = table(library)
        look = library.nn.functional.embedding(library.tensor(INDICES), weight, sparse=True)
        (first,) = library.autograd.grad(look.square().sum(), weight, create_graph=True)
        assert first.is_sparse and first.requires_grad
        return library.autograd.grad(first.to_dense().square().sum(), weight)[0]

    check(*both(gradient))


def test_zero_grad_keeps_an_empty_gradient():
    def gradient(library):
        weight = table(library)
        library.nn.functional.embedding(
            library.tensor(INDICES), weight, sparse=True
        ).sum().backward()
        library.optim.SGD([weight], lr=0.1).zero_grad(set_to_none=False)
        return weight.grad

    own, other = both(gradient)
    assert own.is_sparse and own._nnz() == other._nnz() == 0


def test_recomputed_lookups():
    weight = table(metaop)

    def look(table):
        return metaop.nn.functional.embedding(metaop.tensor(INDICES), table, sparse=True)

    checkpoint(look, weight, use_reentrant=False).square().sum().backward()
    found, weight.grad = weight.grad, None
    look(weight).square().sum().backward()
    np.testing.assert_array_equal(found.to_dense().numpy(), weight.grad.to_dense().numpy())


def test_assigned_gradients():
    weight = table(metaop)
    weight.grad = metaop.sparse_coo_tensor([[1]], metaop.ones(1, 2), (6, 2))
    assert weight.grad.is_sparse
    with pytest.raises(RuntimeError, match="size"):
        weight.grad = metaop.sparse_coo_tensor([[1]], metaop.ones(1, 2), (5, 2))
    with pytest.raises(RuntimeError, match="float64"):
        weight.grad = metaop.sparse_coo_tensor([[1]], metaop.ones(1, 2).double(), (6, 2))


@pytest.mark.parametrize("library", [metaop, torch])
def test_errors(library):
    look, bag = library.nn.functional.embedding, library.nn.functional.embedding_bag
    rows = library.tensor(INDICES)
    with pytest.raises((RuntimeError, NotImplementedError), match="scale_grad_by_freq"):
        look(rows, table(library), scale_grad_by_freq=True, sparse=True).sum().backward()
    with pytest.raises(ValueError, match="max mode does not support sparse weights"):
        bag(rows, table(library), mode="max", sparse=True)
    weight = table(library)
    look(rows, weight, sparse=True).sum().backward()
    with pytest.raises(NotImplementedError):
        library.nn.utils.clip_grad_norm_([weight], 1.0)
    with pytest.raises(NotImplementedError):
        library.nn.utils.clip_grad_value_([weight], 1.0)
