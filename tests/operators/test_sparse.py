"""Sparse tensors against the dense ones that they stand for, gradients against differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import metaop
from metaop.errors import ArgumentError, DimensionError, ShapeError, UnsupportedError
from metaop.sparse import SparseTensor
from tests.helpers import check_derivatives

random = np.random.default_rng(0)

# Places twice, a row and a column without any.
PLACES = np.array([[0, 2, 2, 0, 3, 2], [1, 0, 4, 1, 2, 4]])
VALUES = random.standard_normal(6)
SIZE = (5, 6)


def dense_of(places: np.ndarray, values: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    result = np.zeros(size)
    np.add.at(result, tuple(places), values)
    return result


def coordinates(values: Any = VALUES) -> SparseTensor:
    values = values if isinstance(values, metaop.Tensor) else metaop.tensor(values)
    return metaop.sparse_coo_tensor(metaop.tensor(PLACES), values, SIZE)


DENSE = dense_of(PLACES, VALUES, SIZE)


def rows() -> SparseTensor:
    return coordinates().to_sparse_csr()


def test_coordinates_stand_for_a_dense_tensor() -> None:
    sparse = coordinates()
    assert sparse.shape == SIZE and sparse.dtype is metaop.float64 and sparse.is_sparse
    assert sparse._nnz() == 6 and sparse.sparse_dim() == 2 and sparse.dense_dim() == 0
    np.testing.assert_allclose(sparse.mT.to_dense().numpy(), DENSE.T)
    assert sparse.ndimension() == 2 and sparse.nelement() == 30 and not sparse.is_cuda
    np.testing.assert_allclose(sparse.to_dense().numpy(), DENSE)
    assert metaop.sparse_coo_tensor(PLACES, VALUES).shape == (4, 5)
    assert metaop.sparse_coo_tensor((2, 3)).to_dense().tolist() == [[0.0] * 3] * 2
    vectors = random.standard_normal((6, 2))
    hybrid = metaop.sparse_coo_tensor(PLACES, vectors, (*SIZE, 2))
    np.testing.assert_allclose(hybrid.to_dense().numpy(), dense_of(PLACES, vectors, (*SIZE, 2)))
    assert hybrid.dense_dim() == 1


def test_coalescing_orders_and_adds() -> None:
    sparse = coordinates()
    with pytest.raises(ArgumentError, match="uncoalesced"):
        sparse.indices()
    ordered = sparse.coalesce()
    assert ordered.is_coalesced() and ordered.coalesce() is ordered
    assert ordered.indices().tolist() == [[0, 2, 2, 3], [1, 0, 4, 2]]
    wanted = [VALUES[0] + VALUES[3], VALUES[1], VALUES[2] + VALUES[5], VALUES[4]]
    np.testing.assert_allclose(ordered.values().numpy(), wanted)


def test_compressed_rows() -> None:
    sparse = rows()
    assert sparse.layout is metaop.sparse_csr and sparse.is_sparse_csr
    assert sparse.crow_indices().tolist() == [0, 1, 1, 3, 4, 4]
    assert sparse.col_indices().tolist() == [1, 0, 4, 2]
    again = metaop.sparse_csr_tensor(
        sparse.crow_indices(), sparse.col_indices(), sparse.values(), SIZE
    )
    np.testing.assert_allclose(again.to_dense().numpy(), DENSE)
    np.testing.assert_allclose(again.to_sparse_coo().to_dense().numpy(), DENSE)
    with pytest.raises(ArgumentError, match="layout"):
        coordinates().crow_indices()


def test_dense_tensors_become_sparse_and_come_back() -> None:
    tensor = metaop.tensor(DENSE)
    for sparse in (tensor.to_sparse(), tensor.to_sparse_csr(), tensor.to_sparse(1)):
        np.testing.assert_array_equal(sparse.to_dense().numpy(), DENSE)
    assert tensor.to_sparse()._nnz() == 4 and tensor.to_sparse(1)._nnz() == 3
    assert tensor.to_sparse(layout=metaop.sparse_csr).is_sparse_csr
    assert tensor.to_dense() is tensor


@pytest.mark.parametrize("make", [coordinates, rows])
def test_products(make: Any) -> None:
    other, vector = random.standard_normal((6, 3)), random.standard_normal(6)
    sparse = make()
    matrix = metaop.tensor(other)
    for product in (
        sparse @ matrix,
        sparse.mm(matrix),
        metaop.sparse.mm(sparse, matrix),
        metaop.spmm(sparse, matrix),
        metaop.mm(sparse, matrix),
        metaop.matmul(sparse, matrix),
    ):
        np.testing.assert_allclose(product.numpy(), DENSE @ other, atol=1e-12)
    np.testing.assert_allclose((sparse @ metaop.tensor(vector)).numpy(), DENSE @ vector)
    left = random.standard_normal((4, 5))
    np.testing.assert_allclose((metaop.tensor(left) @ sparse).numpy(), left @ DENSE, atol=1e-12)
    squared = sparse @ sparse.t()
    assert isinstance(squared, SparseTensor)
    np.testing.assert_allclose(squared.to_dense().numpy(), DENSE @ DENSE.T, atol=1e-12)
    base = random.standard_normal((5, 3))
    found = metaop.sparse.addmm(metaop.tensor(base), sparse, matrix, beta=0.5, alpha=2.0)
    np.testing.assert_allclose(found.numpy(), 0.5 * base + 2 * DENSE @ other, atol=1e-12)


def test_gradients_flow_to_values_and_dense_operands() -> None:
    other = random.standard_normal((6, 3))
    check_derivatives(lambda values, matrix: coordinates(values) @ matrix, VALUES, other)
    check_derivatives(lambda values: coordinates(values).to_dense(), VALUES)
    check_derivatives(lambda values: coordinates(values).coalesce().values(), VALUES)
    check_derivatives(lambda v: (coordinates(v) @ coordinates(v).t()).values(), VALUES)
    kept = metaop.tensor(DENSE != 0)
    check_derivatives(lambda dense: (dense * kept).to_sparse().values(), DENSE, order=1)
    sparse = metaop.sparse_coo_tensor(PLACES, VALUES, SIZE, requires_grad=True)
    (sparse @ metaop.tensor(other)).sum().backward()
    assert sparse.grad is not None
    np.testing.assert_allclose(sparse.grad._values().numpy(), other.sum(1)[PLACES[1]])


def test_arithmetic() -> None:
    sparse, tensor = coordinates(), metaop.tensor(DENSE)
    for found, wanted in (
        (sparse * 2, DENSE * 2),
        (-sparse / 4, -DENSE / 4),
        (sparse + sparse, DENSE * 2),
        (sparse - rows(), DENSE * 0),
        (sparse.coalesce() * tensor, DENSE * DENSE),
        (sparse.t(), DENSE.T),
        (sparse.transpose(0, 1), DENSE.T),
    ):
        assert isinstance(found, SparseTensor)
        np.testing.assert_allclose(found.to_dense().numpy(), wanted, atol=1e-12)
    np.testing.assert_allclose((sparse + tensor).numpy(), DENSE * 2)
    np.testing.assert_allclose((tensor + sparse).numpy(), DENSE * 2)
    np.testing.assert_allclose((tensor - sparse).numpy(), DENSE * 0, atol=1e-12)
    np.testing.assert_allclose(sparse.sum().item(), DENSE.sum())
    for dim in (0, 1, -1):
        np.testing.assert_allclose(
            metaop.sparse.sum(sparse, dim).to_dense().numpy(), DENSE.sum(dim), atol=1e-12
        )
    assert sparse.float().dtype is metaop.float32 and sparse.to(metaop.float16).shape == SIZE


def test_softmax_of_what_is_kept() -> None:
    kept = DENSE != 0
    for dim in (0, 1):
        exponentials = np.where(kept, np.exp(DENSE), 0)
        totals = exponentials.sum(dim, keepdims=True)
        wanted = np.divide(exponentials, totals, out=np.zeros(SIZE), where=totals > 0)
        found = metaop.sparse.softmax(coordinates(), dim)
        np.testing.assert_allclose(found.to_dense().numpy(), wanted, atol=1e-12)
        logarithms = metaop.sparse.log_softmax(coordinates(), dim)
        np.testing.assert_allclose(logarithms.values().exp().numpy(), found.values().numpy())
    check_derivatives(lambda v: metaop.sparse.softmax(coordinates(v), 1).values(), VALUES, order=1)


def test_diagonals_and_old_names() -> None:
    diagonals = np.arange(1.0, 13).reshape(3, 4)
    found = metaop.sparse.spdiags(
        metaop.tensor(diagonals), metaop.tensor([0, -1, 2]), (4, 5), metaop.sparse_csr
    )
    wanted = np.zeros((4, 5))
    for line, offset in zip(diagonals, (0, -1, 2)):
        for column in range(4):
            if 0 <= column - offset < 4:
                wanted[column - offset, column] = line[column]
    np.testing.assert_array_equal(found.to_dense().numpy(), wanted)
    old = metaop.sparse.FloatTensor(metaop.tensor(PLACES), metaop.tensor(VALUES), SIZE)
    assert old.dtype is metaop.float32
    half = metaop.sparse.HalfTensor(metaop.tensor(PLACES), metaop.tensor(VALUES), SIZE)
    assert half.dtype is metaop.float16
    assert "nnz=6, layout=metaop.sparse_coo" in repr(old)


@pytest.mark.filterwarnings("ignore")
def test_printed_as_in_torch() -> None:
    texts = []
    for framework in (pytest.importorskip("torch"), metaop):
        places, values = framework.tensor([[0, 1, 1], [2, 0, 2]]), framework.tensor([1.0, 2.5, 3.0])
        printed = [
            framework.sparse_coo_tensor(places, values, (2, 3)),
            framework.sparse_coo_tensor(places, values.double(), (2, 3), requires_grad=True),
            framework.sparse_coo_tensor(places, values.long(), (2, 3)),
            framework.sparse_coo_tensor(places, framework.ones(3, 4), (2, 3, 4)),
            framework.zeros(2, 3).to_sparse(),
            framework.arange(3000.0).view(3, 1000).to_sparse(),
            framework.sparse_csr_tensor(framework.tensor([0, 1, 3]), places[1], values, (2, 3)),
            framework.eye(3).to_sparse_csc(),
        ]
        texts.append([str(one).replace("torch", "metaop") for one in printed])
    assert texts[1] == texts[0]


def test_the_same_as_in_torch() -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.sparse_coo_tensor(
        torch.tensor(PLACES), torch.tensor(VALUES), SIZE, check_invariants=True
    )
    ours = coordinates()
    assert ours.coalesce().indices().tolist() == theirs.coalesce().indices().tolist()
    np.testing.assert_allclose(ours.coalesce().values().numpy(), theirs.coalesce().values().numpy())
    np.testing.assert_allclose(
        metaop.sparse.softmax(ours, 1).to_dense().numpy(),
        torch.sparse.softmax(theirs, 1).to_dense().numpy(),
        rtol=1e-12,
    )


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(DimensionError, match="out of range for size"):
        metaop.sparse_coo_tensor(PLACES, VALUES, (3, 6))
    with pytest.raises(ShapeError, match="indices"):
        metaop.sparse_coo_tensor(PLACES, VALUES[:3], SIZE)
    with pytest.raises(ShapeError, match="do not count"):
        metaop.sparse_csr_tensor([0, 2, 1], [0, 1], [1.0, 2.0])
    with pytest.raises(ShapeError, match="do not match"):
        coordinates() @ metaop.ones(5, 2)
    with pytest.raises(UnsupportedError, match="not a matrix"):
        metaop.ones(2, 2, 2).to_sparse().to_sparse_csr()


def test_dense_tensors_have_no_coordinates() -> None:
    for name in ("indices", "values"):
        with pytest.raises((RuntimeError, NotImplementedError), match="sparse tensor layout"):
            getattr(metaop.ones(2), name)()


def test_columns_are_compressed_like_rows() -> None:
    """Making, reading and converting matrices in CSC layout, and the transposes of both."""
    columns = coordinates().to_sparse_csc()
    assert columns.layout is metaop.sparse_csc and columns._nnz() == 4
    assert columns.ccol_indices().tolist() == [0, 1, 2, 3, 3, 4, 4]
    assert columns.row_indices().tolist() == [2, 0, 3, 2]
    same = metaop.sparse_csc_tensor(
        columns.ccol_indices(), columns.row_indices(), columns.values(), SIZE
    )
    assert "ccol_indices=tensor([0, 1" in repr(same)
    parts = rows().crow_indices(), rows().col_indices(), rows().values()
    again = metaop.sparse_compressed_tensor(*parts, SIZE, layout=metaop.sparse_csr)
    for matrix in (columns, same, again, same.to_sparse_csr(), same.to_sparse(), again.t().t()):
        np.testing.assert_allclose(matrix.to_dense().numpy(), DENSE)
        np.testing.assert_allclose(matrix.t().to_dense().numpy(), DENSE.T)
        np.testing.assert_allclose((matrix @ metaop.ones(6, 2, dtype=metaop.float64)).numpy()[:, 0],
                                   DENSE.sum(1))  # fmt: skip
        np.testing.assert_allclose((matrix + matrix).to_dense().numpy(), 2 * DENSE)
    assert rows().t().layout is metaop.sparse_csc and columns.t().layout is metaop.sparse_csr
    assert metaop.tensor(DENSE).to_sparse(layout=metaop.sparse_csc).layout is metaop.sparse_csc
    assert metaop.sparse_csc_tensor([0, 1], [2], [1.0]).shape == (3, 1)
    with pytest.raises(ArgumentError, match="expected sparse compressed row tensor layout"):
        columns.crow_indices()
    with pytest.raises(ShapeError, match="ccol_indices .* do not count 1 indices"):
        metaop.sparse_csc_tensor([0, 2], [2], [1.0])
    with pytest.raises(DimensionError):
        metaop.sparse_csc_tensor([0, 1], [7], [1.0], (3, 1))
    with pytest.raises(ArgumentError, match="layout="):
        metaop.sparse_compressed_tensor([0, 1], [0], [1.0])


@pytest.mark.parametrize("kind", ["to_sparse_coo", "to_sparse_csr", "to_sparse_csc"])
def test_products_in_every_layout(kind: str) -> None:
    """Sorted by row or not, whatever the user says of the order."""

    def product(values: metaop.Tensor, x: metaop.Tensor) -> Any:
        return getattr(coordinates(values), kind)() @ x

    check_derivatives(product, VALUES, random.standard_normal((6, 3)))
    check_derivatives(product, VALUES, random.standard_normal(6))
    claimed = metaop.sparse_coo_tensor(PLACES, VALUES, SIZE, is_coalesced=True)
    ones = metaop.ones(6, dtype=metaop.float64)
    np.testing.assert_allclose((claimed @ ones).numpy(), DENSE.sum(1))


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin"])
def test_products_with_other_reductions(reduce: Any) -> None:
    dense = random.standard_normal((6, 3))

    def product(values: metaop.Tensor, x: metaop.Tensor) -> Any:
        return metaop.sparse.mm(coordinates(values).to_sparse_csr(), x, reduce)

    stored, functions = rows().to_dense().numpy(), {"amax": np.max, "amin": np.min}
    function: Any = functions.get(reduce, getattr(np, reduce.removeprefix("a"), None))
    for row, found in enumerate(product(metaop.tensor(VALUES), metaop.tensor(dense)).numpy()):
        products = [stored[row, k] * dense[k] for k in np.flatnonzero(stored[row])]
        wanted = function(products, axis=0) if products else np.zeros(3)
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)
    check_derivatives(product, VALUES, dense)
    # Rows that are not sorted, though the user says that they are.
    values = metaop.tensor([1.0, 2.0, 3.0])
    claimed = metaop.sparse_coo_tensor([[2, 0, 2], [1, 0, 0]], values, (3, 2), is_coalesced=True)
    found = metaop.sparse.mm(claimed, metaop.ones(2, 1), reduce).flatten().tolist()
    assert found == [2.0, 0.0, {"sum": 4.0, "mean": 2.0, "amax": 3.0, "amin": 1.0}[reduce]]
    with pytest.raises(ArgumentError, match="'prod' is no reduction"):
        metaop.sparse.mm(rows(), metaop.tensor(dense), "prod")  # type: ignore[arg-type]
    if reduce != "sum":
        with pytest.raises(UnsupportedError, match="only a sparse matrix times a dense one"):
            metaop.sparse.mm(rows(), rows().t(), reduce)


def test_products_at_stored_elements() -> None:
    left, right = random.standard_normal((5, 2)), random.standard_normal((2, 6))

    def sampled(values: metaop.Tensor, a: metaop.Tensor, b: metaop.Tensor) -> Any:
        made = metaop.sparse.sampled_addmm(rows()._with(values), a, b, beta=0.5, alpha=2.0)
        return made.to_dense()

    values = rows().values().numpy()
    wanted = np.where(DENSE != 0, 0.5 * DENSE + 2 * left @ right, 0)
    found = sampled(*map(metaop.tensor, (values, left, right)))
    np.testing.assert_allclose(found.numpy(), wanted)
    check_derivatives(sampled, values, left, right)
    with pytest.raises(ShapeError, match="sampled_addmm"):
        metaop.sparse.sampled_addmm(rows(), metaop.ones(5, 2), metaop.ones(3, 6))
