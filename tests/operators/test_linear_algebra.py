"""Matrix products, Einstein sums and distances against PyTorch, with gradients of two orders."""

from __future__ import annotations

import math

import numpy as np
import pytest

import metaop
from metaop.operators import linear_algebra
from metaop.reduce.meta_op import Reduce
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.node import input_node
from tests.helpers import check, check_derivatives

torch = pytest.importorskip("torch")
random = np.random.default_rng(2)


def normal(*shape: int, dtype: str = "float64") -> np.ndarray:
    return np.asarray(random.standard_normal(shape)).astype(dtype)


MATMUL_SHAPES = [
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((3,), (3, 4)),
    ((2, 3), (3, 4)),
    ((5, 2, 3), (3,)),
    ((3,), (5, 3, 4)),
    ((5, 2, 3), (3, 4)),
    ((2, 3), (5, 3, 4)),
    ((5, 2, 3), (5, 3, 4)),
    ((6, 1, 2, 3), (5, 3, 4)),
    ((1, 2, 3), (5, 3, 4)),
    ((0, 3), (3, 4)),
    ((2, 0), (0, 4)),
    ((1, 1), (1, 1)),
]


@pytest.mark.parametrize("left,right", MATMUL_SHAPES)
def test_matmul(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    check("matmul", normal(*left), normal(*right))
    check("matmul", normal(*left, dtype="float32"), normal(*right, dtype="float32"))
    check((lambda a, b: a @ b, lambda a, b: a @ b), normal(*left), normal(*right))


def test_matmul_of_other_types() -> None:
    check("matmul", random.integers(-5, 5, (3, 4)), random.integers(-5, 5, (4, 2)))
    halves = normal(8, 16, dtype="float16"), normal(16, 4, dtype="float16")
    check("matmul", *halves, tolerance=1e-2)


@pytest.mark.parametrize("left,right", MATMUL_SHAPES[:10])
def test_matmul_derivatives(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    check_derivatives(metaop.matmul, normal(*left), normal(*right))


def test_matmul_is_one_sum_over_one_product() -> None:
    left = input_node(0, (5, 2, 3), dtypes.float32)
    right = input_node(1, (5, 3, 4), dtypes.float32)
    node = linear_algebra.matmul(left, right)
    assert isinstance(node.op, Reduce) and node.op.reducer.name == "add"
    product = node.inputs[0]
    assert product.shape == (5, 2, 4, 3) and product.op.function.name == "mul"
    assert [operand.inputs[0] for operand in product.inputs] == [left, right]


def test_named_products() -> None:
    check("mm", normal(2, 3), normal(3, 4))
    check("bmm", normal(5, 2, 3), normal(5, 3, 4))
    check("mv", normal(2, 3), normal(3))
    check("dot", normal(3), normal(3))
    check("vdot", normal(3), normal(3))
    check("inner", normal(2, 3), normal(4, 3))
    check("outer", normal(3), normal(4))
    chain = [normal(2, 3), normal(3, 4), normal(4, 5)]
    check((metaop.chain_matmul, lambda a, b, c: a @ b @ c), *chain)


@pytest.mark.parametrize("beta,alpha", [(1, 1), (0.5, 2), (0, 1), (2, -1.5)])
def test_added_products(beta: float, alpha: float) -> None:
    options = {"beta": beta, "alpha": alpha}
    check("addmm", normal(2, 4), normal(2, 3), normal(3, 4), **options)
    check("addmm", normal(4), normal(2, 3), normal(3, 4), **options)
    check("addmv", normal(2), normal(2, 3), normal(3), **options)
    check("baddbmm", normal(5, 2, 4), normal(5, 2, 3), normal(5, 3, 4), **options)
    check("addbmm", normal(2, 4), normal(5, 2, 3), normal(5, 3, 4), **options)
    check("addr", normal(2, 3), normal(2), normal(3), **options)


def test_errors() -> None:
    with pytest.raises(RuntimeError, match=r"\[2, 3\].*\[2, 3\]"):
        metaop.ones(2, 3) @ metaop.ones(2, 3)
    with pytest.raises(RuntimeError):
        metaop.mm(metaop.ones(2), metaop.ones(2, 3))
    with pytest.raises(RuntimeError):
        metaop.bmm(metaop.ones(2, 3, 4), metaop.ones(3, 4, 5))
    with pytest.raises(RuntimeError, match="dtype"):
        metaop.ones(2, 3) @ metaop.ones(3, 4).double()
    with pytest.raises(RuntimeError):
        metaop.tensor(2.0) @ metaop.ones(3)


EQUATIONS = [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("bij,bjk->bik", (5, 2, 3), (5, 3, 4)),
    ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)),
    ("i,j->ij", (2,), (3,)),
    ("i,i->", (3,), (3,)),
    ("ij->ji", (2, 3)),
    ("ij->", (2, 3)),
    ("ij->j", (2, 3)),
    ("ii->i", (3, 3)),
    ("ii", (3, 3)),
    ("iij->j", (3, 3, 2)),
    ("ba", (2, 3)),
    ("...ij,...jk->...ik", (5, 2, 3), (3, 4)),
    ("...ij,...jk->...ik", (5, 1, 2, 3), (6, 3, 4)),
    ("i...->...", (2, 3, 4)),
    ("...,...", (2, 3), (3,)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)),
    ("a,b,c->abc", (2,), (3,), (4,)),
    ("ij,ij,ij->i", (2, 3), (2, 3), (2, 3)),
    ("ij,kj->ik", (2, 1), (4, 3)),
    ("ab,cd->", (2, 3), (4, 5)),
    ("i j , j k -> i k", (2, 3), (3, 4)),
    ("bn,anm,bm->ba", (2, 3), (4, 3, 5), (2, 5)),
]


