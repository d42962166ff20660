"""Optimizers that treat parameters as matrices: Muon and Adafactor."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from metaop.elementwise.meta_op import apply, cast
from metaop.errors import ShapeError
from metaop.operators.linear_algebra import matmul
from metaop.optim.adam import NodeNumbers, Nodes
from metaop.optim.optimizer import Group, Optimizer, refuse_sparse
from metaop.optim.update import Numbers, UpdateRule, check, run_closure
from metaop.reduce.meta_op import reduce_axes
from metaop.reindex.views import transpose
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import tensor, zeros_like
from metaop.tensor.grad_mode import no_grad
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.node import Node

_ADJUSTMENTS = (None, "original", "match_rms_adamw")


class Muon(UpdateRule):
    """Steps along the orthogonal matrix nearest to the momentum (Jordan et al. 2024).

    `ns_steps` Newton-Schulz iterations in bfloat16 compute it. Parameters must be matrices; give
    the others to another optimizer. `adjust_lr_fn` scales the rate by the shape: "original" (None)
    or "match_rms_adamw".

    Raises ShapeError for parameters that are not matrices.

    >>> weight = nn.Parameter(metaop.ones(2, 2))
    >>> optimizer = metaop.optim.Muon([weight], lr=0.1)
    >>> weight.square().sum().backward()
    >>> optimizer.step()
    >>> bool((weight < 1).all())
    True
    """

    counters = ()

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        check("learning rate", lr, lr >= 0.0)
        check("momentum", momentum, momentum >= 0.0)
        check("weight decay", weight_decay, weight_decay >= 0.0)
        check("ns_steps", ns_steps, ns_steps < 100)
        check("adjust_lr_fn", adjust_lr_fn, adjust_lr_fn in _ADJUSTMENTS)  # type: ignore[arg-type]
        defaults = {
            "lr": lr,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "nesterov": nesterov,
            "ns_coefficients": ns_coefficients,
            "eps": eps,
            "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        }
        super().__init__(params, defaults)
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.ndim != 2:
                    raise ShapeError(
                        "Muon only supports 2D parameters whereas we found a parameter with size: "
                        f"{list(parameter.shape)}",
                        fix="pass the others to AdamW",
                    )

    def state_names(self, group: Group) -> tuple[str, ...]:
        return ("momentum_buffer",)

    def flags(self, group: Group) -> tuple[str, ...]:
        chosen = ("nesterov",) if group["nesterov"] else ()
        return (*chosen, str(group["adjust_lr_fn"]), *("iteration",) * group["ns_steps"])

    def advance(
        self, group: Group, counts: tuple[float, ...], fresh: bool
    ) -> tuple[Numbers, tuple[float, ...]]:
        a, b, c = group["ns_coefficients"]
        rate = float(group["lr"])
        numbers = {"lr": rate, "keep": 1 - rate * group["weight_decay"], "eps": group["eps"]}
        numbers |= {"momentum": group["momentum"], "a": a, "b": b, "c": c}
        return numbers, ()

    @staticmethod
    def rule(
        x: Node, gradient: Node, state: Nodes, numbers: NodeNumbers, flags: tuple[str, ...]
    ) -> Nodes:
        """One parameter's step."""
        momentum = numbers["momentum"]
        buffer = state[0] + (gradient - state[0]) * (1.0 - momentum)
        direction = gradient + (buffer - gradient) * momentum if "nesterov" in flags else buffer
        step = _orthogonalised(direction, numbers, flags.count("iteration"))
        rows, columns = x.shape
        ratio = math.sqrt(max(1, rows / columns))
        if "match_rms_adamw" in flags:
            ratio = 0.2 * math.sqrt(max(rows, columns))
        return x * numbers["keep"] - cast(step, x.dtype) * (numbers["lr"] * ratio), buffer


