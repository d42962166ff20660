"""Programs as the documents of gpytorch and linear_operator have them."""

import gpytorch
import linear_operator
import torch
from gpytorch import distributions, kernels, likelihoods, means, mlls, models, variational
from numbers_alike import normal

_PLACES = torch.linspace(0, 1, 20, dtype=torch.float64)
_VALUES = torch.sin(_PLACES * 6.0) + 0.1 * normal(20).double()


class _Exact(models.ExactGP):
    def __init__(self, x, y, likelihood, kernel):
        super().__init__(x, y, likelihood)
        self.mean_module = means.ConstantMean()
        self.covar_module = kernels.ScaleKernel(kernel)

    def forward(self, x):
        return distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def _trained(model, likelihood, mll, x, y, count=5):
    model.double().train(), likelihood.double().train()
    optimizer = torch.optim.Adam([*model.parameters()], lr=0.1)
    losses = []
    for _ in range(count):
        optimizer.zero_grad()
        loss = -mll(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval(), likelihood.eval()
    return [losses, [p.grad for p in model.parameters()], list(model.parameters())]


def regression_by_a_gaussian_process():
    """The first program of the documents: training, predictions, their intervals."""
    likelihood = likelihoods.GaussianLikelihood()
    model = _Exact(_PLACES, _VALUES, likelihood, kernels.RBFKernel())
    mll = mlls.ExactMarginalLogLikelihood(likelihood, model)
    trained = _trained(model, likelihood, mll, _PLACES, _VALUES)
    with torch.no_grad(), gpytorch.settings.fast_pred_var():
        found = likelihood(model(torch.linspace(0, 1, 7, dtype=torch.float64)))
        lower, upper = found.confidence_region()
    torch.save(model.state_dict(), "model.pth")
    fresh = _Exact(_PLACES, _VALUES, likelihoods.GaussianLikelihood(), kernels.RBFKernel()).double()
    fresh.load_state_dict(torch.load("model.pth"))
    fresh.eval()
    with torch.no_grad():
        again = fresh(torch.linspace(0, 1, 7, dtype=torch.float64))
    return [trained, found.mean, found.variance, lower, upper, again.mean, again.covariance_matrix]


def compares_kernels():
    """Covariances of many kernels, with gradients of places and of lengths."""
    made = []
    for kernel in (
        kernels.RBFKernel(ard_num_dims=3),
        kernels.MaternKernel(nu=0.5),
        kernels.MaternKernel(nu=1.5),
        kernels.MaternKernel(nu=2.5),
        kernels.PeriodicKernel(),
        kernels.RQKernel(),
        kernels.LinearKernel(),
        kernels.PolynomialKernel(power=2),
        kernels.CosineKernel(),
        kernels.PiecewisePolynomialKernel(q=2),
        kernels.RBFKernel() + kernels.ScaleKernel(kernels.LinearKernel()),
        kernels.RBFKernel(active_dims=[0]) * kernels.MaternKernel(active_dims=[1, 2]),
        kernels.SpectralMixtureKernel(num_mixtures=2, ard_num_dims=3),
        kernels.RBFKernelGrad(),
    ):
        kernel.double()
        x = normal(5, 3).double().requires_grad_()
        covariance = kernel(x, normal(4, 3, seed=2).double()).to_dense()
        covariance.sin().sum().backward()
        made.append([covariance, x.grad, [p.grad for p in kernel.parameters()]])
    return made


def predicts_several_outputs():
    """A batch of processes, and one whose outputs depend on each other."""
    y = torch.stack([_VALUES, torch.cos(_PLACES * 6.0)], -1)

    class Multitask(models.ExactGP):
        def __init__(self, likelihood):
            super().__init__(_PLACES, y, likelihood)
            self.mean_module = means.MultitaskMean(means.LinearMean(1), num_tasks=2)
            self.covar_module = kernels.MultitaskKernel(kernels.RBFKernel(), num_tasks=2, rank=1)

        def forward(self, x):
            mean, covariance = self.mean_module(x), self.covar_module(x)
            return distributions.MultitaskMultivariateNormal(mean, covariance)

    likelihood = likelihoods.MultitaskGaussianLikelihood(num_tasks=2)
    model = Multitask(likelihood)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(normal(*p.shape) if p.numel() > 1 else torch.full_like(p, 0.3))
    mll = mlls.ExactMarginalLogLikelihood(likelihood, model)
    trained = _trained(model, likelihood, mll, _PLACES, y)
    with torch.no_grad():
        found = likelihood(model(_PLACES[:6] + 0.01))
    return [trained, found.mean, found.variance, found.covariance_matrix]


def trains_by_a_bound():
    """A variational process with inducing points, natural gradients, and one that classifies."""

    class Approximate(models.ApproximateGP):
        def __init__(self, distribution):
            strategy = variational.VariationalStrategy(
                self, torch.linspace(0, 1, 6)[:, None], distribution, learn_inducing_locations=True
            )
            super().__init__(strategy)
            self.mean_module = means.ConstantMean()
            self.covar_module = kernels.ScaleKernel(kernels.RBFKernel())

        def forward(self, x):
            return distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    made = []
    for kind, likelihood, y in (
        (variational.CholeskyVariationalDistribution, likelihoods.GaussianLikelihood(), _VALUES),
        (
            variational.MeanFieldVariationalDistribution,
            likelihoods.BernoulliLikelihood(),
            (_VALUES > 0).double(),
        ),
    ):
        distribution = kind(6, mean_init_std=0.0)
        model = Approximate(distribution)
        mll = mlls.VariationalELBO(likelihood, model, num_data=20)
        made.append(_trained(model, likelihood, mll, _PLACES[:, None], y))
        with torch.no_grad():
            found = likelihood(model(_PLACES[:5, None]))
        made.append([found.mean, found.variance])
    return made


def learns_by_natural_gradients():
    """Natural gradients of the distribution, Adam for the rest."""

    class Approximate(models.ApproximateGP):
        def __init__(self):
            places = torch.linspace(0, 1, 6, dtype=torch.float64)[:, None]
            distribution = variational.NaturalVariationalDistribution(6, mean_init_std=0.0)
            super().__init__(variational.VariationalStrategy(self, places, distribution))
            self.mean_module = means.ZeroMean()
            self.covar_module = kernels.RBFKernel()

        def forward(self, x):
            return distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    model, likelihood = Approximate().double(), likelihoods.GaussianLikelihood().double()
    step = gpytorch.optim.NGD(model.variational_parameters(), num_data=20, lr=0.1)
    other = torch.optim.Adam([*model.hyperparameters(), *likelihood.parameters()], lr=0.05)
    mll, losses = mlls.VariationalELBO(likelihood, model, num_data=20), []
    for _ in range(4):
        step.zero_grad()
        other.zero_grad()
        loss = -mll(model(_PLACES[:, None]), _VALUES)
        loss.backward()
        step.step()
        other.step()
        losses.append(loss.item())
    return [losses, list(model.parameters())]


def solves_by_conjugate_gradients():
    """Large systems are solved by iterations, which are preconditioned by a pivoted factor."""
    x = torch.linspace(0, 1, 60, dtype=torch.float64)
    likelihood = likelihoods.GaussianLikelihood()
    model = _Exact(x, torch.sin(6 * x), likelihood, kernels.RBFKernel()).double()
    model.eval()
    with (
        torch.no_grad(),
        gpytorch.settings.max_cholesky_size(1),
        gpytorch.settings.cg_tolerance(1e-10),
        gpytorch.settings.eval_cg_tolerance(1e-10),
        gpytorch.settings.max_preconditioner_size(10),
        gpytorch.settings.min_preconditioning_size(10),
    ):
        found = model(torch.linspace(0, 1, 5, dtype=torch.float64))
        covariance = likelihood(model.forward(x)).lazy_covariance_matrix
        factor = linear_operator.pivoted_cholesky(covariance, rank=5)
        return [found.mean, found.variance, covariance.solve(torch.sin(6 * x)[:, None]), factor]
