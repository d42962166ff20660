"""Rules for results: what they say is what expanding says, and nobody expands meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

import metaop
from metaop.errors import ShapeError
from metaop.execution import executor
from metaop.unified_graph import shape_rule
from metaop.unified_graph.composite import Signature
from metaop.unified_graph.recording import Call
from metaop.unified_graph.shape_rule import ShapeRule
from metaop.unified_graph.symbolic import NotGeneralError

Function = Callable[[Any, Any, Any], Any]

FUNCTIONS: dict[str, Function] = {
    "linear": lambda T, x, w: T.nn.functional.linear(x, w[: x.shape[1]].t()),
    "norm": lambda T, x, w: T.nn.functional.layer_norm(x, x.shape[1:]) * w[0, 0],
    "attention": lambda T, x, w: (x @ x.t()).softmax(1) @ x,
    "moments": lambda T, x, w: x.var(0) * x.mean(0) + w[: x.shape[1], 0],
    "windows": lambda T, x, w: T.nn.functional.avg_pool1d(x[None], 3, 2).relu() * w[0, 0],
    "filters": lambda T, x, w: T.nn.functional.conv1d(
        x[None], w[:1, None].expand(1, x.shape[0], 4)
    ),
    "joined": lambda T, x, w: T.cat([x, x.flip(0)[1:]]).cumsum(0).tanh(),
    "picked": lambda T, x, w: x[T.arange(x.shape[0] // 2)].exp().prod(1),
    "sorted": lambda T, x, w: x.sort(0)[0][: x.shape[0] // 2] * w[0, 1],
}


def signatures_of(*calls: Call) -> list[Signature]:
    """The signatures of pending calls."""
    subgraph = executor.pending_subgraph(calls)
    return [signature for _, signature in subgraph.operators]


def run(T: Any, function: Function, seed: int) -> list[np.ndarray]:
    numbers = np.random.default_rng(seed)
    rows, columns = numbers.permutation(np.arange(5, 30))[:2]
    x = T.tensor(numbers.standard_normal((rows, columns)), dtype=T.float32, requires_grad=True)
    w = T.tensor(numbers.standard_normal((30, 4)), dtype=T.float32, requires_grad=True)
    result = function(T, x, w)
    # Which gradients are asked for first is not the same in all runs.
    wanted = (x,) if seed % 3 == 2 else (x, w)
    found = T.autograd.grad(result.square().sum(), wanted, allow_unused=True)
    return [one.detach().numpy() for one in (result, *found) if one is not None]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_by_rule_are_those_of_pytorch(name: str) -> None:
    executor.clear_programs()
    for seed in range(16):
        expected = run(torch, FUNCTIONS[name], seed)
        for ours, theirs in zip(run(metaop, FUNCTIONS[name], seed), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=2e-3)


def test_nothing_is_expanded_for_further_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAOP_VERIFY", "false")
    executor.clear_programs()
    expanded: list[Signature] = []
    expand = Signature._expand
    monkeypatch.setattr(Signature, "_expand", lambda self: expanded.append(self) or expand(self))
    w = metaop.tensor(np.ones((7, 3), np.float32), requires_grad=True)

    def loss_and_gradient(size: int) -> tuple[metaop.Tensor, metaop.Tensor]:
        x = metaop.tensor(np.ones((size, 7), np.float32))
        loss = (x @ w).sigmoid().sum(1).log().mean()
        (gradient,) = metaop.autograd.grad(loss, w)
        return loss, gradient

    # Other tests may have left as many rules of these operators as there may be.
    for signature in signatures_of(*(one._call for one in loss_and_gradient(1031))):
        signature.structure.rules = None
    # Sizes that no other test has, whose signatures would be known already.
    for size in (1011, 1013, 1017, 1019, 1023, 1029):
        expanded.clear()
        _loss, gradient = loss_and_gradient(size)
        signatures = signatures_of(gradient._call)
        gradient.numpy()
        assert bool(expanded) == (size < 1019)
    # Whoever asks for nodes gets them.
    for signature in signatures:
        shapes = [kind.shape for kind in signature.types]
        assert [node.shape for node in signature.outputs] == shapes
    assert len(expanded) > 5


def test_a_rule_is_searched_ever_more_rarely_but_never_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searches: list[int] = []

    class Found(ShapeRule):
        def __init__(self, concrete: Signature, others: Sequence[float]) -> None:
            if concrete.composite is first.composite:
                searches.append(concrete.input_types[0].shape[0])
            if len(searches) < 8:
                raise NotGeneralError("one of many thresholds")
            super().__init__(concrete, others)

    def recorded(rows: int) -> Signature:
        return signatures_of((metaop.ones(rows, 777) * 3)._call)[-1]

    monkeypatch.setattr(shape_rule, "ShapeRule", Found)
    first = recorded(1200)
    first.structure.rules = shape_rule.Rules(first.numbers)
    by_rule = [recorded(rows).rule is not None for rows in range(1201, 1300)]
    assert by_rule.index(True) < 40 and all(by_rule[by_rule.index(True) :])
    waits = np.diff(searches)
    assert len(searches) == 8 and list(waits) == sorted(waits) and waits[-1] > 2 * waits[0]


def test_gradients_of_further_sizes_take_the_types_of_their_signatures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("METAOP_VERIFY", "false")
    executor.clear_programs()
    asked: list[tuple[ShapeRule, tuple[float, ...]]] = []
    types_for = ShapeRule.types_for

    def counting(rule: ShapeRule, numbers: Sequence[float]) -> Any:
        asked.append((rule, tuple(numbers)))
        return types_for(rule, numbers)

    monkeypatch.setattr(ShapeRule, "types_for", counting)
    w = metaop.tensor(np.ones((6, 3), np.float32), requires_grad=True)
    for size in (11, 13, 17, 19, 23, 29):
        asked.clear()
        x = metaop.tensor(np.ones((size, 6), np.float32))
        (gradient,) = metaop.autograd.grad((x @ w).exp().sum(1).log().mean(), w)
        gradient.numpy()
    assert len(set(asked)) == len(asked) > 5


@pytest.mark.parametrize(
    "read",
    [
        lambda x, k: x[k].tolist(),
        lambda x, k: x[k % 37 + 3, k % 5 + 3].item(),
        lambda x, k: x[k + 2 : k + 9 : 3, 7 + k // 10 :].tolist(),
        lambda x, k: x.t()[k % 29 + 2, : k + 2].tolist(),
    ],
    ids=["row", "element", "stride", "transposed"],
)
def test_what_a_loop_reads_is_found_by_rule(
    read: Callable[[metaop.Tensor, int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No program is made of a view that is read, so none tells that its places vary."""
    monkeypatch.setenv("METAOP_VERIFY", "false")
    expanded = []
    expand = Signature._expand

    def counting(signature: Signature) -> None:
        expanded.append(signature)
        expand(signature)

    values = np.random.default_rng(0).standard_normal((200, 40)).astype(np.float32)
    ours, theirs = metaop.tensor(values), torch.tensor(values)
    for k in range(190):
        if k == 100:
            monkeypatch.setattr(Signature, "_expand", counting)
        assert read(ours, k) == read(theirs, k)
    assert len(expanded) <= 4


