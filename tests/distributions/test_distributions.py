"""Densities, entropies, moments and shapes beside PyTorch's, with gradients."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import metaop
from metaop import distributions as D
from tests.distributions.cases import (
    CASES,
    assert_close,
    made,
    normal,
    positive,
    positive_definite,
    random,
    unit,
)
from tests.helpers import from_numpy, to_torch

torch = pytest.importorskip("torch")
T = torch.distributions

# The Bessel functions of PyTorch's von Mises distribution are good to about 2e-7.
TOLERANCE = {"VonMises": 1e-6}


def leaves(name: str):
    """The same distribution of both packages, with its parameters as leaves of gradients."""
    arguments = CASES[name][0]
    names = [key for key, value in arguments.items() if isinstance(value, np.ndarray)]
    names = [key for key in names if key != "total_count" or name == "NegativeBinomial"]
    ours = {key: from_numpy(arguments[key]).requires_grad_() for key in names}
    theirs = {key: to_torch(arguments[key]).requires_grad_() for key in names}
    fixed_ours = {
        k: from_numpy(v) if isinstance(v, np.ndarray) else v for k, v in arguments.items()
    }
    fixed = {k: to_torch(v) if isinstance(v, np.ndarray) else v for k, v in arguments.items()}
    return (
        getattr(D, name)(**{**fixed_ours, **ours}),
        getattr(T, name)(**{**fixed, **theirs}),
        ours,
        theirs,
    )


def assert_same_gradients(ours, theirs, mine, others, tolerance: float) -> None:
    """Of sums with random weights, for every parameter that PyTorch has a gradient for."""
    assert_close(ours, theirs, tolerance)
    weight = np.asarray(random.normal(size=tuple(theirs.shape)))
    if not theirs.requires_grad:
        return
    (ours * from_numpy(weight)).sum().backward()
    (theirs * to_torch(weight)).sum().backward()
    for key, other in others.items():
        if other.grad is not None:
            assert mine[key].grad is not None, key
            assert_close(mine[key].grad, other.grad, 10 * tolerance)


@pytest.mark.parametrize("name", CASES)
def test_log_probabilities_and_their_gradients(name: str) -> None:
    ours, theirs, mine, others = leaves(name)
    assert tuple(ours.batch_shape) == tuple(theirs.batch_shape)
    assert tuple(ours.event_shape) == tuple(theirs.event_shape)
    value, place = from_numpy(CASES[name][1]), to_torch(CASES[name][1])
    if not ours.support.is_discrete:
        mine["value"] = value.requires_grad_()
        others["value"] = place.requires_grad_()
    tolerance = TOLERANCE.get(name, 1e-9)
    assert_same_gradients(ours.log_prob(value), theirs.log_prob(place), mine, others, tolerance)


@pytest.mark.parametrize("what", ["entropy", "mean", "mode", "variance"])
@pytest.mark.parametrize("name", CASES)
def test_moments_and_entropies(name: str, what: str) -> None:
    ours, theirs, mine, others = leaves(name)
    try:
        expected = getattr(theirs, what)
        expected = expected() if callable(expected) else expected
    except (NotImplementedError, AttributeError):
        with pytest.raises(NotImplementedError):
            found = getattr(ours, what)
            found()
        return
    found = getattr(ours, what)
    found = found() if callable(found) else found
    tolerance = TOLERANCE.get(name, 1e-9)
    if what == "mode":
        assert_close(found, expected, tolerance)
    else:
        assert_same_gradients(found, expected, mine, others, tolerance)


def test_what_follows_from_moments() -> None:
    ours, theirs = made(D, "Gamma", from_numpy), made(T, "Gamma", to_torch)
    assert_close(ours.stddev, theirs.stddev)
    assert_close(ours.perplexity(), theirs.perplexity())


@pytest.mark.parametrize("what", ["cdf", "icdf"])
@pytest.mark.parametrize("name", CASES)
def test_cumulative_probabilities(name: str, what: str) -> None:
    ours, theirs, mine, others = leaves(name)
    value = CASES[name][1] if what == "cdf" else unit(4, *theirs.batch_shape)
    try:
        expected = getattr(theirs, what)(to_torch(value))
    except (NotImplementedError, TypeError):
        with pytest.raises(NotImplementedError):
            getattr(ours, what)(from_numpy(value))
        return
    found = getattr(ours, what)(from_numpy(value))
    if name in ("Gamma", "Chi2", "InverseGamma"):
        # The gradient of the incomplete gamma function for its first argument exists in neither.
        assert_close(found, expected)
    else:
        assert_same_gradients(found, expected, mine, others, 1e-9)


@pytest.mark.parametrize("name", CASES)
def test_what_a_distribution_says_of_itself(name: str) -> None:
    ours, theirs = made(D, name, from_numpy), made(T, name, to_torch)
    for what in ("has_rsample", "has_enumerate_support"):
        assert getattr(ours, what) == getattr(theirs, what)
    assert set(ours.arg_constraints) == set(theirs.arg_constraints)
    assert ours.support.event_dim == theirs.support.event_dim
    assert ours.support.is_discrete == theirs.support.is_discrete
    for key, constraint in theirs.arg_constraints.items():
        if not T.constraints.is_dependent(constraint):
            assert ours.arg_constraints[key].event_dim == constraint.event_dim
    if theirs.has_enumerate_support:
        for expand in (True, False):
            assert_close(ours.enumerate_support(expand), theirs.enumerate_support(expand))
    else:
        with pytest.raises(NotImplementedError):
            ours.enumerate_support()


@pytest.mark.parametrize("name", CASES)
def test_expansion(name: str) -> None:
    ours, theirs = made(D, name, from_numpy), made(T, name, to_torch)
    shape = (4, 1, *theirs.batch_shape)
    value = CASES[name][1]
    value = value.reshape(4, 1, *value.shape[1:])
    assert ours.log_prob(from_numpy(CASES[name][1])) is not None
    wide, expected = ours.expand(shape), theirs.expand(torch.Size(shape))
    assert type(wide) is type(ours)
    assert tuple(wide.batch_shape) == shape and wide.event_shape == ours.event_shape
    assert_close(wide.log_prob(from_numpy(value)), expected.log_prob(to_torch(value)), 1e-6)
    assert tuple(wide.sample((2,)).shape) == (2, *shape, *ours.event_shape)
    assert tuple(ours.batch_shape) == tuple(theirs.batch_shape)


@pytest.mark.parametrize("name", CASES)
def test_values_outside_are_refused(name: str) -> None:
    ours, theirs = made(D, name, from_numpy), made(T, name, to_torch)
    wrong = CASES[name][1] * np.nan if name != "Categorical" else CASES[name][1] + 99
    with pytest.raises(ValueError):
        theirs.log_prob(to_torch(wrong))
    with pytest.raises(ValueError, match="to be within the support"):
        ours.log_prob(from_numpy(wrong))
    with pytest.raises(ValueError, match="must be a Tensor"):
        ours.log_prob(0.5)
    with pytest.raises(ValueError, match="broadcastable|right-most"):
        ours.log_prob(from_numpy(np.ones((7, 7, 7))))


@pytest.mark.parametrize("name", CASES)
def test_parameters_outside_are_refused(name: str) -> None:
    arguments = CASES[name][0]
    for key, value in arguments.items():
        if not isinstance(value, np.ndarray):
            continue
        changed = {**arguments, key: value * np.nan}
        try:
            made(T, name, to_torch, changed)
        except (ValueError, RuntimeError):
            with pytest.raises(ValueError):
                made(D, name, from_numpy, changed)
        else:
            made(D, name, from_numpy, changed)


@pytest.mark.parametrize("name", ["Bernoulli", "Geometric", "ContinuousBernoulli"])
def test_the_other_form_of_a_probability(name: str) -> None:
    value = unit(4, 3) if name == "ContinuousBernoulli" else np.ones((4, 3))
    for given in ({"probs": unit(3)}, {"logits": normal(3)}):
        ours, theirs = made(D, name, from_numpy, given), made(T, name, to_torch, given)
        for what in ("probs", "logits", "mean", "variance"):
            assert_close(getattr(ours, what), getattr(theirs, what))
        assert_close(ours.log_prob(from_numpy(value)), theirs.log_prob(to_torch(value)))
        assert ("probs" in vars(made(D, name, from_numpy, given))) == (
            "probs" in given or name == "ContinuousBernoulli"
        )


@pytest.mark.parametrize("name", ["Categorical", "OneHotCategorical", "Multinomial"])
def test_the_other_form_of_probabilities(name: str) -> None:
    for given in ({"probs": positive(2, 3)}, {"logits": normal(2, 3)}):
        ours, theirs = made(D, name, from_numpy, given), made(T, name, to_torch, given)
        assert_close(ours.probs, theirs.probs)
        assert_close(ours.logits, theirs.logits)
        assert_close(ours.entropy(), theirs.entropy())


@pytest.mark.parametrize("name", ["MultivariateNormal", "Wishart"])
@pytest.mark.parametrize("form", ["covariance_matrix", "precision_matrix", "scale_tril"])
def test_forms_of_a_covariance(name: str, form: str) -> None:
    matrix = positive_definite(2, 3, 3)
    matrix = np.linalg.cholesky(matrix) if form == "scale_tril" else matrix
    given = {"loc": normal(3)} if name == "MultivariateNormal" else {"df": np.array(4.5)}
    arguments = {**given, form: matrix}
    ours, theirs = made(D, name, from_numpy, arguments), made(T, name, to_torch, arguments)
    matrices = ("covariance_matrix", "precision_matrix", "scale_tril", "_unbroadcasted_scale_tril")
    for what in (*matrices, "mean", "variance"):
        assert_close(getattr(ours, what), getattr(theirs, what))
    assert_close(ours.entropy(), theirs.entropy())
    wrong = {**arguments, form: -matrix}
    with pytest.raises(ValueError, match=form):
        made(D, name, from_numpy, wrong)
    with pytest.raises(ValueError, match="Exactly one"):
        made(D, name, from_numpy, {**arguments, "scale_tril": matrix, "precision_matrix": matrix})


def test_a_factor_that_a_subclass_computes() -> None:
    class Lazy(D.MultivariateNormal):
        def __init__(self, loc: metaop.Tensor, factor: metaop.Tensor) -> None:
            self.loc, self.factor = loc, factor
            D.Distribution.__init__(self, loc.shape[:-1], loc.shape[-1:])

        @property
        def _unbroadcasted_scale_tril(self) -> metaop.Tensor:
            return self.factor

    factor = from_numpy(np.linalg.cholesky(positive_definite(3, 3)))
    lazy = Lazy(metaop.zeros(2, 3, dtype=factor.dtype), factor)
    assert_close(lazy.scale_tril[1], to_torch(factor.numpy()))
    assert_close(lazy.variance[1], to_torch(factor.square().sum(-1).numpy()))


def test_matrices_of_a_low_rank() -> None:
    ours, theirs = (
        made(D, "LowRankMultivariateNormal", from_numpy),
        made(T, "LowRankMultivariateNormal", to_torch),
    )
    for what in ("covariance_matrix", "precision_matrix", "scale_tril"):
        assert_close(getattr(ours, what), getattr(theirs, what))
    for wrong in ({"loc": normal(4)}, {"cov_diag": positive(4)}, {"cov_factor": normal(3)}):
        with pytest.raises(ValueError):
            made(
                D,
                "LowRankMultivariateNormal",
                from_numpy,
                {**CASES["LowRankMultivariateNormal"][0], **wrong},
            )


def test_independent_sums_over_the_event() -> None:
    value = random.normal(size=(4, 2, 3))
    ours = D.Independent(made(D, "Normal", from_numpy), 1)
    theirs = T.Independent(made(T, "Normal", to_torch), 1)
    assert tuple(ours.event_shape) == tuple(theirs.event_shape)
    assert_close(ours.log_prob(from_numpy(value)), theirs.log_prob(to_torch(value)))
    assert_close(ours.entropy(), theirs.entropy())
    assert ours.support.event_dim == theirs.support.event_dim == 1
    wide = ours.expand((5, 2))
    assert tuple(wide.batch_shape) == (5, 2) and tuple(wide.event_shape) == (3,)
    for count in (0, 1):
        one = D.Independent(made(D, "Bernoulli", from_numpy), count)
        assert one.has_enumerate_support == (count == 0)


@pytest.mark.parametrize("events", [(), (2,)])
@pytest.mark.parametrize("weights", [(4,), (3, 4)])
def test_mixtures(events: tuple[int, ...], weights: tuple[int, ...]) -> None:
    logits, loc, scale = normal(*weights), normal(3, 4, *events), positive(3, 4, *events)
    value = normal(5, 3, *events)

    def mixture(package, convert):
        parts = package.Normal(convert(loc), convert(scale))
        parts = package.Independent(parts, 1) if events else parts
        return package.MixtureSameFamily(package.Categorical(logits=convert(logits)), parts)

    ours, theirs = mixture(D, from_numpy), mixture(T, to_torch)
    assert_close(ours.log_prob(from_numpy(value)), theirs.log_prob(to_torch(value)))
    assert_close(ours.mean, theirs.mean)
    assert_close(ours.variance, theirs.variance)
    assert ours.support.event_dim == len(events)
    if not events:
        assert_close(ours.cdf(from_numpy(value)), theirs.cdf(to_torch(value)))
    wide, expected = ours.expand((2, 3)), theirs.expand((2, 3))
    value = value[:2]
    assert_close(wide.log_prob(from_numpy(value)), expected.log_prob(to_torch(value)))
    metaop.manual_seed(1)
    sample = ours.sample((4000,))
    assert tuple(sample.shape) == (4000, 3, *events)
    error = (sample.mean(0) - ours.mean).abs()
    assert bool((error < 6 * ours.stddev / 4000**0.5).all())
    with pytest.raises(ValueError):
        ours.log_prob(from_numpy(value * np.nan))


def test_mixtures_that_do_not_fit() -> None:
    parts = D.Normal(metaop.zeros(3, 4), 1.0)
    for weights in (D.Categorical(metaop.ones(5)), D.Categorical(metaop.ones(2, 4)), parts):
        with pytest.raises(ValueError):
            D.MixtureSameFamily(weights, parts)
    with pytest.raises(ValueError):
        D.MixtureSameFamily(D.Categorical(metaop.ones(4)), None)


def test_counts_of_several_trials() -> None:
    counts_of = D.Binomial(metaop.tensor([2.0, 3.0]), metaop.tensor(0.5))
    for call in (counts_of.enumerate_support, counts_of.entropy):
        with pytest.raises(NotImplementedError, match="Inhomogeneous"):
            call()


@pytest.mark.parametrize("concentration", [-1.0, -0.5, 0.0, 0.5])
def test_tails_of_a_generalised_pareto(concentration: float) -> None:
    arguments = {"loc": np.array(0.5), "scale": np.array(2.0)}
    arguments["concentration"] = np.array(concentration)
    value = 0.5 + unit(5)
    ours = made(D, "GeneralizedPareto", from_numpy, arguments)
    theirs = made(T, "GeneralizedPareto", to_torch, arguments)
    for what in ("log_prob", "cdf", "log_cdf", "log_survival_function"):
        assert_close(getattr(ours, what)(from_numpy(value)), getattr(theirs, what)(to_torch(value)))


def test_modes_at_corners() -> None:
    concentration = np.array([[0.5, 0.6, 0.7], [0.5, 2.0, 3.0], [1.5, 2.0, 3.0]])
    assert_close(
        D.Dirichlet(from_numpy(concentration)).mode, T.Dirichlet(to_torch(concentration)).mode
    )
    one, other = concentration[:, 0], concentration[:, 1]
    assert_close(
        D.Beta(from_numpy(one), from_numpy(other)).mode,
        T.Beta(to_torch(one), to_torch(other)).mode,
    )
    assert_close(
        D.Bernoulli(from_numpy(np.array([0.4, 0.5, 0.6]))).mode,
        T.Bernoulli(to_torch(np.array([0.4, 0.5, 0.6]))).mode,
    )


def test_counts_that_a_category_cannot_have() -> None:
    probs, value = np.array([0.0, 0.4, 0.6]), np.array([0.0, 2.0, 3.0])
    ours = D.Multinomial(5, logits=from_numpy(np.log(np.maximum(probs, 1e-300))))
    assert np.isfinite(ours.log_prob(from_numpy(value)).item())
    ours = D.Multinomial(5, logits=metaop.tensor([-np.inf, 0.0, 0.0]))
    theirs = T.Multinomial(5, logits=torch.tensor([-np.inf, 0.0, 0.0]))
    value = np.float32(value)
    assert_close(ours.log_prob(from_numpy(value)), theirs.log_prob(to_torch(value)), 1e-6)


def test_the_gradient_of_a_count_of_zero() -> None:
    found = []
    for library, family in ((metaop, D), (torch, T)):
        value = library.tensor([0.0, 2.0, 3.0], requires_grad=True)
        logits = library.tensor([0.3, -0.2, 0.5], requires_grad=True)
        family.Multinomial(5, logits=logits).log_prob(value).backward()
        found.append((value.grad, logits.grad))
    for ours, theirs in zip(*found):
        assert_close(ours, theirs, 1e-6)


def test_a_family_of_the_users_own() -> None:
    class Rayleigh(D.ExponentialFamily):
        arg_constraints = {"scale": D.constraints.positive}
        support = D.constraints.positive
        _mean_carrier_measure = 0

        def __init__(self, scale, validate_args=None):
            self.scale = scale
            super().__init__(scale.shape, validate_args=validate_args)

        @property
        def _natural_params(self):
            return (-1 / (2 * self.scale.square()),)

        def _log_normalizer(self, one):
            return -(-2 * one).log()

    small, large = Rayleigh(from_numpy(positive(3))), Rayleigh(from_numpy(2 + positive(3)))
    ratio = (small.scale / large.scale).square()
    np.testing.assert_allclose(
        D.kl_divergence(small, large).detach().numpy(), (ratio - 1 - ratio.log()).numpy(), 1e-10
    )
    assert tuple(small.entropy().shape) == (3,)
    wide = small.expand((2, 3))
    assert tuple(wide.scale.shape) == (2, 3) and wide.batch_shape == metaop.Size([2, 3])
    with pytest.raises(NotImplementedError):
        small.log_prob(small.scale)


def test_the_default_of_checks() -> None:
    try:
        D.Distribution.set_default_validate_args(False)
        assert D.Normal(0.0, -1.0).scale.item() == -1
        with pytest.raises(ValueError):
            D.Normal(0.0, -1.0, validate_args=True)
    finally:
        D.Distribution.set_default_validate_args(True)
    with pytest.raises(ValueError):
        D.Distribution.set_default_validate_args(2)


@pytest.mark.parametrize(
    "make",
    [
        lambda: D.Normal(0.0, -1.0),
        lambda: D.Bernoulli(metaop.tensor(1.5)),
        lambda: D.Categorical(),
        lambda: D.Categorical(metaop.tensor(1.0)),
        lambda: D.Uniform(1.0, 0.0),
        lambda: D.LKJCholesky(1),
        lambda: D.Wishart(1.0, metaop.eye(3)),
        lambda: D.Geometric(metaop.tensor(0.0)),
        lambda: D.NegativeBinomial(2.0, probs=metaop.tensor(1.0)),
    ],
)
def test_wrong_parameters(make) -> None:
    with pytest.raises(ValueError):
        make()


@pytest.mark.parametrize("name", ["Normal", "Pareto", "RelaxedBernoulli", "Wishart", "Binomial"])
def test_copies(name: str) -> None:
    ours = made(D, name, from_numpy)
    value = from_numpy(CASES[name][1])
    for other in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert_close(other.log_prob(value), ours.log_prob(value))


@pytest.mark.parametrize(
    ("count", "prob"), [(6, 0.5), (33, 0.2), (1000, 0.01), (10**6, 0.3), (2**40, 0.5)]
)
def test_binomial_numbers_of_any_count(count: int, prob: float) -> None:
    """The mean and the variance are right to five standard errors; memory does not grow."""
    metaop.manual_seed(3)
    number = 4000
    drawn = metaop.binomial(
        metaop.full((number,), count, dtype=metaop.float64),
        metaop.tensor(prob, dtype=metaop.float64),
    ).numpy()
    deviation = np.sqrt(count * prob * (1 - prob))
    assert ((drawn == np.floor(drawn)) & (drawn >= 0) & (drawn <= count)).all()
    assert abs(drawn.mean() - count * prob) < 5 * deviation / np.sqrt(number)
    assert abs(drawn.var() / deviation**2 - 1) < 5 * np.sqrt(2 / number) + 5 / np.sqrt(count)


def test_binomial_broadcasts_and_takes_certain_outcomes() -> None:
    counts, chances = metaop.tensor([[0.0], [3.0], [1e5]]), metaop.tensor([0.0, 1.0])
    assert metaop.binomial(counts, chances).tolist() == [[0, 0], [0, 3], [0, 1e5]]
    assert metaop.binomial(metaop.zeros(0), metaop.zeros(0)).shape == (0,)


def _parts(library) -> list:
    """What subclasses of others read and replace of the distributions that make one up."""

    class Own(library.distributions.Beta):
        def expand(self, batch_shape, _instance=None):
            new = self._get_checked_instance(Own, _instance)
            new._dirichlet = self._dirichlet.expand(batch_shape)
            super(library.distributions.Beta, new).__init__(batch_shape, validate_args=False)
            return new

    given, x = library.tensor([2.0, 3.0]), library.tensor([0.25, 0.75])
    beta = Own(given, given + 1)
    beta._dirichlet.concentration = library.stack([given * 2, given], -1)
    one_hot = library.distributions.OneHotCategorical(given)
    ratio = library.distributions.FisherSnedecor(given, given + 4)
    found = [beta.concentration1, beta.concentration0, beta.mean, beta.mode, beta.log_prob(x)]
    found += [beta.expand((3, 2)).log_prob(x), library.distributions.StudentT(given)._chi2.mean]
    count = library.distributions.NegativeBinomial(given, logits=x)._gamma.mean
    return [*found, one_hot._param, ratio._gamma1.mean, ratio._gamma2.variance, count]


def test_parts_that_subclasses_replace() -> None:
    for own, theirs in zip(_parts(metaop), _parts(torch), strict=True):
        np.testing.assert_allclose(own.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-6)


def test_sample_n_warns_and_samples() -> None:
    for library in (metaop, torch):
        with pytest.warns(FutureWarning, match=r"Use `sample\(\(n,\)\)` instead"):
            assert library.distributions.Gamma(library.ones(3), 1.0).sample_n(5).shape == (5, 3)
