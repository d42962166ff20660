"""L-BFGS: a quasi-Newton method with limited memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metaop.control_flow import scan
from metaop.errors import ArgumentError, ArgumentTypeError
from metaop.optim.line_search import strong_wolfe
from metaop.optim.optimizer import Optimizer
from metaop.optim.update import check, run_closure
from metaop.tensor.core import Tensor
from metaop.tensor.functions.complex_numbers import view_as_real
from metaop.tensor.functions.creation import tensor, zeros_like
from metaop.tensor.functions.joining import cat, stack
from metaop.tensor.grad_mode import no_grad

# The changes of the gradient, the steps, and one over their products: a row for each iteration.
_MATRICES = "old_dirs", "old_stps", "ro"


class LBFGS(Optimizer):
    """L-BFGS with the last `history_size` changes of the gradient (Liu & Nocedal 1989).

    `step` needs a closure, which it calls several times. `line_search_fn` is None or
    "strong_wolfe".

    Raises ArgumentError for settings outside their range.

    >>> x = metaop.tensor([4.0], requires_grad=True)
    >>> optimizer = metaop.optim.LBFGS([x], lr=0.5)
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = (x * x).sum()
    ...     loss.backward()
    ...     return loss
    >>> loss = optimizer.step(closure)
    >>> abs(x.item()) < 1e-3
    True
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        check("learning rate", lr, lr > 0.0)
        if line_search_fn not in (None, "strong_wolfe"):
            raise ArgumentError("only 'strong_wolfe' is supported", fix="pass None or that name")
        defaults = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
        }
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise ArgumentError("LBFGS doesn't support per-parameter options (parameter groups)")

    @property
    def _params(self) -> list[Tensor]:
        return self.param_groups[0]["params"]

    def state_dict(self) -> dict[str, Any]:
        """Settings and state in PyTorch's format: the history is lists, oldest entry first."""
        result = super().state_dict()
        for number, state in result["state"].items():
            if "stored" in state:
                rows = _ring(state["first"], state["stored"])
                lists = {name: [state[name][row] for row in rows] for name in _MATRICES}
                rest = {key: state[key] for key in state if key not in ("stored", "first")}
                result["state"][number] = {**rest, **lists}
        return result

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads what `state_dict` returned, also from PyTorch."""
        states = {key: _stacked(state) for key, state in state_dict["state"].items()}
        super().load_state_dict({**state_dict, "state": states})

    def _gradient(self) -> Tensor:
        parts = [zeros_like(p) if p.grad is None else p.grad.to_dense() for p in self._params]
        return cat([_numbers(part).reshape(-1) for part in parts], 0)

    def _move(self, values: list[Tensor], size: float, direction: Tensor) -> None:
        """Sets the parameters to `values + size * direction`."""
        start = 0
        for parameter, value in zip(self._params, values):
            target = _numbers(parameter)
            stop = start + target.numel()
            piece = direction[start:stop].reshape(target.shape)
            target.copy_(_numbers(value) + piece * size)
            start = stop

    @no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Runs up to `max_iter` iterations; returns the loss before the first."""
        if closure is None:
            raise ArgumentTypeError(
                "LBFGS.step() needs a closure that computes the loss again",
                fix="pass a function that calls backward() and returns the loss",
            )
        group = self.param_groups[0]
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first_loss = run_closure(closure)
        loss = float(first_loss.item())
        gradient = self._gradient()
        evaluations = 1
        state["func_evals"] += 1
        if _largest(gradient) <= group["tolerance_grad"]:
            return first_loss
        for move in range(group["max_iter"]):
            state["n_iter"] += 1
            direction = self._direction(state, gradient, group["history_size"])
            previous_gradient, previous_loss = gradient.clone(), loss
            size = float(group["lr"])
            if state["n_iter"] == 1:
                size *= min(1.0, 1.0 / gradient.abs().sum().item())
            # The next step learns from this move, even if it ends here.
            state.update(d=direction, t=size, prev_flat_grad=previous_gradient)
            state["prev_loss"] = previous_loss
            slope = gradient.dot(direction).item()
            if slope > -group["tolerance_change"]:
                break
            loss, gradient, size, calls = self._advance(
                closure, group, (loss, gradient, slope), direction, size, move
            )
            evaluations += calls
            state["func_evals"] += calls
            state["t"] = size
            if (
                evaluations >= group["max_eval"]
                or _largest(gradient) <= group["tolerance_grad"]
                or _largest(direction * size) <= group["tolerance_change"]
                or abs(loss - previous_loss) < group["tolerance_change"]
            ):
                break
        return first_loss

    def _advance(
        self,
        closure: Callable[[], Any],
        group: dict[str, Any],
        here: tuple[float, Tensor, float],
        direction: Tensor,
        size: float,
        move: int,
    ) -> tuple[float, Tensor, float, int]:
        """Moves along `direction`; returns loss, gradient, step length and evaluation count."""
        values = [parameter.detach().clone() for parameter in self._params]

        def evaluate(length: float) -> tuple[float, Tensor]:
            self._move(values, length, direction)
            found = float(run_closure(closure).item())
            return found, self._gradient()

        loss, gradient, slope = here
        if group["line_search_fn"] == "strong_wolfe":
            loss, gradient, size, calls = strong_wolfe(
                evaluate, size, direction, loss, gradient, slope
            )
            self._move(values, size, direction)
            return loss, gradient, size, calls
        if move == group["max_iter"] - 1:
            self._move(values, size, direction)
            return loss, gradient, size, 0
        loss, gradient = evaluate(size)
        return loss, gradient, size, 1

    def _direction(self, state: dict[str, Any], gradient: Tensor, history_size: int) -> Tensor:
        """The two-loop recursion over the stored changes."""
        if state["n_iter"] == 1:
            for key in (*_MATRICES, "stored", "first"):
                state.pop(key, None)
            state["H_diag"] = 1.0
            return -gradient
        change = gradient - state["prev_flat_grad"]
        moved = state["d"] * state["t"]
        product = change.dot(moved)
        curvature = product.item()
        if curvature > 1e-10:
            _store(state, (change, moved, 1.0 / product), history_size)
            state["H_diag"] = curvature / change.dot(change).item()
        if "stored" not in state:
            return -gradient * state["H_diag"]
        changes, steps, weights = (state[name] for name in _MATRICES)

        def descend(direction: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
            share = steps[row].dot(direction) * weights[row]
            return direction - changes[row] * share, share

        def ascend(direction: Tensor, row_and_share: tuple[Tensor, Tensor]) -> tuple[Tensor, None]:
            row, share = row_and_share
            share = share - changes[row].dot(direction) * weights[row]
            return direction + steps[row] * share, None

        # Empty rows have a weight of 0. With them, few numbers of steps occur, which matters where
        # each number has a program of its own.
        rows = tensor(_ring(state["first"], len(weights)), device=gradient.device)
        direction, shares = scan(descend, -gradient, rows, reverse=True)
        return scan(ascend, direction * state["H_diag"], (rows, shares))[0]


def _ring(first: int, count: int) -> list[int]:
    """All rows, oldest first: from the row `first` to the end, then from the start."""
    return [*range(first, count), *range(first)]


def _store(state: dict[str, Any], latest: tuple[Tensor, Tensor, Tensor], most: int) -> None:
    """Writes `latest` into the next rows; the matrices double until they have `most` rows."""
    stored = state.get("stored", 0)
    if stored == 0:
        state.update(zip(_MATRICES, (value[None] for value in latest)), stored=1, first=0)
        return
    if stored > most or stored == len(state["ro"]) < most:
        kept = _ring(state["first"], stored)[-most:]
        room = max(min(stored, most - stored), 0)
        for name in _MATRICES:
            state[name] = cat([state[name][kept], zeros_like(state[name][:room])])
        stored, state["first"] = len(kept), 0
    row = stored if stored < most else state["first"]
    for name, value in zip(_MATRICES, latest):
        state[name][row] = value
    state["stored"] = min(stored + 1, most)
    state["first"] = (row + 1) % most if stored == most else 0


def _stacked(state: Any) -> Any:
    """A saved state with the lists of its history as matrices."""
    if not isinstance(state, dict) or not state.get("ro"):
        return state
    matrices = {name: stack([_as_tensor(value) for value in state[name]]) for name in _MATRICES}
    return {**state, **matrices, "stored": len(matrices["ro"]), "first": 0}


def _as_tensor(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else tensor(value)


def _largest(vector: Tensor) -> float:
    return vector.abs().max().item()


def _numbers(x: Tensor) -> Tensor:
    """The real numbers of a tensor; complex numbers as their two parts."""
    return view_as_real(x) if x.dtype.is_complex else x
