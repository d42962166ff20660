"""Recurrent layers: standard ones by metaop's layers, all others step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import metaop
from metaop.errors import ArgumentError
from metaop.nn import functional as F
from metaop.nn.functional.recurrent import recurrent_layer
from metaop.onnx.operators.shaping import shape_of
from metaop.onnx.table import operator
from metaop.tensor.core import Tensor

Activation = Callable[[Tensor], Any]

_ACTIVATIONS: dict[str, Callable[[Tensor, float, float], Any]] = {
    "affine": lambda x, a, b: a * x + b,
    "elu": lambda x, a, b: F.elu(x, a),
    "hardsigmoid": lambda x, a, b: metaop.clamp(a * x + b, 0, 1),
    "leakyrelu": lambda x, a, b: F.leaky_relu(x, a),
    "relu": lambda x, a, b: metaop.relu(x),
    "scaledtanh": lambda x, a, b: a * metaop.tanh(b * x),
    "sigmoid": lambda x, a, b: metaop.sigmoid(x),
    "softplus": lambda x, a, b: F.softplus(x),
    "softsign": lambda x, a, b: F.softsign(x),
    "tanh": lambda x, a, b: metaop.tanh(x),
    "thresholdedrelu": lambda x, a, b: F.threshold(x, a, 0.0),
}
_DEFAULTS = {
    "elu": (1.0, 0.0), "hardsigmoid": (0.2, 0.5), "leakyrelu": (0.01, 0.0),
    "thresholdedrelu": (1.0, 0.0),
}  # fmt: skip
# The positions of ONNX's gates in the order of metaop's layers, which is PyTorch's.
_ORDER = {"RNN": (0,), "LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2)}
_STANDARD = {"RNN": ["tanh"], "LSTM": ["sigmoid", "tanh", "tanh"], "GRU": ["sigmoid", "tanh"]}


class Layer:
    """One direction of a recurrent layer: its weights and how it computes a step."""

    def __init__(
        self,
        kind: str,
        names: Sequence[str],
        numbers: Sequence[tuple[float, float]],
        weights: tuple[Tensor, Tensor, Any],
        peepholes: Any,
        clip: float | None,
        linear_before_reset: bool,
        couple: bool,
    ) -> None:
        self.kind, self.names = kind, [name.lower() for name in names]
        self.of_input, self.of_hidden, self.bias = weights
        self.peepholes, self.clip = peepholes, clip
        self.linear_before_reset, self.couple = linear_before_reset, couple
        unknown = set(self.names) - set(_ACTIVATIONS)
        if unknown:
            raise ArgumentError(f"{kind}: there are no activations {sorted(unknown)}")
        self.functions = [
            lambda x, n=name, ab=pair: _ACTIVATIONS[n](x, *ab)
            for name, pair in zip(self.names, numbers)
        ]

    @property
    def is_plain(self) -> bool:
        """Whether metaop's own layer computes the same."""
        standard = self.names == _STANDARD[self.kind] or self.names == ["relu"]
        simple = self.peepholes is None and self.clip is None and not self.couple
        return standard and simple and (self.kind != "GRU" or self.linear_before_reset)

    def run(
        self, x: Tensor, states: tuple[Tensor, ...], lengths: Tensor | None, reverse: bool
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Outputs (T, N, H) for inputs (T, N, I), and the last states."""
        if self.is_plain:
            return self._run_plain(x, states, lengths, reverse)
        outputs: dict[int, Any] = {}
        steps = range(shape_of(x)[0])
        for step in reversed(steps) if reverse else steps:
            new = self._step(x.select(0, step), states)
            outputs[step] = new[0]
            if lengths is not None:
                running = (lengths > step).reshape((-1, 1))
                outputs[step] = metaop.where(running, new[0], 0 * new[0])
                new = tuple(metaop.where(running, n, s) for n, s in zip(new, states))
            states = new
        return metaop.stack([outputs[step] for step in steps]), states

    def _run_plain(
        self, x: Tensor, states: tuple[Tensor, ...], lengths: Tensor | None, reverse: bool
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        order = _ORDER[self.kind]
        bias: tuple[Any, Any] = (None, None)
        if self.bias is not None:
            halves = metaop.chunk(self.bias, 2, 0)
            bias = (self._sorted(halves[0], order), self._sorted(halves[1], order))
        kind = {"LSTM": "lstm", "GRU": "gru"}.get(self.kind, f"rnn_{self.names[0]}")
        weights = (self._sorted(self.of_input, order), self._sorted(self.of_hidden, order), *bias)
        return recurrent_layer(kind, x, states, weights, lengths=lengths, reverse=reverse)

    @staticmethod
    def _sorted(weight: Tensor, order: Sequence[int]) -> Tensor:
        parts = metaop.chunk(weight, len(order), 0)
        return metaop.cat([parts[k] for k in order], 0)

    def _clipped(self, x: Any) -> Any:
        return x if self.clip is None else metaop.clamp(x, -self.clip, self.clip)

    def _step(self, x: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        halves = (None, None) if self.bias is None else metaop.chunk(self.bias, 2, 0)
        of_x = F.linear(x, self.of_input, halves[0])
        if self.kind == "GRU":
            return self._gated(of_x, states[0], halves[1])
        gates = of_x + F.linear(states[0], self.of_hidden, halves[1])
        if self.kind == "RNN":
            return (self.functions[0](self._clipped(gates)),)
        return self._long_short_term(gates, states[1])

    def _long_short_term(self, gates: Tensor, memory: Tensor) -> tuple[Tensor, ...]:
        enter, leave, forget, new = metaop.chunk(gates, 4, 1)
        f, g, h = self.functions
        pi, po, pf = (
            (None, None, None) if self.peepholes is None else metaop.chunk(self.peepholes, 3, 0)
        )
        enter = f(self._clipped(enter if pi is None else enter + pi * memory))
        if self.couple:
            forget = 1 - enter
        else:
            forget = f(self._clipped(forget if pf is None else forget + pf * memory))
        memory = forget * memory + enter * g(self._clipped(new))
        leave = f(self._clipped(leave if po is None else leave + po * memory))
        return leave * h(memory), memory

    def _gated(self, of_x: Tensor, hidden: Tensor, bias: Any) -> tuple[Tensor, ...]:
        f, g = self.functions
        zx, rx, hx = metaop.chunk(of_x, 3, 1)
        wz, wr, wh = metaop.chunk(self.of_hidden, 3, 0)
        bz, br, bh = (None, None, None) if bias is None else metaop.chunk(bias, 3, 0)
        update = f(self._clipped(zx + F.linear(hidden, wz, bz)))
        reset = f(self._clipped(rx + F.linear(hidden, wr, br)))
        if self.linear_before_reset:
            own = reset * F.linear(hidden, wh, bh)
        else:
            own = F.linear(reset * hidden, wh, bh)
        new = g(self._clipped(hx + own))
        return ((1 - update) * new + update * hidden,)


def _layers(
    kind: str,
    directions: int,
    weights: tuple[Tensor, Tensor, Any, Any],
    options: dict[str, Any],
) -> list[Layer]:
    count = len(_STANDARD[kind])
    names = list(options.get("activations") or _STANDARD[kind] * directions)
    alphas = list(options.get("activation_alpha") or [])
    betas = list(options.get("activation_beta") or [])
    numbers = []
    for name in names:
        # The lists have numbers only for the activations that take some, in order.
        a, b = _DEFAULTS.get(name.lower(), (1.0, 1.0 if name.lower() == "scaledtanh" else 0.0))
        takes = name.lower() in (*_DEFAULTS, "affine", "scaledtanh")
        numbers.append((
            float(alphas.pop(0)) if takes and alphas else a,
            float(betas.pop(0)) if takes and betas and name.lower() != "leakyrelu" else b,
        ))  # fmt: skip
    w, r, b, p = weights
    return [
        Layer(
            kind,
            names[count * k : count * (k + 1)],
            numbers[count * k : count * (k + 1)],
            (w[k], r[k], None if b is None else b[k]),
            None if p is None else p[k],
            options.get("clip"),
            bool(options.get("linear_before_reset", 0)),
            bool(options.get("input_forget", 0)),
        )
        for k in range(directions)
    ]


def _run(
    kind: str,
    x: Tensor,
    weights: tuple[Tensor, Tensor, Any, Any],
    lengths: Any,
    initial: tuple[Any, ...],
    options: dict[str, Any],
) -> tuple[Tensor, ...]:
    layout = options.get("layout", 0)
    direction = options.get("direction", "forward")
    directions, _, hidden = shape_of(weights[1])
    if layout:
        x = x.permute((1, 0, 2))
        initial = tuple(None if one is None else one.permute((1, 0, 2)) for one in initial)
    zeros = metaop.zeros((directions, shape_of(x)[1], hidden), dtype=x.dtype, device=x.device)
    starts = tuple(zeros if one is None else one for one in initial)
    outputs, ends = [], []
    for k, layer in enumerate(_layers(kind, directions, weights, options)):
        reverse = direction == "reverse" or k == 1
        states = tuple(start[k] for start in starts)
        found, last = layer.run(x, states, lengths, reverse)
        outputs.append(found)
        ends.append(last)
    found = metaop.stack(outputs, 1)
    lasts = [metaop.stack([one[k] for one in ends]) for k in range(len(starts))]
    if layout:
        found = found.permute((2, 0, 1, 3))
        lasts = [last.permute((1, 0, 2)) for last in lasts]
    return found, *lasts


@operator("RNN")
def plain_recurrence(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    *,
    hidden_size: int | None = None,
    **options: Any,
) -> tuple[Tensor, ...]:
    """All outputs (T, directions, N, H) and the last ones."""
    return _run("RNN", x, (w, r, b, None), sequence_lens, (initial_h,), options)


@operator("GRU")
def gated_recurrence(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    *,
    hidden_size: int | None = None,
    **options: Any,
) -> tuple[Tensor, ...]:
    """All outputs (T, directions, N, H) and the last ones."""
    return _run("GRU", x, (w, r, b, None), sequence_lens, (initial_h,), options)


@operator("LSTM")
def long_short_term_memory(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    initial_c: Tensor | None = None,
    p: Tensor | None = None,
    *,
    hidden_size: int | None = None,
    **options: Any,
) -> tuple[Tensor, ...]:
    """All outputs (T, directions, N, H), the last ones and the last cell state."""
    return _run("LSTM", x, (w, r, b, p), sequence_lens, (initial_h, initial_c), options)
