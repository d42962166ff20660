"""Programs with loops written in Python, as users write them; each returns what it computes.

They take the number of steps, and compute in float64.
"""

from __future__ import annotations

from collections.abc import Callable

import metaop as mo
from metaop import Tensor, nn

F = nn.functional

Program = Callable[[int], list[Tensor]]
# The number of loops that a program becomes, by the program.
PROGRAMS: dict[Program, int] = {}


def loops(number: int) -> Callable[[Program], Program]:
    """Registers a program that becomes so many loops."""

    def add(program: Program) -> Program:
        PROGRAMS[program] = number
        return program

    return add


def _leaves(*shapes: tuple[int, ...]) -> list[Tensor]:
    """Computed leaves that need gradients."""
    mo.manual_seed(1)
    made = [mo.randn(*shape, dtype=mo.float64) * 0.4 for shape in shapes]
    for leaf in made:
        leaf.tolist()
    return [leaf.requires_grad_() for leaf in made]


def _module(module: nn.Module) -> nn.Module:
    module.double()
    for parameter in module.parameters():
        parameter.tolist()
    return module


def _trained(loss: Tensor, *leaves: Tensor) -> list[Tensor]:
    loss.backward()
    return [loss, *[leaf.grad for leaf in leaves]]


def _zeros(*shape: int) -> Tensor:
    return mo.zeros(*shape, dtype=mo.float64)


# --- how steps get their elements -----------------------------------------------------------------


@loops(2)
def unbind(steps: int) -> list[Tensor]:
    x, w = _leaves((5, steps, 8), (8, 8))
    h = _zeros(5, 8)
    for one in x.unbind(1):
        h = mo.tanh(h @ w + one) * 0.5
    return _trained(h.sum(), x, w)


@loops(2)
def iteration(steps: int) -> list[Tensor]:
    x, w = _leaves((steps, 5, 8), (8, 8))
    h, loss = _zeros(5, 8), 0
    for one in x:
        h = mo.sigmoid(mo.cat([one, h], 1) @ mo.cat([w, w]))
        loss = loss + (h**2).mean()
    return _trained(loss / steps, x, w)


@loops(2)
def slices_of_one(steps: int) -> list[Tensor]:
    x, w = _leaves((5, steps, 8), (8, 8))
    h, outputs = _zeros(5, 8), []
    for t in range(steps):
        h = mo.relu(h @ w + x[:, t : t + 1].squeeze(1))
        outputs.append(h.unsqueeze(1))
    return _trained(mo.cat(outputs, 1).pow(2).sum(), x, w)


@loops(2)
def columns(steps: int) -> list[Tensor]:
    x, w = _leaves((5, steps), (1, 4))
    h = _zeros(5, 4)
    for t in range(steps):
        h = mo.tanh(h + x[:, t, None] @ w)
    return _trained(h.sum(), x, w)


@loops(2)
def chunks(steps: int) -> list[Tensor]:
    x, w = _leaves((5, 3 * steps), (3, 3))
    h, outputs = _zeros(5, 3), []
    for one in x.chunk(steps, 1):
        h = mo.tanh(h @ w + one)
        outputs.append(h)
    return _trained(mo.cat(outputs, 1).pow(3).sum(), x, w)


@loops(2)
def every_other(steps: int) -> list[Tensor]:
    x, w = _leaves((5, 2 * steps, 8), (8, 8))
    h = _zeros(5, 8)
    for t in range(0, 2 * steps, 2):
        h = mo.tanh(h @ w + x[:, t])
    return _trained(h.sum(), x, w)


@loops(2)
def backwards_in_time(steps: int) -> list[Tensor]:
    x, w = _leaves((5, steps, 8), (8, 8))
    h, outputs = _zeros(5, 8), []
    for t in reversed(range(steps)):
        h = mo.tanh(h @ w + x[:, t])
        outputs.insert(0, h)
    return _trained((mo.stack(outputs, 1) * x).sum(), x, w)