def test_gradients_asked_for_in_another_order_have_the_same_residuals() -> None:
    executor.clear_programs()
    orders = [("x",), ("x",), ("x",), ("w",), ("x", "w"), ("w", "x"), ("x",)]
    for size, order in enumerate(orders, 4):
        found = []
        for T in (metaop, torch):
            numbers = np.random.default_rng(size)
            leaves = {
                "x": T.tensor(numbers.standard_normal((size, 5)), requires_grad=True),
                "w": T.tensor(numbers.standard_normal((5, size + 2)), requires_grad=True),
            }
            loss = (leaves["x"] @ leaves["w"]).softmax(1).square().sum()
            one_by_one = [
                T.autograd.grad(loss, leaves[name], retain_graph=True)[0] for name in order
            ]
            found.append([gradient.numpy() for gradient in one_by_one])
        for ours, theirs in zip(*found, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-9)


def test_errors_are_those_without_a_rule() -> None:
    executor.clear_programs()
    w = metaop.randn(7, 3)
    for size in (11, 13, 17, 19):
        (metaop.ones(size, 7) @ w).sum().item()
    with pytest.raises(ShapeError, match="23"):
        metaop.ones(7, 23) @ w


def _written(T: Any, x: Any, count: int, columns: bool = True) -> Any:
    """The first rows or columns, written over those of a constant."""
    whole = T.zeros_like(x) + 1.5
    where = (slice(None), slice(count)) if columns else slice(count)
    whole[where] = x[where].tanh()
    return whole


