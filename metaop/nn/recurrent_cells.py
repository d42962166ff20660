"""Recurrent cells: a single time step as a module."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from metaop.errors import ArgumentError, ShapeError
from metaop.nn import init
from metaop.nn.functional import recurrent as cells
from metaop.nn.module import Module
from metaop.nn.parameter import Parameter
from metaop.nn.recurrent import State
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import empty, zeros


class RNNCellBase(Module):
    """The parameters of a cell: weight_ih, weight_hh, bias_ih, bias_hh.

    Shapes are (num_chunks · hidden_size, input_size), (num_chunks · hidden_size, hidden_size) and
    (num_chunks · hidden_size) twice; the biases exist only with `bias`.

    >>> cell = nn.RNNCellBase(4, 3, bias=False, num_chunks=2)
    >>> cell.weight_ih.shape, cell.bias_ih
    (metaop.Size([6, 4]), None)
    """

    states: ClassVar[int] = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = num_chunks * hidden_size
        options = {"device": device, "dtype": dtype}
        self.weight_ih = Parameter(empty((rows, input_size), **options))
        self.weight_hh = Parameter(empty((rows, hidden_size), **options))
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, Parameter(empty(rows, **options)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws all parameters uniformly from [-1/sqrt(hidden_size), 1/sqrt(hidden_size)]."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def _step(self, input: Tensor, state: State) -> State:
        raise NotImplementedError

    @property
    def _weights(self) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        return self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        name = self._get_name()
        if input.ndim not in (1, 2):
            raise ArgumentError(
                f"{name}: Expected input to be 1D or 2D, got {input.ndim}D instead",
                fix="pass one time step: (batch, features)",
            )
        batched = input.ndim == 2
        x = input if batched else input.unsqueeze(0)
        if x.shape[1] != self.input_size:
            raise ShapeError(
                f"{name}: input has inconsistent input_size: got {x.shape[1]}, expected "
                f"{self.input_size}"
            )
        shape = (x.shape[0], self.hidden_size)
        if hx is None:
            state: State = (zeros(shape, dtype=x.dtype, device=x.device),) * self.states
        else:
            given = (hx,) if self.states == 1 else tuple(hx)
            state = tuple(h if h.ndim == 2 else h.unsqueeze(0) for h in given)
        for hidden in state:
            if tuple(hidden.shape) != shape:
                raise ShapeError(
                    f"{name}: hidden has shape {list(hidden.shape)}, expected {list(shape)}"
                )
        result = self._step(x, state)
        if not batched:
            result = tuple(h.squeeze(0) for h in result)
        return result[0] if self.states == 1 else result

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        return text if self.bias else f"{text}, bias={self.bias}"


class RNNCell(RNNCellBase):
    """One step of RNN.

    Inputs (N, input_size) and (N, hidden_size) give (N, hidden_size).

    >>> nn.RNNCell(8, 16)(metaop.ones(2, 8)).shape
    metaop.Size([2, 16])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def _step(self, input: Tensor, state: State) -> State:
        if self.nonlinearity not in ("tanh", "relu"):
            raise ArgumentError(f"Unknown nonlinearity: {self.nonlinearity}", fix="tanh or relu")
        function = cells.rnn_tanh_cell if self.nonlinearity == "tanh" else cells.rnn_relu_cell
        return (function(input, state[0], *self._weights),)

    def extra_repr(self) -> str:
        text = super().extra_repr()
        if self.nonlinearity != "tanh":
            text += f", nonlinearity={self.nonlinearity}"
        return text


class LSTMCell(RNNCellBase):
    """One step of LSTM: returns (hidden, cell).

    Takes (N, input_size), or (input_size), and the previous pair of states, zeros by default.
    Both states are (N, hidden_size).

    >>> hidden, cell = nn.LSTMCell(4, 3)(metaop.randn(2, 4))
    >>> hidden.shape, cell.shape
    (metaop.Size([2, 3]), metaop.Size([2, 3]))
    """

    states = 2

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def _step(self, input: Tensor, state: State) -> State:
        hidden, cell = state
        return cells.lstm_cell(input, (hidden, cell), *self._weights)


class GRUCell(RNNCellBase):
    """One step of GRU.

    Inputs (N, input_size) and (N, hidden_size) give (N, hidden_size).

    >>> nn.GRUCell(8, 16)(metaop.ones(2, 8)).shape
    metaop.Size([2, 16])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def _step(self, input: Tensor, state: State) -> State:
        return (cells.gru_cell(input, state[0], *self._weights),)