@loops(4)
def both_directions(steps: int) -> list[Tensor]:
    x, w, u = _leaves((5, steps, 8), (8, 8), (8, 8))

    def run(order: range, weight: Tensor) -> Tensor:
        h, outputs = _zeros(5, 8), [x] * steps
        for t in order:
            h = mo.tanh(h @ weight + x[:, t])
            outputs[t] = h
        return mo.stack(outputs, 1)

    joined = mo.cat([run(range(steps), w), run(range(steps - 1, -1, -1), u)], 2)
    return _trained((joined**2).mean(), x, w, u)


@loops(2)
def numbers(steps: int) -> list[Tensor]:
    x, w = _leaves((5, 8), (8, 8))
    h = x
    for t in range(steps):
        h = h + mo.tanh(h @ w) * (0.1 / (t + 1))
    return _trained(h.sum(), x, w)


@loops(0)
def overlapping_windows(steps: int) -> list[Tensor]:
    x, w = _leaves((5, steps + 2, 8), (24, 8))
    h = _zeros(5, 8)
    for t in range(steps):
        h = mo.tanh(x[:, t : t + 3].reshape(5, 24) @ w + h)
    return _trained(h.sum(), x, w)


@loops(0)
def tensors_of_a_list(steps: int) -> list[Tensor]:
    w, *xs = _leaves((8, 8), *[(5, 8)] * steps)
    h = _zeros(5, 8)
    for one in xs:
        h = mo.tanh(h @ w + one)
    return _trained(h.sum(), w, *xs)


# --- what steps do --------------------------------------------------------------------------------


@loops(4)
def layers_over_time(steps: int) -> list[Tensor]:
    x, w, u = _leaves((5, steps, 8), (8, 8), (8, 8))

    def layer(sequence: Tensor, weight: Tensor) -> Tensor:
        h, outputs = _zeros(5, 8), []
        for t in range(steps):
            h = mo.tanh(h @ weight + sequence[:, t])
            outputs.append(h)
        return mo.stack(outputs, 1)

    return _trained(layer(layer(x, w), u).pow(2).sum(), x, w, u)


@loops(2)
def two_states(steps: int) -> list[Tensor]:
    x, w, u = _leaves((5, steps, 8), (8, 8), (8, 8))
    g = h = _zeros(5, 8)
    outputs = []
    for t in range(steps):
        h = mo.tanh(h @ w + x[:, t])
        g = mo.tanh(g @ u + h)
        outputs.append(g)
    return _trained(mo.stack(outputs, 1).sum(1).pow(2).sum(), x, w, u)


@loops(2)
def gates(steps: int) -> list[Tensor]:
    x, w, u = _leaves((5, steps, 8), (8, 32), (8, 32))
    h = c = _zeros(5, 8)
    outputs = []
    for t in range(steps):
        i, f, g, o = (x[:, t] @ w + h @ u).chunk(4, 1)
        c = mo.sigmoid(f) * c + mo.sigmoid(i) * mo.tanh(g)
        h = mo.sigmoid(o) * mo.tanh(c)
        outputs.append(h)
    return [*_trained(mo.stack(outputs, 1).pow(2).sum(), x, w, u), h, c, *outputs]


@loops(2)
def cell_with_losses(steps: int) -> list[Tensor]:
    cell, head = _module(nn.LSTMCell(8, 8)), _module(nn.Linear(8, 4))
    (x,) = _leaves((5, steps, 8))
    targets = mo.randint(0, 4, (5, steps))
    h = c = _zeros(5, 8)
    loss = 0
    for t in range(steps):
        h, c = cell(x[:, t], (h, c))
        loss = loss + F.cross_entropy(head(h), targets[:, t])
    return _trained(loss / steps, x, *cell.parameters(), *head.parameters())