# Functions of a matrix whose rows or columns are for once as many as a number that they name.
COINCIDING: dict[str, Callable[[Any, Any], Any]] = {
    "columns written": lambda T, x: _written(T, x, 4),
    "rows written": lambda T, x: _written(T, x, 4, False),
    "a square written": lambda T, x: _written(T, x.t(), x.shape[1]) * x.t(),
    "a slice": lambda T, x: x[:, :4].exp() * x[:, -4:],
    "windows": lambda T, x: x.unfold(1, 4, 1).softmax(-1).amax(1),
    "resized": lambda T, x: T.nn.functional.interpolate(x[None], 4, mode="linear").exp(),
    "joined": lambda T, x: T.cat([x, x[:, :4]], 1).cumsum(1).tanh(),
}


@pytest.mark.parametrize("name", COINCIDING)
def test_sizes_that_are_equal_for_once(name: str) -> None:
    executor.clear_programs()
    for rows, columns in ((5, 7), (6, 9), (8, 4), (4, 4), (9, 4)):
        found = []
        for T in (metaop, torch):
            numbers = np.random.default_rng(rows)
            x = T.tensor(numbers.standard_normal((rows, columns)), dtype=T.float32)
            x = x.requires_grad_()
            result = COINCIDING[name](T, x)
            (result * result.detach().cos()).sum().backward()
            found.append((result.detach().numpy(), x.grad.numpy()))
        for ours, theirs in zip(*found, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


WRITES: dict[str, Callable[[Any], Any]] = {
    "first two": lambda y: y.view(-1)[:2].neg_(),
    "every third": lambda y: y.flatten()[::3].mul_(0.5),
    "a column of a turned plane": lambda y: y.transpose(1, -1)[:, 0].mul_(0.3),
    "rows of joined dimensions": lambda y: y.view(y.shape[0], -1)[:, 1:3].exp_(),
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize(
    "sizes",
    [
        # One size is another one less 6, as behind a convolution; or nothing is.
        [(3, 4, 10, 4), (3, 8, 9, 3), (3, 5, 8, 2), (3, 7, 9, 3)],
        [(2, 3, 4, 5), (3, 5, 4, 7), (4, 1, 2, 3), (2, 2, 6, 1)],
    ],
)
def test_gradients_of_writes_keep_what_their_rules_say(
    name: str, sizes: list[tuple[int, ...]]
) -> None:
    """Only for numbers is it provable that such a view has each element once."""
    random = np.random.default_rng(0)
    for shape in sizes:
        values, weights = random.standard_normal((2, *shape)).astype("f")
        found = []
        for library in (torch, metaop):
            x = library.tensor(values, requires_grad=True)
            y = x * 1.5
            WRITES[name](y)
            (y.atan() * library.tensor(weights)).sum().backward()
            found.append(x.grad.numpy())
        np.testing.assert_allclose(found[1], found[0], rtol=1e-5, atol=1e-6)


ALONG: dict[str, Callable[[Any, Any, int], Any]] = {
    "softmax": lambda T, x, dim: x.softmax(dim),
    "log_softmax": lambda T, x, dim: x.log_softmax(dim),
    "normalize": lambda T, x, dim: T.nn.functional.normalize(x, dim=dim),
    "centred": lambda T, x, dim: x - x.mean(dim, keepdim=True),
    "cumulated": lambda T, x, dim: x.cumsum(dim),
}


@pytest.mark.parametrize("differentiated", [False, True])
@pytest.mark.parametrize("name", ALONG)
def test_a_dimension_is_no_size(name: str, differentiated: bool) -> None:
    """Results have one shape along every dimension, so shapes tell no two dimensions apart."""
    executor.clear_programs()
    sizes = [(2, 4, 6, 8), (3, 5, 7, 4), (4, 3, 5, 6), (6, 2, 4, 8), (5, 8, 3, 7), (7, 3, 2, 5)]
    for step, (shape, dim) in enumerate(zip(sizes, (2, 3, 2, 3, 3, 2))):
        values = np.random.default_rng(step).standard_normal(shape).astype("f")
        found = []
        for T in (metaop, torch):
            x = T.tensor(values, requires_grad=differentiated)
            found.append([result := ALONG[name](T, x * 2, dim)])
            if differentiated:
                result.square().sum().backward()
                found[-1].append(x.grad)
        for ours, theirs in zip(*found, strict=True):
            ours, theirs = ours.detach().numpy(), theirs.detach().numpy()
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
