"""Recurrent layers over whole sequences."""

from __future__ import annotations

import math
import numbers
import warnings
from typing import Any

from metaop.errors import ArgumentError, ArgumentTypeError, ShapeError
from metaop.nn import functional as F
from metaop.nn import init
from metaop.nn.functional.recurrent import recurrent_layer
from metaop.nn.module import Module
from metaop.nn.parameter import Parameter
from metaop.nn.utils.rnn import PackedSequence, packed_steps, padded_steps, sequence_lengths
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import empty, tensor, zeros
from metaop.tensor.functions.joining import cat, stack

# The recurrent state: (hidden,) or (hidden, cell).
State = tuple[Tensor, ...]

_WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")

# The numbers of gates and of states.
_KINDS = {"LSTM": (4, 2), "GRU": (3, 1), "RNN_TANH": (1, 1), "RNN_RELU": (1, 1)}


class RNNBase(Module):
    """The base class of RNN, LSTM and GRU: parameters by layer and direction, and the time loop.

    `mode` is "LSTM", "GRU", "RNN_TANH" or "RNN_RELU". Weights are
    (gates · hidden_size, features), biases (gates · hidden_size).

    Raises ArgumentError for another mode.

    >>> base = nn.RNNBase("LSTM", 4, 3)
    >>> base.weight_ih_l0.shape, base.weight_hh_l0.shape
    (metaop.Size([12, 4]), metaop.Size([12, 3]))
    """

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if mode not in _KINDS:
            raise ArgumentError(
                f"Unrecognized RNN mode: {mode}", fix=f"use one of {', '.join(_KINDS)}"
            )
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        self._check_settings(dropout)
        self._layer_weights: list[list[str]] = []
        for layer in range(num_layers):
            for suffix in ("", "_reverse")[: self._directions]:
                self._add_weights(f"_l{layer}{suffix}", layer, {"device": device, "dtype": dtype})
        self.reset_parameters()

    @property
    def gates(self) -> int:
        """The number of gates."""
        return _KINDS[self.mode][0]

    @property
    def states(self) -> int:
        """The number of states passed from step to step."""
        return _KINDS[self.mode][1]

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def _output_size(self) -> int:
        return self.proj_size or self.hidden_size

    def _check_settings(self, dropout: Any) -> None:
        is_number = isinstance(dropout, numbers.Number) and not isinstance(dropout, bool)
        if not is_number or not 0 <= dropout <= 1:
            raise ArgumentError(
                "dropout should be a number in range [0, 1] representing the probability of an "
                f"element being zeroed, not {dropout!r}"
            )
        for name in ("bias", "batch_first"):
            value = getattr(self, name)
            if not isinstance(value, bool):
                kind = type(value).__name__
                raise ArgumentTypeError(f"{name} should be of type bool, got: {kind}")
        for name in ("input_size", "hidden_size", "num_layers"):
            value = getattr(self, name)
            if not isinstance(value, int):
                kind = type(value).__name__
                raise ArgumentTypeError(f"{name} should be of type int, got: {kind}")
            if value <= 0:
                raise ArgumentError(f"{name} must be greater than zero")
        if not 0 <= self.proj_size < self.hidden_size:
            raise ArgumentError("proj_size has to be smaller than hidden_size and not negative")
        if dropout > 0 and self.num_layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero "
                f"dropout expects num_layers greater than 1, but got dropout={dropout} and "
                "num_layers=1",
                stacklevel=4,
            )

    def _add_weights(self, suffix: str, layer: int, options: dict[str, Any]) -> None:
        rows = self.gates * self.hidden_size
        inputs = self.input_size if layer == 0 else self._output_size * self._directions
        shapes: dict[str, tuple[int, ...]] = {
            "weight_ih": (rows, inputs),
            "weight_hh": (rows, self._output_size),
        }
        if self.bias:
            shapes.update(bias_ih=(rows,), bias_hh=(rows,))
        if self.proj_size:
            shapes["weight_hr"] = (self.proj_size, self.hidden_size)
        for name, shape in shapes.items():
            setattr(self, name + suffix, Parameter(empty(shape, **options)))
        self._layer_weights.append([name + suffix for name in shapes])

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of every layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._layer_weights]

    def flatten_parameters(self) -> None:
        """Does nothing: there is no packed copy of the weights to refresh."""

    def reset_parameters(self) -> None:
        """Draws all parameters uniformly from [-1/sqrt(hidden_size), 1/sqrt(hidden_size)]."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    # --- forward ----------------------------------------------------------------------------

    def forward(self, input: Tensor | PackedSequence, hx: Any = None) -> tuple[Any, Any]:
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx)
        if input.ndim not in (2, 3):
            raise ArgumentError(
                f"{self._get_name()}: Expected input to be 2D or 3D, got {input.ndim}D instead",
                fix="pass (time, batch, features)",
            )
        batched = input.ndim == 3
        steps = input
        if not batched:
            steps = input.unsqueeze(1)
        elif self.batch_first:
            steps = input.transpose(0, 1)
        state = self._first_state(hx, steps, batched)
        output, last = self._run(steps, state, None)
        if not batched:
            output, last = output.squeeze(1), tuple(s.squeeze(1) for s in last)
        elif self.batch_first:
            output = output.transpose(0, 1)
        return output, self._outward(last)

    def _forward_packed(self, input: PackedSequence, hx: Any) -> tuple[PackedSequence, Any]:
        batch_sizes = [int(size) for size in input.batch_sizes.tolist()]
        steps = padded_steps(input.data, batch_sizes)
        state = self._first_state(hx, steps, True)
        if hx is not None and input.sorted_indices is not None:
            state = tuple(s.index_select(1, input.sorted_indices) for s in state)
        lengths = tensor(sequence_lengths(batch_sizes), device=steps.device)
        output, last = self._run(steps, state, lengths)
        if input.unsorted_indices is not None:
            last = tuple(s.index_select(1, input.unsorted_indices) for s in last)
        packed = input._replace(data=packed_steps(output, batch_sizes))
        return packed, self._outward(last)

    def _outward(self, state: State) -> Any:
        return state[0] if self.states == 1 else state

    def _first_state(self, hx: Any, steps: Tensor, batched: bool) -> State:
        """The initial states (layers · directions, batch, size), checked."""
        if steps.shape[-1] != self.input_size:
            raise ShapeError(
                f"{self._get_name()}: input.size(-1) must be equal to input_size. Expected "
                f"{self.input_size}, got {steps.shape[-1]}",
                fix="the last dimension holds the features",
            )
        if not steps.shape[0]:
            raise ShapeError(
                f"{self._get_name()}: Expected sequence length to be larger than 0 in RNN, got "
                f"input {list(steps.shape)} (length, batch, features)",
                fix="remove empty sequences",
            )
        rows = self.num_layers * self._directions
        sizes = (self._output_size, self.hidden_size)[: self.states]
        shapes = [(rows, steps.shape[1], size) for size in sizes]
        if hx is None:
            return tuple(zeros(s, dtype=steps.dtype, device=steps.device) for s in shapes)
        given = (hx,) if self.states == 1 else tuple(hx)
        if not batched:
            given = tuple(state.unsqueeze(1) if state.ndim == 2 else state for state in given)
        for state, shape in zip(given, shapes):
            if tuple(state.shape) != shape:
                raise ShapeError(
                    f"{self._get_name()}: Expected hidden size {shape}, got {list(state.shape)}",
                    fix="(layers * directions, batch, size)",
                )
        return given

    def _run(self, steps: Tensor, state: State, lengths: Tensor | None) -> tuple[Tensor, State]:
        last: list[State] = []
        for layer in range(self.num_layers):
            outputs = []
            for direction in range(self._directions):
                row = layer * self._directions + direction
                begin = tuple(s[row] for s in state)
                output, end = self._walk(steps, begin, row, direction == 1, lengths)
                outputs.append(output)
                last.append(end)
            steps = outputs[0] if len(outputs) == 1 else cat(outputs, -1)
            if self.dropout and layer < self.num_layers - 1:
                steps = F.dropout(steps, self.dropout, self.training)
        return steps, tuple(stack(kind, 0) for kind in zip(*last))

    def _walk(
        self,
        steps: Tensor,
        state: State,
        row: int,
        reverse: bool,
        lengths: Tensor | None,
    ) -> tuple[Tensor, State]:
        """Runs one layer in one direction: its outputs and last states."""
        weights = {name.split("_l")[0]: getattr(self, name) for name in self._layer_weights[row]}
        return recurrent_layer(
            self.mode.lower(),
            steps,
            state,
            tuple(map(weights.get, _WEIGHTS)),
            projection=weights.get("weight_hr"),
            lengths=lengths,
            reverse=reverse,
        )

    def extra_repr(self) -> str:
        parts = [f"{self.input_size}, {self.hidden_size}"]
        defaults = {
            "proj_size": 0,
            "num_layers": 1,
            "bias": True,
            "batch_first": False,
            "dropout": 0,
            "bidirectional": False,
        }
        for name, default in defaults.items():
            if getattr(self, name) != default:
                parts.append(f"{name}={getattr(self, name)}")
        return ", ".join(parts)


class RNN(RNNBase):
    """Elman network: h' = tanh(W_ih x + b_ih + W_hh h + b_hh), over all steps of a sequence.

    Input (T, N, features), or (N, T, features) with `batch_first`, or (T, features). Returns the
    outputs of the last layer and the last states (layers · directions, N, hidden_size).

    Raises ArgumentError for a `nonlinearity` other than "tanh" and "relu".

    >>> outputs, last = nn.RNN(4, 3, num_layers=2)(metaop.randn(5, 2, 4))
    >>> outputs.shape, last.shape
    (metaop.Size([5, 2, 3]), metaop.Size([2, 2, 3]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ArgumentError(
                f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'."
            )
        super().__init__(
            f"RNN_{nonlinearity.upper()}",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            0,
            device,
            dtype,
        )
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """Long short-term memory (Hochreiter & Schmidhuber 1997).

    Like RNN, with the states (hidden, cell); `proj_size` projects the hidden state to that size.

    >>> output, (hidden, cell) = nn.LSTM(8, 16, batch_first=True)(metaop.ones(2, 5, 8))
    >>> output.shape, hidden.shape
    (metaop.Size([2, 5, 16]), metaop.Size([1, 2, 16]))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)


class GRU(RNNBase):
    """Gated recurrent unit (Cho et al. 2014); arguments and results are those of RNN.

    The output of (L, N, input_size) is (L, N, hidden_size).

    >>> output, hidden = nn.GRU(8, 16)(metaop.ones(5, 2, 8))
    >>> output.shape, hidden.shape
    (metaop.Size([5, 2, 16]), metaop.Size([1, 2, 16]))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("proj_size"):
            raise ArgumentError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__("GRU", *args, **kwargs)
