"""Variants of Adam: NAdam, RAdam, Adamax, LAMB, SparseAdam."""

from __future__ import annotations

import math
from typing import Any

from metaop.elementwise.meta_op import apply, where
from metaop.errors import GradientError
from metaop.optim.adam import Moments, NodeNumbers, Nodes, check_settings, decayed, means
from metaop.optim.optimizer import Group
from metaop.optim.update import Numbers, UpdateRule, check
from metaop.reduce.meta_op import reduce_axes
from metaop.unified_graph.node import Node


class NAdam(Moments):
    """Adam with Nesterov momentum (Dozat 2016).

    Raises ArgumentError for settings outside their range, such as a negative `lr`.

    >>> x = metaop.tensor([1.0], requires_grad=True)
    >>> optimizer = metaop.optim.NAdam([x], lr=0.1)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> round(x.item(), 2)
    0.89
    """

    counters = ("step", "mu_product")

    def __init__(
        self,
        params: Any,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_settings(lr, betas, eps, weight_decay)
        check("momentum_decay value", momentum_decay, momentum_decay >= 0.0)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def first_value(self, name: str, group: Group) -> float:
        return 1.0 if name == "mu_product" else 0.0

    def advance(
        self, group: Group, counts: tuple[float, ...], fresh: bool
    ) -> tuple[Numbers, tuple[float, ...]]:
        step, product = counts[0] + 1, counts[1]
        beta1, beta2 = map(float, group["betas"])
        lr, decay = float(group["lr"]), group["momentum_decay"]
        now = beta1 * (1 - 0.5 * 0.96 ** (step * decay))
        following = beta1 * (1 - 0.5 * 0.96 ** ((step + 1) * decay))
        product *= now
        numbers = self.shared_numbers(group)
        numbers["square_scale"] = 1 / (1 - beta2**step)
        numbers["gradient_size"] = lr * (1 - now) / (1 - product)
        numbers["mean_size"] = lr * following / (1 - product * following)
        return numbers, (step, product)

    @staticmethod
    def rule(
        x: Node, gradient: Node, state: Nodes, numbers: NodeNumbers, flags: tuple[str, ...]
    ) -> Nodes:
        """One parameter's step."""
        x, gradient = decayed(x, gradient, numbers, flags)
        first, second = means(gradient, state, numbers)
        denominator = apply("sqrt", second * numbers["square_scale"]) + numbers["eps"]
        direction = gradient * numbers["gradient_size"] + first * numbers["mean_size"]
        return x - direction / denominator, first, second


class RAdam(Moments):
    """Adam with a rectified step while its variance is unreliable (Liu et al. 2020).

    Raises ArgumentError for settings outside their range, such as a negative `lr`.

    >>> x = metaop.tensor([1.0], requires_grad=True)
    >>> optimizer = metaop.optim.RAdam([x], lr=0.1)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> round(x.item(), 2)
    0.8
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_settings(lr, betas, eps, weight_decay)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "decoupled_weight_decay": decoupled_weight_decay,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def advance(
        self, group: Group, counts: tuple[float, ...], fresh: bool
    ) -> tuple[Numbers, tuple[float, ...]]:
        step = counts[0] + 1
        beta1, beta2 = map(float, group["betas"])
        correction = 1 - beta2**step
        longest = 2 / (1 - beta2) - 1
        length = longest - 2 * step * beta2**step / correction
        numbers = self.shared_numbers(group)
        step_size = float(group["lr"]) / (1 - beta1**step)
        # Below length 5 the step is not adaptive; two factors select it without recompiling.
        adaptive = 0.0
        if length > 5:
            rectified = (length - 4) * (length - 2) * longest
            rectified /= (longest - 4) * (longest - 2) * length
            adaptive = step_size * math.sqrt(correction * rectified)
        numbers["adaptive_size"] = adaptive
        numbers["plain_size"] = 0.0 if length > 5 else step_size
        return numbers, (step,)

    @staticmethod
    def rule(
        x: Node, gradient: Node, state: Nodes, numbers: NodeNumbers, flags: tuple[str, ...]
    ) -> Nodes:
        """One parameter's step."""
        x, gradient = decayed(x, gradient, numbers, flags)
        first, second = means(gradient, state, numbers)
        denominator = apply("sqrt", second) + numbers["eps"]
        size = numbers["adaptive_size"] / denominator + numbers["plain_size"]
        return x - first * size, first, second


class Adamax(UpdateRule):
    """Adam with the decayed maximum of gradients in place of the mean square (Kingma & Ba 2015).

    Raises ArgumentError for settings outside their range, such as a negative `lr`.

    >>> x = metaop.tensor([1.0], requires_grad=True)
    >>> optimizer = metaop.optim.Adamax([x], lr=0.1)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> round(x.item(), 2)
    0.9
    """

    def __init__(
        self,
        params: Any,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_settings(lr, betas, eps, weight_decay)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def state_names(self, group: Group) -> tuple[str, ...]:
        return ("exp_avg", "exp_inf")

    def advance(
        self, group: Group, counts: tuple[float, ...], fresh: bool
    ) -> tuple[Numbers, tuple[float, ...]]:
        step = counts[0] + 1
        beta1, beta2 = map(float, group["betas"])
        numbers = {
            "gradient_share": 1 - beta1,
            "beta2": beta2,
            "eps": float(group["eps"]),
            "step_size": float(group["lr"]) / (1 - beta1**step),
            "weight_decay": float(group["weight_decay"]),
        }
        return numbers, (step,)

    @staticmethod
    def rule(
        x: Node, gradient: Node, state: Nodes, numbers: NodeNumbers, flags: tuple[str, ...]
    ) -> Nodes:
        """One parameter's step."""
        x, gradient = decayed(x, gradient, numbers, flags)
        first = state[0] + (gradient - state[0]) * numbers["gradient_share"]
        size = apply("abs", gradient) + numbers["eps"]
        largest = apply("maximum", state[1] * numbers["beta2"], size)
        return x - first / largest * numbers["step_size"], first, largest


class LAMB(Moments):
    """AdamW with steps scaled by the parameter's norm over the update's (You et al. 2020).

    States have the shapes of the parameters. Raises ArgumentError for a negative rate.

    >>> weight = nn.Parameter(metaop.ones(2, 2))
    >>> optimizer = metaop.optim.LAMB([weight], lr=0.1)
    >>> weight.square().sum().backward()
    >>> optimizer.step()
    >>> bool((weight < 1).all())
    True
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        check_settings(lr, betas, eps, weight_decay)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def advance(
        self, group: Group, counts: tuple[float, ...], fresh: bool
    ) -> tuple[Numbers, tuple[float, ...]]:
        step = counts[0] + 1
        beta1, beta2 = map(float, group["betas"])
        numbers = self.shared_numbers(group)
        numbers["lr"] = float(group["lr"])
        numbers["mean_scale"] = 1 / (1 - beta1**step)
        numbers["root_scale"] = 1 / math.sqrt(1 - beta2**step)
        return numbers, (step,)

    @staticmethod
    def rule(
        x: Node, gradient: Node, state: Nodes, numbers: NodeNumbers, flags: tuple[str, ...]
    ) -> Nodes:
        """One parameter's step."""
        first, second = means(gradient, state, numbers)
        denominator = apply("sqrt", second) * numbers["root_scale"] + numbers["eps"]
        direction = first * numbers["mean_scale"] / denominator
        if "weight_decay" in flags:
            direction = direction + x * numbers["weight_decay"]
        size, length = _norm(x), _norm(direction)
        defined = (size > 0) & (length > 0)
        trust = where(defined, size / where(defined, length, 1.0), 1.0)
        return x - direction * trust * numbers["lr"], first, second


class SparseAdam(Moments):
    """Adam for embeddings with sparse gradients: updates only the rows in the gradient.

    The cost of a step is proportional to its rows, not to the table. States have the shapes of the
    parameters. Raises ArgumentError for a negative rate, and in `step` GradientError for a dense
    gradient.

    >>> table = nn.Embedding(1000, 2, sparse=True)
    >>> optimizer = metaop.optim.SparseAdam(table.parameters(), lr=0.1)
    >>> before = table.weight.detach().clone()
    >>> table(metaop.tensor([3, 7, 3])).sum().backward()
    >>> optimizer.step()
    >>> (table.weight != before).any(1).nonzero().flatten().tolist()
    [3, 7]
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        check_settings(lr, betas, eps, 0.0)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})

    def _taken(self, gradient: Any, group: Group) -> Any:
        """The sparse gradient; dense ones are refused."""
        if not gradient.is_sparse:
            raise GradientError(
                "SparseAdam does not support dense gradients, please consider Adam instead",
                fix="look the rows up with sparse=True",
            )
        return gradient

    def advance(
        self, group: Group, counts: tuple[float, ...], fresh: bool
    ) -> tuple[Numbers, tuple[float, ...]]:
        step = counts[0] + 1
        beta1, beta2 = map(float, group["betas"])
        numbers = self.shared_numbers(group)
        scale = math.sqrt(1 - beta2**step) / (1 - beta1**step)
        return {**numbers, "step_size": float(group["lr"]) * scale}, (step,)

    @staticmethod
    def rule(
        x: Node, gradient: Node, state: Nodes, numbers: NodeNumbers, flags: tuple[str, ...]
    ) -> Nodes:
        """One parameter's step."""
        first, second = means(gradient, state, numbers)
        step = first / (apply("sqrt", second) + numbers["eps"]) * numbers["step_size"]
        return x - step, first, second


def _norm(x: Node) -> Node:
    return apply("sqrt", reduce_axes("add", x * x, range(x.ndim)))