@loops(2)
def decoder_with_attention(steps: int) -> list[Tensor]:
    embedding, cell = _module(nn.Embedding(11, 8)), _module(nn.GRUCell(16, 8))
    (memory,) = _leaves((4, 6, 8))
    tokens = mo.randint(0, 11, (4, steps))
    h, outputs = _zeros(4, 8), []
    for t in range(steps):
        scores = mo.softmax((memory @ h.unsqueeze(2)).squeeze(2), 1)
        context = (scores.unsqueeze(1) @ memory).squeeze(1)
        h = cell(mo.cat([embedding(tokens[:, t]), context], 1), h)
        outputs.append(h)
    loss = mo.stack(outputs, 1).pow(2).mean()
    return _trained(loss, memory, *embedding.parameters(), *cell.parameters())


@loops(1)
def greedy_decoder(steps: int) -> list[Tensor]:
    embedding, cell = _module(nn.Embedding(11, 8)), _module(nn.GRUCell(8, 8))
    head = _module(nn.Linear(8, 11))
    token, h, found = mo.zeros(4, dtype=mo.int64), _zeros(4, 8), []
    with mo.no_grad():
        for _ in range(steps):
            h = cell(embedding(token), h)
            token = head(h).argmax(1)
            found.append(token)
    return [mo.stack(found, 1), h]


@loops(2)
def dropout(steps: int) -> list[Tensor]:
    x, w = _leaves((5, steps, 8), (8, 8))
    h = _zeros(5, 8)
    for t in range(steps):
        h = F.dropout(mo.tanh(h @ w + x[:, t]), 0.3)
    return _trained(h.sum(), x, w)


@loops(2)
def shared_layer(steps: int) -> list[Tensor]:
    layer, norm = _module(nn.Linear(8, 8)), _module(nn.BatchNorm1d(8))
    (x,) = _leaves((6, 8))
    h = x
    for _ in range(steps):
        h = mo.relu(norm(layer(h))) + h * 0.1
    statistics = [norm.running_mean, norm.running_var]
    return [*_trained(h.sum(), x, *layer.parameters(), *norm.parameters()), *statistics]


@loops(2)
def recurrent_network_again(steps: int) -> list[Tensor]:
    network = _module(nn.LSTM(8, 8, batch_first=True))
    (x,) = _leaves((3, 6, 8))
    h = x
    for _ in range(steps):
        h = network(h)[0]
    return _trained(h.sum(), x, *network.parameters())


@loops(2)
def convolution_again(steps: int) -> list[Tensor]:
    layer = _module(nn.Conv2d(2, 2, 3, padding=1))
    (x,) = _leaves((2, 2, 6, 6))
    h = x
    for _ in range(steps):
        h = mo.tanh(layer(h))
    return _trained(h.sum(), x, *layer.parameters())


@loops(2)
def gradient_descent_inside(steps: int) -> list[Tensor]:
    w, x, y = _leaves((8, 3), (20, 8), (20, 3))
    v = w
    for _ in range(steps):
        loss = ((x @ v - y) ** 2).mean()
        (gradient,) = mo.autograd.grad(loss, v, create_graph=True)
        v = v - 0.1 * gradient
    return _trained(((x @ v - y) ** 2).mean(), w, x)


@loops(4)
def second_order(steps: int) -> list[Tensor]:
    x, w = _leaves((5, steps, 4), (4, 4))
    h = _zeros(5, 4)
    for t in range(steps):
        h = mo.tanh(h @ w + x[:, t])
    (gradient,) = mo.autograd.grad(h.pow(2).sum(), w, create_graph=True)
    return _trained((gradient**2).sum(), x, w)


@loops(2)
def rows_in_another_order(steps: int) -> list[Tensor]:
    x, w = _leaves((5, 8), (8, 8))
    h = x
    for _ in range(steps):
        h = mo.tanh(h[h.sum(1).argsort()] @ w)
    return _trained(h.sum(), x, w)


