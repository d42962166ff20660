"""Functions of sparse tensors against PyTorch's: values, layouts, gradients, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.errors import ArgumentError, DimensionError, GradientError, ShapeError, UnsupportedError
from metaop.sparse import SparseTensor

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")
random = np.random.default_rng(0)

# Places twice, a row and a column without any.
PLACES = np.array([[0, 2, 2, 0, 3, 2], [1, 0, 4, 1, 2, 4]])
CUBES = np.array([[0, 1, 1, 0], [2, 0, 3, 2], [1, 1, 0, 2]])
VALUES = random.uniform(0.1, 0.9, 6) * [1, -1, 1, 1, -1, 1]
VECTORS = random.standard_normal((4, 2))


def made(framework: Any, which: str, dtype: str = "float64") -> tuple[Any, Any]:
    """A sparse tensor and its values: a matrix in a layout, vectors, or one of three dimensions."""
    places = CUBES if which in ("cubes", "vectors") else PLACES
    given = {"cubes": VALUES[:4], "vectors": VECTORS}.get(which, VALUES)
    given = (given * 10).round() if dtype == "int64" else given
    size = {"cubes": (2, 4, 3), "vectors": (2, 4, 3, 2)}.get(which, (5, 6))
    values = framework.tensor(given.tolist(), dtype=getattr(framework, dtype))
    values.requires_grad_(framework is metaop and dtype != "int64")
    found = framework.sparse_coo_tensor(framework.tensor(places.tolist()), values, size)
    return getattr(found, f"to_sparse_{which}")() if which in ("csr", "csc") else found, values


def dense_in_torch(which: str) -> tuple[Any, Any]:
    """The same as a dense tensor, of values that require grad."""
    sparse, values = made(torch, which)
    values.requires_grad_()
    places = tuple(torch.tensor(CUBES if which in ("cubes", "vectors") else PLACES))
    zeros = torch.zeros(tuple(sparse.shape), dtype=torch.float64)
    return zeros.index_put(places, values, accumulate=True), values


def array_of(result: Any) -> np.ndarray:
    dense = result.to_dense() if str(result.layout).endswith(("coo", "csr", "csc")) else result
    return dense.detach().numpy()


Program = Callable[[Any, Any], Any]


def agree(which: str, program: Program, integers: bool = True) -> None:
    """The same values, types and layouts as in PyTorch, and the gradients of its dense tensors."""
    for dtype in ("float64", "float32", *(("int64",) if integers else ())):
        theirs = program(torch, made(torch, which, dtype)[0])
        ours = program(metaop, made(metaop, which, dtype)[0])
        assert str(ours.layout).partition(".")[2] == str(theirs.layout).partition(".")[2]
        assert tuple(ours.shape) == tuple(theirs.shape)
        assert ours.dtype.name == str(theirs.dtype).removeprefix("torch.")
        if theirs.layout is torch.sparse_coo:
            assert ours.sparse_dim() == theirs.sparse_dim()
        np.testing.assert_allclose(array_of(ours), array_of(theirs), 1e-5, 1e-5)
    agree_in_gradients(which, program)


def agree_in_gradients(which: str, program: Program) -> None:
    gradients = []
    for framework in (torch, metaop):
        given, values = dense_in_torch(which) if framework is torch else made(metaop, which)
        result = program(framework, given).to_dense()
        weight = np.cos(np.arange(result.numel())).reshape(tuple(result.shape))
        (result * framework.tensor(weight.tolist(), dtype=framework.float64)).sum().backward()
        gradients.append(values.grad.numpy())
    np.testing.assert_allclose(gradients[1], gradients[0], 1e-10, 1e-10)


ELEMENTWISE = (
    *("abs", "asin", "asinh", "atan", "atanh", "ceil", "deg2rad", "erf", "erfinv", "expm1"),
    *("floor", "frac", "log1p", "neg", "rad2deg", "relu", "round", "sgn", "sign", "sin", "sinh"),
    *("sqrt", "tan", "tanh", "trunc", "square", "nan_to_num", "positive", "absolute", "arctan"),
)

BOUNDED = ("asin", "arcsin", "atanh", "erfinv", "log1p", "sqrt", "tan")
COO_ONLY = ("absolute", "nan_to_num", "positive", "square")


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_functions_that_keep_zero(name: str) -> None:
    def program(framework: Any, x: Any) -> Any:
        return getattr(framework, name)(x.abs() * 0.1 if name in BOUNDED else x)

    for which in ("coo", "vectors", *(("csr",) if name not in COO_ONLY else ())):
        agree(which, program, integers=name != "frac" and name not in BOUNDED)
    ours, other = (made(metaop, "coo")[0].detach() for _ in range(2))
    if hasattr(metaop.Tensor, f"{name}_"):
        assert getattr(ours, f"{name}_")() is ours
        np.testing.assert_allclose(array_of(ours), array_of(getattr(other, name)()))


@pytest.mark.parametrize("name", ["isnan", "isinf", "isposinf", "isneginf", "signbit"])
def test_tests_of_elements(name: str) -> None:
    for which in ("coo", "csr"):
        theirs, ours = (getattr(f, name)(made(f, which)[0]) for f in (torch, metaop))
        assert ours.dtype is metaop.bool and ours.layout is made(metaop, which)[0].layout
        assert ours.to_dense().tolist() == theirs.to_dense().tolist()


@pytest.mark.parametrize("exponent", [1, 2, 3, 4])
def test_powers(exponent: float) -> None:
    agree("coo", lambda framework, x: x**exponent)
    agree("vectors", lambda framework, x: framework.pow(x, exponent))


def test_functions_that_do_not_keep_zero_are_refused() -> None:
    sparse, _ = made(metaop, "coo")
    for refused in (
        lambda: metaop.exp(sparse),
        lambda: sparse.cos(),
        lambda: sparse.pow(0),
        lambda: sparse.pow(-1),
        lambda: sparse.nan_to_num().log(),
        lambda: metaop.sigmoid(sparse),
        lambda: metaop.softmax(sparse, 1),
        lambda: sparse.mean(),
        lambda: sparse + 1,
        lambda: sparse == sparse,
        lambda: sparse != 0,
        lambda: sparse.norm(2, 0),
        lambda: metaop.ones(5, 6) / made(metaop, "coo")[0],
        lambda: metaop.maximum(sparse, sparse),
        lambda: sparse.reshape(30),
        lambda: sparse[metaop.tensor([0, 1])],
        lambda: made(metaop, "vectors")[0].permute(0, 1, 3, 2),
        lambda: metaop.cat([sparse, metaop.ones(5, 6)]),
    ):
        with pytest.raises(UnsupportedError, match="fix|not allowed"):
            refused()
    assert (sparse == None) is False and sparse != None  # noqa: E711
    with pytest.raises(ArgumentError, match="Sparse division requires"):
        sparse / metaop.ones(5, 6)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        sparse.nonsense()


MOVES: dict[str, tuple[str, Program]] = {
    "index": ("coo", lambda f, x: x[2]),
    "element": ("coo", lambda f, x: x[2, 4]),
    "column": ("coo", lambda f, x: x[:, 4]),
    "last": ("coo", lambda f, x: x[..., -2]),
    "none": ("coo", lambda f, x: x[None]),
    "select": ("cubes", lambda f, x: f.select(x, 1, 2)),
    "inner select": ("vectors", lambda f, x: x.select(3, 1)),
    "narrow": ("coo", lambda f, x: x.narrow_copy(0, 1, 3)),
    "inner narrow": ("vectors", lambda f, x: x.narrow_copy(3, 1, 1)),
    "index_select": ("coo", lambda f, x: x.index_select(0, f.tensor([2, 0, 2, 1]))),
    "columns": ("coo", lambda f, x: f.index_select(x, 1, f.tensor([4, 4, 5]))),
    "inner index": ("vectors", lambda f, x: x.index_select(3, f.tensor([1, 1, 0]))),
    "permute": ("cubes", lambda f, x: x.permute(2, 0, 1)),
    "vectors": ("vectors", lambda f, x: f.permute(x, (1, 2, 0, 3))),
    "transpose": ("cubes", lambda f, x: f.transpose(x, 0, -1)),
    "t": ("coo", lambda f, x: f.t(x)),
    "unsqueeze": ("coo", lambda f, x: x.unsqueeze(1)),
    "inner unsqueeze": ("vectors", lambda f, x: f.unsqueeze(x, -1)),
    "unsqueeze last sparse": ("vectors", lambda f, x: f.unsqueeze(x, 3)),
    "cat": ("coo", lambda f, x: f.cat([x, x * 2], 0)),
    "cat columns": ("coo", lambda f, x: f.cat((x, x), -1)),
    "inner cat": ("vectors", lambda f, x: f.cat([x, x, x], 3)),
    "stack": ("coo", lambda f, x: f.stack([x, x * 3])),
    "stack last": ("coo", lambda f, x: f.stack([x, x], -1)),
    "unbind": ("coo", lambda f, x: x.unbind()[2]),
    "iterate": ("coo", lambda f, x: list(x)[2]),
    "sum": ("vectors", lambda f, x: f.sum(x, 1)),
    "sum kept": ("coo", lambda f, x: x.sum(0, keepdim=True)),
    "sum several": ("vectors", lambda f, x: x.sum((0, 3))),
}


@pytest.mark.parametrize("name", MOVES)
def test_movements(name: str) -> None:
    agree(*MOVES[name])


PRODUCTS: dict[str, tuple[str, Program]] = {
    "times itself": ("coo", lambda f, x: x * x),
    "vectors": ("vectors", lambda f, x: f.mul(x, x)),
    "rows": ("csr", lambda f, x: x * x),
    "others": ("coo", lambda f, x: x * f.stack([x[2]] * 5)),
    "dense": ("coo", lambda f, x: x * f.arange(30).reshape(5, 6)),
    "broadcast": ("coo", lambda f, x: f.mul(x, f.arange(6))),
    "column": ("coo", lambda f, x: x * f.arange(5).reshape(5, 1)),
    "number": ("vectors", lambda f, x: f.mul(x, 3)),
    "add": ("coo", lambda f, x: f.add(x, x * x, alpha=2)),
    "sub": ("coo", lambda f, x: f.sub(x, x * 3)),
    "add to dense": ("coo", lambda f, x: f.add(f.arange(30).reshape(5, 6), x, alpha=2)),
    "dense in place": ("coo", lambda f, x: f.ones(5, 6, dtype=f.float64).add_(x, alpha=2)),
    "bmm": ("cubes", lambda f, x: f.bmm(x, f.arange(12).reshape(2, 3, 2).to(x.dtype))),
    "mm": ("coo", lambda f, x: f.mm(x, f.arange(12).reshape(6, 2).to(x.dtype))),
    "mv": ("coo", lambda f, x: f.mv(x, f.arange(6).to(x.dtype))),
    "dense mm": ("csr", lambda f, x: f.mm(f.arange(10).reshape(2, 5).to(x.dtype), x)),
    "addmm": (
        "coo",
        lambda f, x: f.addmm(
            f.ones(5, 2, dtype=x.dtype), x, f.arange(12).reshape(6, 2).to(x.dtype), beta=3, alpha=2
        ),
    ),
    "linear": (
        "csr",
        lambda f, x: f.nn.functional.linear(f.arange(12).reshape(2, 6).to(x.dtype), x),
    ),
    "dsmm": ("coo", lambda f, x: f.dsmm(x, f.arange(12).reshape(6, 2).to(x.dtype))),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_arithmetic(name: str) -> None:
    agree(*PRODUCTS[name], integers=PRODUCTS[name][0] != "csr")  # PyTorch has no such products


def test_products_whose_result_is_sparse() -> None:
    def columns(f: Any, dtype: Any) -> Any:
        return f.arange(12, dtype=dtype).reshape(6, 2)

    programs: tuple[Program, ...] = (
        lambda f, x: f.hspmm(x, columns(f, x.dtype)),
        lambda f, x: f.smm(x, columns(f, x.dtype)),
        lambda f, x: f.sspaddmm(
            x.index_select(1, f.tensor([1, 4])), x, columns(f, x.dtype), beta=2, alpha=3
        ),
    )
    for dtype in ("float64", "float32"):
        for program in programs:
            theirs, ours = (program(f, made(f, "coo", dtype)[0]) for f in (torch, metaop))
            assert (ours.sparse_dim(), ours._nnz() > 0) == (theirs.sparse_dim(), True)
            np.testing.assert_allclose(array_of(ours), array_of(theirs), 1e-5)
    for name in ("hspmm", "smm"):
        agree_in_gradients(
            "coo",
            lambda f, x, name=name: (
                getattr(f, name)(x, columns(f, f.float64))
                if f is metaop
                else f.mm(x, columns(f, f.float64))
            ),
        )


def test_norms_and_what_tensors_are() -> None:
    for which in ("coo", "vectors"):
        theirs, ours = made(torch, which)[0], made(metaop, which)[0]
        for arguments in ((), (1,), (2.0,), (float("inf"),), (2, tuple(range(ours.ndim)))):
            for one in (metaop.norm(ours, *arguments), ours.norm(*arguments)):
                np.testing.assert_allclose(array_of(one), array_of(theirs.norm(*arguments)), 1e-6)
        assert ours.any().item() and ours.is_floating_point() and not ours.is_complex()
        for name in ("half", "float", "double", "int", "long", "bool", "bfloat16"):
            found, wanted = getattr(ours, name)(), getattr(theirs, name)()
            assert found.dtype.name == str(wanted.dtype).removeprefix("torch.")
            assert found.float().to_dense().tolist() == wanted.float().to_dense().tolist()
        assert metaop.is_tensor(ours) and len(list(ours)) == len(ours)
    agree_in_gradients("coo", lambda f, x: f.norm(x))
    agree_in_gradients("vectors", lambda f, x: f.norm(x, 1))


@pytest.mark.parametrize("name", ["sparse_coo", "sparse_csr", "sparse_csc"])
def test_zeros_in_a_layout(name: str) -> None:
    for framework in (torch, metaop):
        layout = getattr(framework, name)
        like = framework.ones(2, 3, dtype=framework.int64)
        for found in (
            framework.zeros(2, 3, layout=layout, dtype=framework.int64),
            framework.empty((2, 3), layout=layout, dtype=framework.int64),
            framework.zeros_like(like, layout=layout),
            framework.zeros_like(like.to_sparse(layout=layout)),
        ):
            assert found.layout is layout and found.dtype is framework.int64
            assert found._nnz() == 0 and found.to_dense().tolist() == [[0] * 3] * 2
        assert framework.zeros(2, 3, layout=layout, requires_grad=True).requires_grad
    assert metaop.empty_like(metaop.eye(3).to_sparse(layout=layout))._nnz() == 0
    dense = metaop.zeros_like(metaop.eye(3).to_sparse(), layout=metaop.strided)
    assert isinstance(dense, metaop.Tensor) and not dense.any()
    assert metaop.zeros(2, 3, 4, layout=metaop.sparse_coo).sparse_dim() == 3


def test_in_place() -> None:
    sparse, dense = (metaop.eye(3).to_sparse() for _ in range(2))
    assert sparse.add_(dense, alpha=2) is sparse
    assert sparse.mul_(2).sub_(dense).div_(5).to_dense().tolist() == metaop.eye(3).tolist()
    sparse += dense
    assert sparse.norm(1).item() == 6
    assert sparse.zero_()._nnz() == 0 and sparse.shape == (3, 3)
    leaf = metaop.eye(3).to_sparse().requires_grad_()
    with pytest.raises(GradientError, match="leaf Variable"):
        leaf.mul_(2)
    with pytest.raises(NotImplementedError, match="can't be cast"):
        metaop.eye(3).long().to_sparse().add_(dense)
    columns = metaop.eye(3).to_sparse_csc()
    assert columns.add_(columns).layout is metaop.sparse_csc


def test_what_does_not_fit_is_refused() -> None:
    sparse = made(metaop, "coo")[0]
    for refused, error in (
        (lambda: sparse[5], DimensionError),
        (lambda: sparse[0, 0, 0], DimensionError),
        (lambda: sparse[::-1], DimensionError),
        (lambda: sparse.narrow(0, 3, 4), DimensionError),
        (lambda: sparse.index_select(0, metaop.tensor([5])), DimensionError),
        (lambda: sparse.permute(0), ShapeError),
        (lambda: metaop.cat([sparse, sparse.t()]), ShapeError),
        (lambda: sparse * sparse.t(), ShapeError),
        (lambda: sparse * metaop.ones(2, 5, 6), ShapeError),
        (lambda: metaop.bmm(sparse, sparse), ShapeError),
        (lambda: metaop.zeros(3, layout=metaop.sparse_csr), ArgumentError),
    ):
        with pytest.raises(error):
            refused()
    assert isinstance(sparse.squeeze(), SparseTensor) and sparse[1:4:2, 1:].shape == (2, 5)
    np.testing.assert_array_equal(array_of(sparse[1:4:2, 1:]), array_of(sparse)[1:4:2, 1:])
    np.testing.assert_array_equal(array_of(sparse[None].squeeze(0)), array_of(sparse))