@pytest.mark.parametrize("case", EQUATIONS, ids=lambda case: case[0])
def test_einsum(case: tuple) -> None:
    equation, *shapes = case
    operands = [normal(*shape) for shape in shapes]
    check("einsum", equation, *operands)
    check("einsum", equation, *[x.astype("float32") for x in operands])
    check_derivatives(lambda *xs: metaop.einsum(equation, *xs), *operands)


@pytest.mark.parametrize("equation", ["ij,jk->iz", "ij->ij", "ij,jk->iik", "i1,jk->i"])
def test_einsum_errors(equation: str) -> None:
    with pytest.raises(RuntimeError):
        metaop.einsum(equation, metaop.ones(2, 3), metaop.ones(3, 4))


SUBSCRIPTS = [
    ([0, 1], [1, 2], [0, 2]),
    ([0, 1], [1, 2]),
    ([..., 3, 51], [51, 0], [0, ..., 3]),
    ([30, 1], [1, 2]),
    ((0, 1), (1, 2), ()),
]


@pytest.mark.parametrize("subscripts", SUBSCRIPTS, ids=str)
def test_einsum_of_lists(subscripts: tuple) -> None:
    def function(library):
        def product(a, b):
            return library.einsum(a, subscripts[0], b, subscripts[1], *subscripts[2:])

        return product

    check((function(metaop), function(torch)), normal(2, 3), normal(3, 4))
    pairs = normal(2, 3, 2), normal(3, 4, 2)
    mine = function(metaop)(*(metaop.view_as_complex(metaop.tensor(x)) for x in pairs))
    theirs = function(torch)(*(torch.view_as_complex(torch.tensor(x)) for x in pairs))
    np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-12)


@pytest.mark.parametrize("operands", [[[0, 52]], [[-1, 0]], [], [[0, 1], [0, 2]], [[0]], [2]])
def test_einsum_of_wrong_lists(operands: list) -> None:
    for library in (metaop, torch):
        with pytest.raises((ValueError, RuntimeError, TypeError)):
            library.einsum(library.ones(2, 3), *operands)


def test_einsum_of_one_operand_and_its_list() -> None:
    check((lambda a: metaop.einsum(a, [0, 0], [0]), lambda a: a.diagonal()), normal(3, 3))


def test_einsum_sizes() -> None:
    with pytest.raises(RuntimeError, match="size"):
        metaop.einsum("ij,jk->ik", metaop.ones(2, 3), metaop.ones(4, 5))


def test_tensordot() -> None:
    a, b = normal(2, 3, 4), normal(3, 4, 5)
    check("tensordot", a, b)
    check("tensordot", a, b, dims=2)
    check("tensordot", a, normal(4, 2), dims=([0, 2], [1, 0]))
    check("tensordot", normal(2, 3), normal(4, 5), dims=0)
    with pytest.raises(RuntimeError):
        metaop.tensordot(metaop.ones(2, 3), metaop.ones(4, 5), 1)