@loops(2)
def masked_steps(steps: int) -> list[Tensor]:
    x, w = _leaves((5, steps, 8), (8, 8))
    lengths = mo.tensor([1, steps, steps // 2, 3, 2])
    h = _zeros(5, 8)
    for t in range(steps):
        h = mo.where((lengths > t)[:, None], mo.tanh(h @ w + x[:, t]), h)
    return _trained(h.sum(), x, w)


@loops(2)
def state_of_two_steps_before(steps: int) -> list[Tensor]:
    x, w = _leaves((5, 8), (8, 8))
    a, b = x, x * 0.5
    for _ in range(steps):
        a, b = b, mo.tanh(a @ w + b)
    return _trained(b.sum(), x, w)


@loops(0)
def weights_in_turn(steps: int) -> list[Tensor]:
    x, *weights = _leaves((5, steps, 8), (8, 8), (8, 8))
    h = _zeros(5, 8)
    for t in range(steps):
        h = mo.tanh(h @ weights[t % 2] + x[:, t])
    return _trained(h.sum(), x, *weights)


# --- where the results go -------------------------------------------------------------------------


@loops(2)
def writes_into_a_tensor(steps: int) -> list[Tensor]:
    x, w = _leaves((5, steps, 8), (8, 8))
    h, out = _zeros(5, 8), _zeros(steps, 5, 8)
    for t in range(steps):
        h = mo.tanh(h @ w + x[:, t])
        out[t] = h
    return [*_trained((out**2).sum(), x, w), out]


@loops(0)
def writes_into_what_needs_a_gradient(steps: int) -> list[Tensor]:
    x, w, base = _leaves((5, steps, 8), (8, 8), (5, 2 * steps, 8))
    h, out = _zeros(5, 8), base * 2
    for t in range(steps):
        h = mo.tanh(h @ w + x[:, t])
        out[:, 2 * t + 1] = h
    return [*_trained((out**2).sum(), x, w, base), out]


@loops(1)
def writes_without_gradients(steps: int) -> list[Tensor]:
    x, w = _leaves((5, steps, 8), (8, 8))
    with mo.no_grad():
        h, out = _zeros(5, 8), mo.ones(5, 3 * steps, 8, dtype=mo.float64)
        for t in range(steps):
            h = mo.tanh(h @ w + x[:, t])
            out[:, 3 * t] = h
    return [out]


@loops(2)
def adds_in_place(steps: int) -> list[Tensor]:
    x, w = _leaves((5, steps, 8), (8, 8))
    h, total = _zeros(5, 8), _zeros(5, 8)
    for t in range(steps):
        h = mo.tanh(h @ w + x[:, t])
        total += h
    return _trained((total**2).sum(), x, w)


@loops(2)
def all_states_kept(steps: int) -> list[Tensor]:
    x, w = _leaves((5, steps, 8), (8, 8))
    h, states = _zeros(5, 8), []
    for t in range(steps):
        h = mo.tanh(h @ w + x[:, t])
        states.append(h)
    return [*_trained(h.sum(), x, w), *states]


@loops(2)
def one_state_kept(steps: int) -> list[Tensor]:
    x, w = _leaves((5, steps, 8), (8, 8))
    h, states = _zeros(5, 8), []
    for t in range(steps):
        h = mo.tanh(h @ w + x[:, t])
        states.append(h)
    kept, view = states[2], states[3][1:, ::2]
    del states
    return [*_trained(h.sum() + kept.sum(), x, w), kept, view]


@loops(2)
def loss_read_before_the_gradient(steps: int) -> list[Tensor]:
    cell, head = _module(nn.LSTMCell(8, 8)), _module(nn.Linear(8, 2))
    (x,) = _leaves((4, steps, 8))
    h = c = _zeros(4, 8)
    outputs = []
    for t in range(steps):
        h, c = cell(x[:, t], (h, c))
        outputs.append(head(h))
    loss = mo.stack(outputs, 1).pow(2).mean()
    assert float(loss) > 0
    return _trained(loss, x, *cell.parameters(), *head.parameters())
