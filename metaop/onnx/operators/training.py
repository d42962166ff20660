"""ONNX's operators for optimizer steps."""

from __future__ import annotations

from typing import Any

import metaop
from metaop.onnx.table import TRAINING, operator
from metaop.tensor.core import Tensor


def _grouped(values: tuple[Any, ...], count: int) -> list[tuple[Any, ...]]:
    """The values of each parameter: inputs come as all parameters, all gradients, and so on."""
    size = len(values) // count
    return [tuple(values[kind * size + k] for kind in range(count)) for k in range(size)]


def _flat(rows: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(row[k] for k in range(len(rows[0])) for row in rows)


@operator("Adagrad", domain=TRAINING)
def adagrad(
    rate: Tensor,
    step: Tensor,
    *values: Tensor,
    decay_factor: float = 0.0,
    epsilon: float = 0.0,
    norm_coefficient: float = 0.0,
) -> tuple[Any, ...]:
    """New parameters and sums of squares."""
    speed = rate / (1 + step.to(rate.dtype) * decay_factor)
    rows = []
    for x, gradient, squares in _grouped(values, 3):
        slope = norm_coefficient * x + gradient
        total = squares + slope * slope
        rows.append((x - speed * slope / (metaop.sqrt(total) + epsilon), total))
    return _flat(rows)


@operator("Adam", domain=TRAINING)
def adam(
    rate: Tensor,
    step: Tensor,
    *values: Tensor,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> tuple[Any, ...]:
    """New parameters and both moments."""
    count = step.to(rate.dtype)
    corrected = rate * metaop.sqrt(1 - beta**count) / (1 - alpha**count)
    speed = metaop.where(step > 0, corrected, rate)
    rows = []
    for x, gradient, first, second in _grouped(values, 4):
        slope = norm_coefficient * x + gradient
        first = alpha * first + (1 - alpha) * slope
        second = beta * second + (1 - beta) * slope * slope
        moved = x - speed * first / (metaop.sqrt(second) + epsilon)
        rows.append(((1 - norm_coefficient_post) * moved, first, second))
    return _flat(rows)


@operator("Momentum", domain=TRAINING)
def momentum(
    rate: Tensor,
    step: Tensor,
    *values: Tensor,
    alpha: float,
    beta: float,
    mode: str,
    norm_coefficient: float,
) -> tuple[Any, ...]:
    """New parameters and velocities; `mode` is "standard" or "nesterov"."""
    rows = []
    weight = metaop.where(step > 0, beta, 1.0)
    for x, gradient, velocity in _grouped(values, 3):
        slope = norm_coefficient * x + gradient
        velocity = alpha * velocity + weight * slope
        move = slope + alpha * velocity if mode == "nesterov" else velocity
        rows.append((x - rate * move, velocity))
    return _flat(rows)