def _orthogonalised(matrix: Node, numbers: NodeNumbers, iterations: int) -> Node:
    """The approximate nearest orthogonal matrix: iterates a polynomial in the singular values."""
    tall = matrix.shape[0] > matrix.shape[1]
    X = cast(transpose(matrix, 0, 1) if tall else matrix, dtypes.bfloat16)
    wide = cast(X, dtypes.float32)
    norm = cast(apply("sqrt", reduce_axes("add", wide * wide, (0, 1))), dtypes.bfloat16)
    X = _rounded(wide / apply("maximum", cast(norm, dtypes.float32), _single(numbers["eps"])))
    a, b, c = (_single(numbers[name]) for name in "abc")
    for _ in range(iterations):
        gram = _product(X, transpose(X, 0, 1))
        narrow = _rounded(gram)
        update = _rounded(_single(narrow) * b + _product(narrow, narrow) * c)
        X = _rounded(_single(X) * a + _product(update, X))
    return transpose(X, 0, 1) if tall else X


def _product(left: Node, right: Node) -> Node:
    return matmul(_single(left), _single(right))


def _single(node: Node) -> Node:
    return cast(node, dtypes.float32)


def _rounded(node: Node) -> Node:
    return cast(node, dtypes.bfloat16)


class Adafactor(Optimizer):
    """Adam without momentum, with factored second moments (Shazeer & Stern 2018).

    The state of an (n, m) matrix has n + m numbers. `eps` holds lower bounds for the mean square
    and the relative step (None: the float type's epsilon); `d` is an upper bound for the root mean
    square of an update.

    Raises ArgumentError for a negative rate.

    >>> weight = nn.Parameter(metaop.ones(2, 2))
    >>> optimizer = metaop.optim.Adafactor([weight], lr=0.1)
    >>> weight.square().sum().backward()
    >>> optimizer.step()
    >>> bool((weight < 1).all())
    True
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        check("learning rate", lr, lr >= 0.0)
        check("beta2_decay", beta2_decay, beta2_decay <= 0.0)
        check("epsilon1", eps[0] or 0.0, eps[0] is None or eps[0] >= 0.0)
        check("epsilon2", eps[1], eps[1] >= 0.0)
        check("clipping threshold d", d, d >= 1.0)
        check("weight_decay", weight_decay, weight_decay >= 0.0)
        defaults = {
            "lr": lr,
            "beta2_decay": beta2_decay,
            "eps": eps,
            "d": d,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    @no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates all parameters that have a gradient; `closure` recomputes the loss."""
        loss = None if closure is None else run_closure(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    if parameter.grad.is_sparse:
                        refuse_sparse(self)
                    self._update(group, parameter, parameter.grad)
        return loss

    def _update(self, group: Group, parameter: Tensor, gradient: Tensor) -> None:
        gradient = -gradient if group["maximize"] else gradient
        state = self.state[parameter]
        count = float(state["step"]) + 1 if state else 1.0
        state["step"] = tensor(count, dtype=dtypes.float32)
        rate = float(group["lr"])
        smallest, relative = group["eps"]
        if smallest is None:
            smallest = 2.0**-52 if parameter.dtype.itemsize == 8 else 2.0**-23
        size = parameter.norm() / math.sqrt(parameter.numel())
        alpha = size.clamp_min(relative) * min(rate, 1 / math.sqrt(count))
        if group["weight_decay"]:
            parameter.mul_(1 - rate * group["weight_decay"])
        square = _mean_square(state, gradient, count ** group["beta2_decay"], smallest)
        update = gradient * square.clamp_min(smallest * smallest).rsqrt()
        excess = update.norm() / (math.sqrt(update.numel()) * group["d"])
        parameter.sub_(update * (alpha / excess.clamp_min(1.0)))


def _mean_square(state: dict[str, Any], gradient: Tensor, share: float, smallest: float) -> Tensor:
    """The running mean of squares; for matrices, the product of its row and column factors."""
    square = gradient * gradient
    if gradient.ndim < 2:
        state.setdefault("variance", zeros_like(gradient))
        return state["variance"].lerp_(square, share)
    for name, dim in (("row_var", -1), ("col_var", -2)):
        mean = square.mean(dim, True)
        state.setdefault(name, zeros_like(mean))
        state[name].lerp_(mean, share)
    rows = state["row_var"]
    return rows @ state["col_var"] / rows.mean(-2, True).clamp_min(smallest)
