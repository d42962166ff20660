"""Transforms, the sets they lead to, and the distributions that they make, beside PyTorch's."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import metaop
from metaop import distributions as D
from metaop.distributions.utils import tril_matrix_to_vec, vec_to_tril_matrix
from tests.distributions.cases import (
    assert_close,
    correlation_factor,
    factor,
    normal,
    positive,
    positive_definite,
    random,
    simplex,
    unit,
)
from tests.helpers import from_numpy, to_torch

torch = pytest.importorskip("torch")
T = torch.distributions

# How to make a transform with a package and a function that makes its tensors; its arguments.
TRANSFORMS = {
    "Exp": (lambda p, t: p.ExpTransform(), normal(4, 3)),
    "Power": (lambda p, t: p.PowerTransform(t(np.array([0.5, 2.0, -1.5]))), positive(4, 3)),
    "PowerOfNumber": (lambda p, t: p.PowerTransform(3.0), np.float32(positive(4, 3))),
    "Sigmoid": (lambda p, t: p.SigmoidTransform(), normal(4, 3)),
    "Softplus": (lambda p, t: p.SoftplusTransform(), normal(4, 3)),
    "Tanh": (lambda p, t: p.TanhTransform(), normal(4, 3)),
    "Abs": (lambda p, t: p.AbsTransform(), normal(4, 3)),
    "Affine": (lambda p, t: p.AffineTransform(0.5, -2), normal(4, 3)),
    "AffineOfTensors": (
        lambda p, t: p.AffineTransform(t(np.array([0.0, 1.0, 2.0])), t(np.array([1.0, -2.0, 3.0]))),
        normal(4, 3),
    ),
    "AffineOfEvents": (
        lambda p, t: p.AffineTransform(1.0, t(np.array([1.0, -2.0, 3.0])), event_dim=1),
        normal(4, 3),
    ),
    "AffineOfNumbersOfEvents": (lambda p, t: p.AffineTransform(1.0, 2.5, 2), normal(5, 4, 3)),
    "CumulativeDistribution": (
        lambda p, t: p.CumulativeDistributionTransform(p.Normal(t(np.zeros(3)), 1.5)),
        normal(4, 3),
    ),
    "Reshape": (lambda p, t: p.ReshapeTransform((6,), (3, 2)), normal(4, 6)),
    "CorrCholesky": (lambda p, t: p.CorrCholeskyTransform(), normal(4, 6)),
    "CorrCholeskyOfTwo": (lambda p, t: p.CorrCholeskyTransform(), normal(4, 1)),
    "Softmax": (lambda p, t: p.SoftmaxTransform(), normal(4, 3)),
    "StickBreaking": (lambda p, t: p.StickBreakingTransform(), normal(4, 3)),
    "LowerCholesky": (lambda p, t: p.LowerCholeskyTransform(), normal(4, 3, 3)),
    "PositiveDefinite": (lambda p, t: p.PositiveDefiniteTransform(), normal(4, 3, 3)),
    "Independent": (lambda p, t: p.IndependentTransform(p.ExpTransform(), 1), normal(4, 3)),
    "Compose": (
        lambda p, t: p.ComposeTransform(
            [p.AffineTransform(0.5, 2.0), p.StickBreakingTransform(), p.ExpTransform()]
        ),
        normal(4, 3),
    ),
    "Identity": (lambda p, t: p.identity_transform, normal(4, 3)),
    "Cat": (
        lambda p, t: p.CatTransform(
            [p.ExpTransform(), p.identity_transform, p.AffineTransform(1.0, 2.0)], -1, [1, 2, 3]
        ),
        normal(4, 6),
    ),
    "CatOfEvents": (
        lambda p, t: p.CatTransform([p.ExpTransform(), p.AffineTransform(1.0, 2.0, 1)], 0, [1, 3]),
        normal(4, 6),
    ),
    "CatWithinEvents": (
        lambda p, t: p.CatTransform(
            [p.AffineTransform(0.0, 3.0, 1), p.AffineTransform(1.0, 2.0, 1)], -1, [2, 4]
        ),
        normal(4, 6),
    ),
    "Stack": (
        lambda p, t: p.StackTransform([p.ExpTransform(), p.TanhTransform()], 1),
        normal(4, 2, 3),
    ),
    "Inverse": (lambda p, t: p.AffineTransform(0.5, 2.0).inv, normal(4, 3)),
    "InverseOfChain": (
        lambda p, t: p.ComposeTransform([p.ExpTransform(), p.AffineTransform(1.0, 2.0)]).inv,
        3 + positive(4, 3),
    ),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_values_inverses_and_jacobians(name: str) -> None:
    make, x = TRANSFORMS[name]
    ours, theirs = make(D, from_numpy), make(T, to_torch)
    mine, other = from_numpy(x).requires_grad_(), to_torch(x).requires_grad_()
    y, expected = ours(mine), theirs(other)
    tolerance = 1e-5 if x.dtype == np.float32 else 1e-10
    assert_close(y, expected, tolerance)
    assert_close(ours.inv(y), theirs.inv(expected), tolerance)
    assert ours.bijective == theirs.bijective
    total, wanted = y.square().sum(), expected.square().sum()
    if theirs.bijective:
        jacobian, theirs_too = (
            ours.log_abs_det_jacobian(mine, y),
            theirs.log_abs_det_jacobian(other, expected),
        )
        assert_close(jacobian, theirs_too, tolerance)
        assert_close(ours.inv.log_abs_det_jacobian(y, mine), -theirs_too, tolerance)
        total, wanted = total + jacobian.sum(), wanted + theirs_too.sum()
    total.backward()
    wanted.backward()
    assert_close(mine.grad, other.grad, 100 * tolerance)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_shapes_and_sets(name: str) -> None:
    make, x = TRANSFORMS[name]
    ours, theirs = make(D, from_numpy), make(T, to_torch)
    shape = tuple(theirs.forward_shape(torch.Size(x.shape)))
    assert tuple(ours.forward_shape(metaop.Size(x.shape))) == shape
    assert tuple(ours.inverse_shape(metaop.Size(shape))) == x.shape
    for which in ("domain", "codomain"):
        mine, other = getattr(ours, which), getattr(theirs, which)
        assert (mine.event_dim, mine.is_discrete) == (other.event_dim, other.is_discrete)
    y, expected = ours(from_numpy(x)), theirs(to_torch(x))
    if name == "CatOfEvents":  # neither can join a check of numbers with one of vectors
        return
    assert_close(ours.domain.check(from_numpy(x)), theirs.domain.check(to_torch(x)))
    assert_close(ours.codomain.check(y), theirs.codomain.check(expected))


@pytest.mark.parametrize("name", TRANSFORMS)
def test_signs(name: str) -> None:
    make, _ = TRANSFORMS[name]
    ours, theirs = make(D, from_numpy), make(T, to_torch)
    try:
        expected = theirs.sign
    except NotImplementedError:
        with pytest.raises(NotImplementedError):
            _ = ours.sign
    else:
        np.testing.assert_array_equal(np.asarray(ours.sign), np.asarray(expected))


@pytest.mark.parametrize("name", TRANSFORMS)
def test_equality_caches_and_copies(name: str) -> None:
    make, x = TRANSFORMS[name]
    ours, theirs = make(D, from_numpy), make(T, to_torch)
    assert ours == ours and ours.inv == ours.inv and ours.inv.inv is ours
    if make(T, to_torch) == theirs:
        assert make(D, from_numpy) == ours
    assert ours != D.LowerCholeskyTransform().inv
    value = from_numpy(x)
    kept = ours.with_cache()
    assert kept.with_cache() is kept
    if name != "Identity":
        assert kept.inv(kept(value)) is value and kept(value) is kept(value)
        assert ours(value) is not ours(value)
    for other in (copy.deepcopy(kept), pickle.loads(pickle.dumps(ours))):
        assert_close(other(value), ours(value))
        assert_close(other.inv(ours(value)), ours.inv(ours(value)))


@pytest.mark.parametrize(
    "call",
    [
        lambda: D.Transform(cache_size=2),
        lambda: D.ReshapeTransform((2,), (3,)),
        lambda: D.ReshapeTransform((2, 3), (6,)).forward_shape(metaop.Size((3, 2))),
        lambda: D.CorrCholeskyTransform().forward_shape(metaop.Size((4,))),
        lambda: D.CorrCholeskyTransform().inverse_shape(metaop.Size((4, 3))),
        lambda: D.StickBreakingTransform().event_dim and D.ReshapeTransform((6,), (2, 3)).event_dim,
        lambda: D.SoftmaxTransform().forward_shape(metaop.Size(())),
        lambda: D.IndependentTransform(D.ExpTransform(), 1)(metaop.tensor(1.0)),
        lambda: vec_to_tril_matrix(metaop.zeros(4)),
        lambda: tril_matrix_to_vec(metaop.zeros(2, 2), 2),
        lambda: D.TransformedDistribution(D.Normal(0.0, 1.0), "exp"),
        lambda: D.TransformedDistribution(D.Normal(0.0, 1.0), [abs]),
        lambda: D.TransformedDistribution(D.Normal(0.0, 1.0), D.StickBreakingTransform()),
        lambda: D.constraints.dependent.check(metaop.zeros(2)),
        lambda: D.constraints.real_vector.check(metaop.tensor(1.0)),
    ],
)
def test_what_is_refused(call) -> None:
    with pytest.raises(ValueError):
        call()


def test_parts_that_do_not_fit() -> None:
    for call in (
        lambda: D.CatTransform([D.ExpTransform()], 0, [1, 2]),
        lambda: D.CatTransform([abs], 0),
        lambda: D.CatTransform([D.ExpTransform()], 0, [2])(metaop.zeros(3)),
        lambda: D.StackTransform([D.ExpTransform()], 1)(metaop.zeros(3)),
        lambda: D.constraints.cat([D.constraints.real], 0, [1, 2]),
        lambda: D.constraints.stack([None]),
        lambda: D.constraints.independent(None, 1),
        lambda: D.constraints.independent(D.constraints.real, -1),
    ):
        with pytest.raises(AssertionError):
            call()


@pytest.mark.parametrize("diagonal", [-2, -1, 0, 1])
def test_triangles_as_vectors(diagonal: int) -> None:
    utils = T.utils
    matrix = normal(2, 4, 4)
    vector = tril_matrix_to_vec(from_numpy(matrix), diagonal)
    assert_close(vector, utils.tril_matrix_to_vec(to_torch(matrix), diagonal))
    expected = utils.vec_to_tril_matrix(to_torch(vector.numpy()), diagonal)
    assert_close(vec_to_tril_matrix(vector, diagonal), expected)


C, R = D.constraints, T.constraints
SETS = {
    "real": (lambda p, t: p.real, normal(4)),
    "positive": (lambda p, t: p.positive, positive(4)),
    "nonnegative": (lambda p, t: p.nonnegative, positive(4)),
    "greater_than": (lambda p, t: p.greater_than(-2.0), normal(4).clip(-1.9)),
    "greater_than_eq": (lambda p, t: p.greater_than_eq(t(np.array([-3.0]))), normal(4).clip(-2.9)),
    "less_than": (lambda p, t: p.less_than(2.0), normal(4).clip(None, 1.9)),
    "unit_interval": (lambda p, t: p.unit_interval, unit(4)),
    "interval": (lambda p, t: p.interval(-1.0, 3.0), unit(4)),
    "half_open_interval": (lambda p, t: p.half_open_interval(-1.0, t(np.array(3.0))), unit(4)),
    "simplex": (lambda p, t: p.simplex, simplex(4, 3)),
    "real_vector": (lambda p, t: p.real_vector, normal(4, 3)),
    "independent": (lambda p, t: p.independent(p.positive, 1), positive(4, 3)),
    "corr_cholesky": (lambda p, t: p.corr_cholesky, correlation_factor(4, 3, 3)),
    "lower_cholesky": (lambda p, t: p.lower_cholesky, factor(4, 3, 3)),
    "positive_definite": (lambda p, t: p.positive_definite, positive_definite(4, 3, 3)),
    "positive_semidefinite": (lambda p, t: p.positive_semidefinite, positive_definite(4, 3, 3)),
    "cat": (lambda p, t: p.cat([p.positive, p.real], 0, [1, 3]), positive(4)),
    "stack": (lambda p, t: p.stack([p.positive, p.real], 0), positive(2, 3)),
}


@pytest.mark.parametrize("registry", ["biject_to", "transform_to"])
@pytest.mark.parametrize("name", SETS)
def test_transforms_into_sets(name: str, registry: str) -> None:
    make, value = SETS[name]
    mine, other = make(C, from_numpy), make(R, to_torch)
    try:
        theirs = getattr(T, registry)(other)
    except NotImplementedError:
        with pytest.raises(NotImplementedError):
            getattr(D, registry)(mine)
        return
    ours = getattr(D, registry)(mine)
    free = theirs.inv(to_torch(value))
    assert_close(ours.inv(from_numpy(value)), free, 1e-8)
    assert_close(ours(from_numpy(free.numpy())), to_torch(value), 1e-8)
    assert bool(mine.check(ours(from_numpy(free.numpy()))).all())


@pytest.mark.parametrize("root, distributions", [(metaop, D), (torch, T)])
def test_transforms_and_distributions_that_are_modules(root, distributions) -> None:
    class Scale(distributions.Transform, root.nn.Module):
        domain = codomain = distributions.constraints.real
        bijective = True
        __hash__ = root.nn.Module.__hash__

        def __init__(self) -> None:
            super().__init__(cache_size=1)
            self.factor = root.nn.Parameter(root.ones(2))

        def _call(self, x):
            return x * self.factor

    class Learned(distributions.Normal, root.nn.Module):
        def __init__(self) -> None:
            super().__init__(0.0, 1.0)
            self.factor = root.nn.Parameter(root.ones(2))

    scale, x = Scale(), root.ones(2)
    y = scale(x)
    assert scale._cached_x_y[0] is x and scale._cached_x_y[1] is y
    assert [len(list(one.parameters())) for one in (scale, Learned())] == [1, 1]
    assert Learned().log_prob(x).shape == (2,)


def test_registries_of_the_users_own() -> None:
    class Even(D.constraints.Constraint):
        def check(self, value):
            return value % 2 == 0

    with pytest.raises(NotImplementedError, match="Even"):
        D.biject_to(Even())
    registry = type(D.biject_to)()
    registry.register(Even)(lambda _: D.AffineTransform(0.0, 2.0))
    assert registry(Even())(metaop.tensor(3.0)).item() == 6
    with pytest.raises(TypeError):
        registry.register(3, lambda _: D.ExpTransform())
    assert repr(Even()) == "Even()"


CHECKS = {
    "boolean": (lambda p: p.boolean, np.array([0.0, 1.0, 0.5])),
    "one_hot": (lambda p: p.one_hot, np.array([[0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])),
    "nonnegative_integer": (lambda p: p.nonnegative_integer, np.array([0.0, 1.5, -1.0, 3.0])),
    "positive_integer": (lambda p: p.positive_integer, np.array([0.0, 1.5, -1.0, 3.0])),
    "integer_interval": (lambda p: p.integer_interval(1, 3), np.array([0.0, 1.5, 2.0, 3.0, 4.0])),
    "half_open_interval": (lambda p: p.half_open_interval(0.0, 1.0), np.array([0.0, 0.5, 1.0])),
    "unit_interval": (lambda p: p.unit_interval, np.array([-0.1, 0.0, 0.5, 1.0, np.nan])),
    "real": (lambda p: p.real, np.array([1.0, np.inf, np.nan])),
    "multinomial": (lambda p: p.multinomial(3), np.array([[1.0, 2.0], [3.0, 1.0], [-1.0, 1.0]])),
    "lower_triangular": (lambda p: p.lower_triangular, normal(2, 3, 3) * [[[1.0]], [[0.0]]]),
    "square": (lambda p: p.square, normal(2, 3, 2)),
    "symmetric": (lambda p: p.symmetric, np.stack([normal(3, 3), positive_definite(3, 3)])),
    "symmetric of oblongs": (lambda p: p.symmetric, normal(2, 3, 2)),
    "positive_definite": (
        lambda p: p.positive_definite,
        np.stack([np.diag([1.0, 0.0]), np.diag([1.0, 2.0]), np.diag([-1.0, 1.0])]),
    ),
    "positive_semidefinite": (
        lambda p: p.positive_semidefinite,
        np.stack([np.diag([1.0, 0.0]), np.diag([1.0, 2.0]), np.diag([-1.0, 1.0])]),
    ),
    "corr_cholesky": (
        lambda p: p.corr_cholesky,
        np.stack([correlation_factor(3, 3), factor(3, 3)]),
    ),
}


@pytest.mark.parametrize("name", CHECKS)
def test_checks_of_sets(name: str) -> None:
    make, value = CHECKS[name]
    mine, other = make(C), make(R)
    assert_close(mine.check(from_numpy(value)), other.check(to_torch(value)))
    assert (mine.event_dim, mine.is_discrete) == (other.event_dim, other.is_discrete)
    # PyTorch does not show the bound of this one.
    assert repr(mine) == repr(other) or name == "multinomial"


def test_sets_of_classes() -> None:
    assert C.is_dependent(D.Uniform.support) and not C.is_dependent(D.Normal.support)
    assert D.Uniform.support.event_dim == 0 and not D.Uniform.support.is_discrete
    assert C.dependent(event_dim=2).event_dim == 2
    with pytest.raises(NotImplementedError, match="statically"):
        _ = C.dependent.event_dim
    assert repr(C.real_vector) == repr(R.real_vector)


def chained(package, tensor, base, transforms):
    return package.TransformedDistribution(base(package, tensor), transforms(package, tensor))


def normals(package, tensor, *shape):
    return package.Normal(tensor(np.zeros(shape)), tensor(np.ones(shape)))


CHAINS = {
    "logistic": (
        lambda p, t: p.Uniform(t(np.zeros(3)), t(np.ones(3))),
        lambda p, t: [
            p.SigmoidTransform().inv,
            p.AffineTransform(1.0, t(np.array([-2.0, 1.0, 3.0]))),
        ],
        normal(4, 3),
    ),
    "wider transform": (
        lambda p, t: normals(p, t, 3),
        lambda p, t: [p.AffineTransform(t(np.zeros((2, 3))), 2.0), p.ExpTransform()],
        positive(4, 2, 3),
    ),
    "events of transforms": (
        lambda p, t: normals(p, t, 2, 3),
        lambda p, t: [p.AffineTransform(0.5, 2.0), p.StickBreakingTransform()],
        simplex(4, 2, 4),
    ),
    "events of the base": (
        lambda p, t: p.Independent(normals(p, t, 2, 3), 2),
        lambda p, t: p.ExpTransform(),
        positive(4, 2, 3),
    ),
    "reshaped": (
        lambda p, t: normals(p, t, 5, 6),
        lambda p, t: p.ReshapeTransform((6,), (2, 3)),
        normal(4, 5, 2, 3),
    ),
    "correlations": (
        lambda p, t: normals(p, t, 2, 3),
        lambda p, t: p.CorrCholeskyTransform(),
        correlation_factor(4, 2, 3, 3),
    ),
    "joined": (
        lambda p, t: normals(p, t, 4),
        lambda p, t: p.CatTransform([p.ExpTransform(), p.identity_transform], -1, [1, 3]),
        positive(4),
    ),
    "nothing": (lambda p, t: normals(p, t, 3), lambda p, t: [], normal(4, 3)),
}


@pytest.mark.parametrize("name", CHAINS)
def test_transformed_distributions(name: str) -> None:
    base, transforms, value = CHAINS[name]
    ours = chained(D, from_numpy, base, transforms)
    theirs = chained(T, to_torch, base, transforms)
    assert tuple(ours.batch_shape) == tuple(theirs.batch_shape)
    assert tuple(ours.event_shape) == tuple(theirs.event_shape)
    assert ours.support.event_dim == theirs.support.event_dim
    assert ours.has_rsample == theirs.has_rsample
    mine, other = from_numpy(value).requires_grad_(), to_torch(value).requires_grad_()
    density, expected = ours.log_prob(mine), theirs.log_prob(other)
    assert_close(density, expected)
    density.sum().backward()
    expected.sum().backward()
    assert_close(mine.grad, other.grad, 1e-8)
    shape = (2, *theirs.batch_shape)
    assert tuple(ours.expand(shape).rsample((3,)).shape) == (3, *shape, *theirs.event_shape)


@pytest.mark.parametrize("name", ["logistic", "wider transform"])
def test_cumulative_probabilities_of_chains(name: str) -> None:
    base, transforms, value = CHAINS[name]
    ours = chained(D, from_numpy, base, transforms)
    theirs = chained(T, to_torch, base, transforms)
    assert_close(ours.cdf(from_numpy(value)), theirs.cdf(to_torch(value)))
    level = random.uniform(size=value.shape)
    assert_close(ours.icdf(from_numpy(level)), theirs.icdf(to_torch(level)))
    assert_close(ours.cdf(ours.icdf(from_numpy(level))), to_torch(level))
