"""Programs as the documents of pyro have them; no random number is drawn by the libraries."""

import pyro
import pyro.distributions as dist
import torch
from numbers_alike import normal
from pyro import poutine
from pyro.distributions import constraints
from pyro.infer import SVI, Predictive, Trace_ELBO, TraceEnum_ELBO, config_enumerate
from pyro.infer.autoguide import AutoDelta, AutoLaplaceApproximation
from pyro.nn import PyroModule, PyroSample
from pyro.optim import Adam, ClippedAdam


def _steps(model, guide, loss, *data, count=6, kind=Adam):
    svi = SVI(model, guide, kind({"lr": 0.05}), loss=loss)
    losses = [svi.step(*data) for _ in range(count)]
    return [losses, [v.detach() for _, v in sorted(pyro.get_param_store().items())]]


def finds_the_likeliest_values():
    """A regression whose guide is one point, with plates and parameters under constraints."""
    pyro.clear_param_store()
    x, y = normal(20, 3), normal(20, seed=2)

    def model(x, y):
        scale = pyro.param("scale", torch.tensor(0.7), constraint=constraints.positive)
        weight = pyro.sample("weight", dist.Normal(torch.zeros(3), 1.0).to_event(1))
        shape = pyro.sample("shape", dist.Gamma(2.0, 2.0))
        with pyro.plate("data", 20):
            pyro.sample("y", dist.Normal(x @ weight, scale * shape), obs=y)

    point = {"weight": torch.zeros(3), "shape": torch.tensor(1.0)}
    guide = AutoDelta(model, init_loc_fn=lambda site: point[site["name"]])
    return _steps(model, guide, Trace_ELBO(), x, y)


def enumerates_the_kinds_of_a_mixture():
    """A mixture whose assignments are summed over, with an optimizer of pyro's own."""
    pyro.clear_param_store()

    @config_enumerate
    def model(data):
        weights = pyro.param("weights", torch.ones(2) / 2, constraint=constraints.simplex)
        places = pyro.param("places", torch.tensor([-1.0, 0.5]))
        with pyro.plate("data", len(data)):
            kind = pyro.sample("kind", dist.Categorical(weights))
            pyro.sample("seen", dist.Normal(places[kind], 0.8), obs=data)

    loss = TraceEnum_ELBO(max_plate_nesting=1)
    return _steps(model, lambda data: None, loss, normal(24), kind=ClippedAdam)


def traces_and_conditions():
    """Effect handlers: what a model would score, given some of its values."""
    pyro.clear_param_store()

    def model():
        rate = pyro.sample("rate", dist.Beta(2.0, 3.0))
        with poutine.scale(scale=0.5), pyro.plate("all", 4):
            return pyro.sample("bits", dist.Bernoulli(rate))

    known = {"rate": torch.tensor(0.3), "bits": torch.tensor([1.0, 0.0, 0.0, 1.0])}
    trace = poutine.trace(poutine.condition(model, data=known)).get_trace()
    trace.compute_log_prob()
    drawn = Predictive(poutine.condition(model, data=known), num_samples=2)()
    return [trace.log_prob_sum(), trace.nodes["bits"]["log_prob"], drawn["bits"]]


def samples_weights_of_a_module():
    """A module whose weights are random, and the guide of Laplace at its likeliest ones."""
    pyro.clear_param_store()

    class Regression(PyroModule):
        def __init__(self):
            super().__init__()
            self.linear = PyroModule[torch.nn.Linear](2, 1)
            self.linear.weight = PyroSample(dist.Normal(0.0, 1.0).expand([1, 2]).to_event(2))
            self.linear.bias = PyroSample(dist.Normal(0.0, 1.0).expand([1]).to_event(1))

        def forward(self, x, y=None):
            mean = self.linear(x).squeeze(-1)
            with pyro.plate("data", len(x)):
                pyro.sample("y", dist.Normal(mean, 0.5), obs=y)
            return mean

    model = Regression()
    guide = AutoLaplaceApproximation(
        model, init_loc_fn=lambda site: torch.zeros(site["fn"].shape())
    )
    x, y = normal(12, 2), normal(12, seed=3)
    trained = _steps(model, guide, Trace_ELBO(), x, y)
    laplace = guide.laplace_approximation(x, y)
    return [trained, laplace.loc, laplace.scale_tril]


def scores_by_distributions_of_its_own():
    """Densities of distributions that PyTorch lacks, and of flows."""
    x = normal(4, 3).abs() / 5
    made = []
    for one, value in (
        (dist.Delta(x, log_density=x), x),
        (dist.ZeroInflatedPoisson(x, gate=torch.tensor(0.3)), (5 * x).round()),
        (dist.BetaBinomial(x + 1, x + 2, total_count=4), (4 * x).round()),
        (dist.GammaPoisson(x + 1, x + 2), (4 * x).round()),
        (dist.SoftLaplace(x, 1.0), x + 1),
        (dist.AsymmetricLaplace(x, 1.0, 2.0), x - 1),
        (dist.MaskedMixture(x > 0.1, dist.Normal(x, 1.0), dist.Normal(0.0, x + 1)), x),
        (dist.TruncatedPolyaGamma(prototype=x), x),
        (dist.VonMises3D(normal(4, 3)), torch.nn.functional.normalize(x, dim=-1)),
        (dist.LKJ(3, 1.5), torch.eye(3).expand(2, 3, 3)),
    ):
        made.append(one.log_prob(value))
    return made