def test_kron_cross_trace() -> None:
    check("kron", normal(2, 3), normal(4, 2))
    check("kron", normal(3), normal(2, 2))
    check("cross", normal(4, 3), normal(4, 3), dim=1)
    check("trace", normal(3, 4))
    check_derivatives(lambda a, b: metaop.cross(a, b, 1), normal(2, 3), normal(2, 3))


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, math.inf])
def test_distances(p: float) -> None:
    # PyTorch has no gradient for p = 0.
    check("cdist", normal(4, 3), normal(5, 3), p=p, gradient=p > 0)
    check("cdist", normal(2, 4, 3), normal(2, 5, 3), p=p, gradient=p > 0)
    check("dist", normal(4, 3), normal(4, 3), p, gradient=p > 0)
    if p:
        left, right = normal(2, 3), normal(2, 3)
        check_derivatives(lambda a, b: metaop.cdist(a, b, p), left, right, tolerance=1e-4)


def well_conditioned(*shape: int) -> np.ndarray:
    return normal(*shape) + 3 * np.eye(shape[-1])


def positive_definite(*shape: int) -> np.ndarray:
    x = normal(*shape)
    return x @ np.swapaxes(x, -1, -2) + np.eye(shape[-1])


@pytest.mark.parametrize("shape", [(3, 3), (1, 1), (2, 4, 4)])
def test_inverses(shape: tuple[int, ...]) -> None:
    for name in ("linalg.inv", "linalg.det", "linalg.slogdet", "linalg.pinv", "inverse"):
        check(name, well_conditioned(*shape), tolerance=1e-9)
    check("logdet", positive_definite(*shape), tolerance=1e-9)
    check("linalg.inv", well_conditioned(*shape).astype("float32"), tolerance=1e-4)
    check("linalg.matrix_rank", well_conditioned(*shape), gradient=False)


def test_solve() -> None:
    check("linalg.solve", well_conditioned(3, 3), normal(3, 2))
    check("linalg.solve", well_conditioned(3, 3), normal(3))
    check("linalg.solve", well_conditioned(2, 3, 3), normal(2, 3, 2))
    check("linalg.solve", well_conditioned(3, 3), normal(2, 3, 2))
    check("linalg.solve", well_conditioned(3, 3), normal(2, 3), left=False)
    check("linalg.solve_triangular", well_conditioned(3, 3), normal(3, 2), upper=True)
    check("linalg.solve_triangular", well_conditioned(3, 3), normal(3, 2), upper=False)
    with pytest.raises(RuntimeError, match="[Ss]ingular"):
        metaop.linalg.solve(metaop.zeros(2, 2), metaop.ones(2))


def test_cholesky() -> None:
    def ours(x):
        return metaop.linalg.cholesky(x @ x.mT + 1)

    def theirs(x):
        return torch.linalg.cholesky(x @ x.mT + 1)

    check((ours, theirs), normal(3, 4))
    check((ours, theirs), normal(2, 3, 4))
    check("linalg.cholesky", positive_definite(3, 3), upper=True)
    check_derivatives(ours, normal(3, 4), tolerance=1e-5)
    with pytest.raises(RuntimeError):
        metaop.linalg.cholesky(-metaop.eye(2))


def test_eigenvalues() -> None:
    def ours(x):
        values, vectors = metaop.linalg.eigh(x + x.mT)
        return values, vectors**2

    def theirs(x):
        values, vectors = torch.linalg.eigh(x + x.mT)
        return values, vectors**2

    check((ours, theirs), normal(4, 4), tolerance=1e-8)
    check((ours, theirs), normal(2, 3, 3), tolerance=1e-8)
    check("linalg.eigvalsh", positive_definite(3, 3))
    check_derivatives(ours, normal(3, 3), tolerance=1e-4)


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4), (2, 3, 4)])
def test_singular_values(shape: tuple[int, ...]) -> None:
    def ours(x):
        U, S, Vh = metaop.linalg.svd(x, full_matrices=False)
        return S, U**2, Vh**2

    def theirs(x):
        U, S, Vh = torch.linalg.svd(x, full_matrices=False)
        return S, U**2, Vh**2

    check((ours, theirs), normal(*shape), tolerance=1e-8)
    check("linalg.svdvals", normal(*shape), tolerance=1e-9)
    check_derivatives(ours, normal(*shape), tolerance=1e-4)


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4), (2, 4, 3)])
def test_qr(shape: tuple[int, ...]) -> None:
    def ours(x):
        Q, R = metaop.linalg.qr(x)
        return Q**2, R**2

    def theirs(x):
        Q, R = torch.linalg.qr(x)
        return Q**2, R**2

    check((ours, theirs), normal(*shape), tolerance=1e-9)
    check_derivatives(ours, normal(*shape), tolerance=1e-4)


def test_derivatives_of_inverses() -> None:
    check_derivatives(metaop.linalg.inv, well_conditioned(3, 3))
    check_derivatives(metaop.linalg.det, well_conditioned(3, 3), tolerance=1e-5)
    check_derivatives(metaop.linalg.solve, well_conditioned(3, 3), normal(3, 2))


@pytest.mark.parametrize("order", ["fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf])
def test_matrix_norms(order: object) -> None:
    check("linalg.matrix_norm", normal(3, 4), order, tolerance=1e-9)
    check("linalg.matrix_norm", normal(2, 3, 4), order, keepdim=True, tolerance=1e-9)
    check("linalg.matrix_norm", normal(2, 3, 4), order, dim=(0, 2), tolerance=1e-9)
    check("linalg.norm", normal(3, 4), order, tolerance=1e-9)


@pytest.mark.parametrize("other", [2000.0, np.nan, np.inf])
def test_exponentials_of_a_batch_do_not_depend_on_each_other(other: float) -> None:
    """A matrix of large norm, or one that is not finite, costs the others no accuracy."""
    batch = normal(3, 4, 4)
    batch[1] = np.triu(np.full((4, 4), other), 1) - np.tril(np.full((4, 4), other), -1)
    found = metaop.linalg.matrix_exp(metaop.tensor(batch.astype("float32"))).numpy()
    expected = torch.linalg.matrix_exp(torch.tensor(batch.astype("float32")).double()).numpy()
    for k in (0, 2):
        np.testing.assert_allclose(found[k], expected[k], rtol=1e-5, atol=1e-5)


def test_functions_of_matrices() -> None:
    for power in (-2, 0, 1, 5):
        check("linalg.matrix_power", well_conditioned(2, 3, 3), power, tolerance=1e-9)
    check("linalg.matrix_exp", normal(3, 3) * 2, tolerance=1e-9)
    check("linalg.matrix_exp", normal(2, 3, 3), tolerance=1e-9)
    check("linalg.vecdot", normal(2, 3), normal(2, 3))
    check("linalg.cross", normal(2, 3), normal(2, 3))
    for p in (None, 1, 2, -2, "fro"):
        # PyTorch overwrites what its gradient of the other norms needs.
        exact = p in (None, 2, -2)
        check("linalg.cond", well_conditioned(3, 3), p, tolerance=1e-9, gradient=exact)
    chain = [normal(3), normal(3, 4), normal(4, 2)]
    check("linalg.multi_dot", chain)
    solution = metaop.linalg.lstsq(metaop.tensor(normal(5, 3)), metaop.tensor(normal(5, 2)))[0]
    assert solution.shape == (3, 2)


@pytest.mark.parametrize("shape", [(70, 40), (40, 70), (2, 65, 65)])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_elimination_in_several_panels(shape, dtype):
    numbers = np.random.default_rng(5)
    matrix = numbers.standard_normal(shape).astype(dtype)
    if dtype == "complex128":
        matrix += 1j * numbers.standard_normal(shape)
    mine = metaop.linalg.lu_factor(metaop.from_numpy(matrix))
    theirs = torch.linalg.lu_factor(torch.from_numpy(matrix))
    np.testing.assert_allclose(mine[0].numpy(), theirs[0].numpy(), rtol=1e-9, atol=1e-11)
    np.testing.assert_array_equal(mine[1].numpy(), theirs[1].numpy())


@pytest.mark.parametrize("types", [("float64", "complex128"), ("float32", "float64")])
def test_triangular_systems_of_two_types_lose_nothing(types: tuple[str, str]) -> None:
    A = np.array([[2.0, 0.0], [1.0, 3.0]], types[0])
    B = np.array([[1.0 + 1e-12], [2.0]], types[1]) + (1j if types[1].startswith("complex") else 0)
    found = metaop.linalg.solve_triangular(metaop.tensor(A), metaop.tensor(B), upper=False)
    np.testing.assert_allclose(found.numpy(), np.linalg.solve(A, B), rtol=1e-15)
    assert found.numpy().dtype == B.dtype
