"""`backward` and `grad` against PyTorch: accumulation, hooks, versions, modes and errors."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.errors import GradientError
from metaop.execution import executor

torch = pytest.importorskip("torch")

LIBRARIES = [metaop, torch]


def each(values: Any = (1.0, 2.0, 3.0), requires_grad: bool = True) -> list[tuple[Any, Any]]:
    """A leaf of each library, with the library."""
    return [(lib.tensor(np.asarray(values), requires_grad=requires_grad), lib) for lib in LIBRARIES]


def test_gradients_accumulate() -> None:
    for x, _ in each():
        (x * x).sum().backward()
        held = x.grad
        (x * 3).sum().backward()
        assert x.grad.tolist() == [5.0, 7.0, 9.0] == held.tolist()


def test_cotangent_and_inputs() -> None:
    for x, lib in each():
        other = lib.ones(3, dtype=lib.float64, requires_grad=True)
        y = x * other
        y.backward(lib.tensor([1.0, 10.0, 100.0], dtype=lib.float64), inputs=[x])
        assert x.grad.tolist() == [1.0, 10.0, 100.0] and other.grad is None


def test_backward_twice_is_an_error() -> None:
    for x, _ in each():
        y = (x * x).sum()
        y.backward()
        with pytest.raises(RuntimeError, match="a second time"):
            y.backward()
    x, _ = each()[0]
    y = (x * x).sum()
    y.item()
    y.backward()
    with pytest.raises(GradientError, match="retain_graph=True"):
        y.backward()


def test_retain_graph() -> None:
    for x, _ in each():
        y = (x * x).sum()
        y.backward(retain_graph=True)
        y.backward()
        assert x.grad.tolist() == [4.0, 8.0, 12.0]


def test_what_saves_nothing_can_be_differentiated_again() -> None:
    for x, _ in each():
        y = (x + 1)[1:].sum()
        y.backward()
        y.backward()
        assert x.grad.tolist() == [0.0, 2.0, 2.0]


def test_shared_part_after_one_branch() -> None:
    for x, _ in each():
        shared = x.exp()
        (shared * 2).sum().backward()
        with pytest.raises(RuntimeError):
            shared.sum().backward()


@pytest.mark.parametrize("read", [False, True])
def test_changed_saved_value_is_an_error(read: bool) -> None:
    for x, _ in each():
        y = x * 1
        z = y**2
        if read:
            z.tolist()
        y.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, F: F.max_pool1d(x, 2).relu_(),
        lambda x, F: F.adaptive_max_pool1d(x, 2).mul_(3),
        lambda x, F: F.local_response_norm(x, 2).add_(1),
        lambda x, F: (x / (x.abs() + 1)).clamp_(-0.2, 0.2),
        lambda x, F: F.softsign(x).mul_(x.detach()),
        lambda x, F: F.normalize(x, dim=1).add_(x),
        lambda x, F: x.max(-1).values.relu_(),
    ],
)
def test_a_result_may_be_written_over_where_pytorch_saves_none(
    function: Callable[..., Any], read: bool
) -> None:
    found = []
    for x, lib in each(np.random.default_rng(0).standard_normal((2, 3, 4))):
        result = function(x, lib.nn.functional)
        if read:
            result.tolist()
        result.square().sum().backward()
        found.append(x.grad.tolist())
    np.testing.assert_allclose(*found, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("affine", [False, True])
def test_running_statistics_are_moved_before_backward(affine: bool) -> None:
    found = []
    for x, lib in each(np.random.default_rng(0).standard_normal((3, 4))):
        norm = lib.nn.BatchNorm1d(4, affine=affine).double()
        (norm(x).sin().sum() + norm(x * 2).cos().sum()).backward()
        found.append(x.grad.tolist())
    np.testing.assert_allclose(*found, rtol=1e-9, atol=1e-12)


def test_change_through_another_view_is_an_error() -> None:
    for x, _ in each():
        y = x * 1
        z = y[:2] * y[1:]
        y.detach()[0] = 5.0
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()
    for x, lib in each():
        buffer = lib.ones(3, dtype=lib.float64)
        z = x * buffer[0]
        buffer.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()


def test_write_without_tracking_through_data_is_allowed() -> None:
    for x, _ in each():
        y = x * 1
        z = y + y
        y.data.mul_(2)
        z.sum().backward()
        assert x.grad.tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("name", ["relu_", "sigmoid_", "tanh_", "exp_", "sqrt_", "abs_", "neg_"])
def test_in_place_functions_use_their_own_operand(name: str) -> None:
    results = []
    for x, _ in each():
        y = x * 0.5
        getattr(y, name)()
        (y * 3).sum().backward()
        results.append(x.grad.tolist())
    np.testing.assert_allclose(results[0], results[1], rtol=1e-12)


def test_in_place_on_leaf_is_an_error() -> None:
    for x, lib in each():
        with pytest.raises(RuntimeError, match="leaf"):
            x.add_(1)
        with pytest.raises(RuntimeError, match="leaf"):
            x[0] = 1.0
        with lib.no_grad():
            x.add_(1)
            x[0] = 7.0
        assert x.tolist() == [7.0, 3.0, 4.0] and x.is_leaf and x.requires_grad


def test_write_of_a_tracked_value_into_an_untracked_tensor() -> None:
    for x, lib in each():
        buffer = lib.zeros(2, 3, dtype=lib.float64)
        buffer[1] = x * 2
        assert buffer.requires_grad and not buffer.is_leaf
        buffer.sum().backward()
        assert x.grad.tolist() == [2.0, 2.0, 2.0]


def test_overwritten_values_have_gradient_zero() -> None:
    for x, _ in each():
        y = x * 2
        y.zero_()
        assert y.requires_grad
        (y + x).sum().backward()
        assert x.grad.tolist() == [1.0, 1.0, 1.0]


def test_hooks_run_once_on_the_sum() -> None:
    for x, _ in each():
        seen: list[Any] = []
        y = x * 2
        handle = y.register_hook(lambda g, seen=seen: seen.append(g.tolist()))
        y.register_hook(lambda g: g * 10)
        x.register_hook(lambda g: g + 1)
        (y + y * 3).sum().backward()
        assert seen == [[4.0, 4.0, 4.0]]
        assert x.grad.tolist() == [81.0, 81.0, 81.0]
        handle.remove()
        (x * 2).sum().backward()
        assert len(seen) == 1


def _told_by_hooks(lib: Any) -> list[Any]:
    """What hooks of one tensor tell each other, by an attribute and by writing."""
    seen: list[Any] = []
    x = lib.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2

    def mark(gradient: Any) -> Any:
        gradient.replaced = gradient * 3
        return gradient.replaced

    def write(gradient: Any) -> None:
        gradient[0] = 5

    y.register_hook(seen.append)
    y.register_hook(mark)
    y.register_hook(write)
    y.register_hook(lambda g: seen.append(hasattr(g, "replaced")))
    y.register_hook(lambda g: seen.append(g.tolist()))
    y.sum().backward()
    first, *others = seen
    return [first.tolist(), first.replaced.tolist(), *others, x.grad.tolist()]


def test_hooks_of_a_tensor_get_one_object() -> None:
    assert _told_by_hooks(metaop) == _told_by_hooks(torch)


def test_hooks_of_a_frozen_leaf_come_back() -> None:
    for x, lib in each():
        x.register_hook(lambda g: g * 10)
        handle = x.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", p.grad * 2))
        x.requires_grad_(False)
        with lib.no_grad():
            x.mul_(2)
        x.requires_grad_()
        (x * x).sum().backward()
        assert x.grad.tolist() == [80.0, 160.0, 240.0]
        handle.remove()
        x.requires_grad_(False).requires_grad_(True)
        x.sum().backward()
        assert x.grad.tolist() == [90.0, 170.0, 250.0]
        twin = copy.deepcopy(x.requires_grad_(False)).requires_grad_()
        twin.grad = None
        twin.sum().backward()
        assert twin.grad.tolist() == [1.0, 1.0, 1.0]
        assert x.grad.tolist() == [90.0, 170.0, 250.0]


def test_hook_after_accumulation() -> None:
    for x, _ in each():
        x.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", p.grad * 2))
        (x * 3).sum().backward()
        assert x.grad.tolist() == [6.0, 6.0, 6.0]


def test_retain_grad() -> None:
    for x, _ in each():
        y = x * 2
        y.retain_grad()
        assert y.retains_grad
        (y * y).sum().backward()
        assert y.grad.tolist() == [4.0, 8.0, 12.0]


def test_grad_of_several_outputs_and_inputs() -> None:
    for x, lib in each():
        y = lib.tensor([2.0, 0.0, 1.0], dtype=lib.float64, requires_grad=True)
        gx, gy = lib.autograd.grad([(x * y).sum(), (x + y).sum()], [x, y])
        assert gx.tolist() == [3.0, 1.0, 2.0] and gy.tolist() == [2.0, 3.0, 4.0]
        assert x.grad is None


def test_grad_of_an_inner_value() -> None:
    for x, lib in each():
        y = x.exp()
        z = (y * y).sum()
        (gy,) = lib.autograd.grad(z, y, retain_graph=True)
        np.testing.assert_allclose(gy.tolist(), (2 * y.detach()).tolist())
        (gz,) = lib.autograd.grad(z, z)
        assert gz.item() == 1.0


def test_unused_inputs() -> None:
    for x, lib in each():
        other = lib.ones(2, requires_grad=True)
        y = (x * 2).sum()
        with pytest.raises(RuntimeError, match="not have been used"):
            lib.autograd.grad(y, [x, other], retain_graph=True)
        assert lib.autograd.grad(y, [x, other], allow_unused=True, retain_graph=True)[1] is None
        zeros = lib.autograd.grad(y, [x, other], materialize_grads=True)[1]
        assert zeros.tolist() == [0.0, 0.0]
        with pytest.raises(RuntimeError):
            lib.autograd.grad(y, lib.ones(1))


def test_second_and_third_order() -> None:
    results = []
    for x, lib in each():
        y = (x**4).sum()
        row = []
        for _ in range(3):
            (y,) = lib.autograd.grad(y.sum(), x, create_graph=True)
            row.append(y.tolist())
        y.sum().backward()
        results.append([*row, x.grad.tolist()])
    np.testing.assert_allclose(results[0], results[1], rtol=1e-12)


def test_gradient_penalty() -> None:
    results = []
    for x, lib in each():
        w = lib.tensor([[1.0, -1.0, 0.5], [0.3, 0.2, 0.1]], dtype=lib.float64, requires_grad=True)
        out = (w @ x).tanh().sum()
        (g,) = lib.autograd.grad(out, x, create_graph=True)
        ((g.norm() - 1) ** 2 + out).backward()
        results.append([*w.grad.flatten().tolist(), *x.grad.tolist()])
    np.testing.assert_allclose(results[0], results[1], rtol=1e-10)


def test_modes() -> None:
    for x, lib in each():
        with lib.no_grad():
            assert not lib.is_grad_enabled() and not (x * 2).requires_grad
            with lib.enable_grad():
                assert (x * 2).requires_grad
        with lib.inference_mode():
            assert not (x * 2).requires_grad
        with lib.set_grad_enabled(False):
            assert not (x * 2).requires_grad
        assert (x * 2).requires_grad
        lib.set_grad_enabled(False)
        assert not (x * 2).requires_grad
        lib.set_grad_enabled(True)


@pytest.mark.parametrize("lib", [metaop, torch], ids=["metaop", "torch"])
def test_modes_as_decorators(lib: Any) -> None:
    x = lib.ones(2, requires_grad=True)

    @lib.no_grad()
    def quiet() -> bool:
        return (x * 2).requires_grad

    @lib.no_grad
    def quiet_too() -> bool:
        return (x * 2).requires_grad

    @lib.no_grad()
    def generator() -> Any:
        yield (x * 2).requires_grad
        yield (x * 2).requires_grad

    assert not quiet() and not quiet_too()
    inner = generator()
    assert not next(inner) and lib.is_grad_enabled() and not next(inner)


@pytest.mark.parametrize(
    "program",
    [
        lambda lib: lib.ones(2).sum().backward(),
        lambda lib: (lib.ones(2, requires_grad=True) * 2).backward(),
        lambda lib: lib.ones(2, requires_grad=True).mul(2).requires_grad_(False),
        lambda lib: lib.ones(2).long().requires_grad_(),
        lambda lib: lib.ones(2, requires_grad=True).numpy(),
        lambda lib: lib.ones(2).register_hook(print),
        lambda lib: lib.ones(2, requires_grad=True).mul(2).backward(lib.ones(3)),
    ],
)
def test_errors(program: Any) -> None:
    for lib in LIBRARIES:
        with pytest.raises(RuntimeError):
            program(lib)


def test_function_graph_can_be_walked() -> None:
    x = metaop.ones(2, requires_grad=True)
    y = (x * 2).exp()
    assert x.grad_fn is None and y.is_leaf is False
    assert "exp" in y.grad_fn.name().lower()
    inner = y.grad_fn.next_functions[0][0]
    assert "mul" in inner.name().lower()
    assert inner.next_functions[0][0].name() == "AccumulateGrad"


def test_detach_in_place() -> None:
    for x, _ in each():
        y = x * 2
        y.detach_()
        assert not y.requires_grad and y.is_leaf and y.tolist() == [2.0, 4.0, 6.0]


def test_reading_a_loss_before_backward_computes_nothing_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    computed: list[Any] = []

    class Counting(executor.Watcher):
        def begun(self, subgraph: Any) -> None:
            computed.extend(call for call, _ in subgraph.operators)

    monkeypatch.setattr(executor, "watchers", [Counting()])
    rng = np.random.default_rng(0)
    x = metaop.tensor(rng.standard_normal((4, 8)))
    w1 = metaop.tensor(rng.standard_normal((8, 8)), requires_grad=True)
    w2 = metaop.tensor(rng.standard_normal((8, 3)), requires_grad=True)
    loss = ((x @ w1).tanh() @ w2).logsumexp(1).mean()
    loss.item()
    loss.backward()
    w1.grad.tolist(), w2.grad.tolist()
    assert len(computed) == len(set(computed)) and len(computed) > 5


class _Reading(metaop.autograd.Function):
    """A product with 2 whose gradient reads the cotangent."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, cotangent: Any) -> Any:
        return metaop.tensor(2 * cotangent.numpy())


def _read_by_a_hook(x: Any) -> Any:
    y = x * 2
    y.register_hook(lambda cotangent: cotangent * float(cotangent.sum() != 0))
    return y


@pytest.mark.parametrize(
    "step", [lambda x: metaop.linalg.solve(x, x + 1), _Reading.apply, _read_by_a_hook]
)
def test_reading_values_in_each_step_of_a_backward_pass_takes_linear_time(
    monkeypatch: pytest.MonkeyPatch, step: Callable[[Any], Any]
) -> None:
    counts = []

    class Counting(executor.Watcher):
        def begun(self, subgraph: Any) -> None:
            counts[-1] += len(subgraph.order)

    monkeypatch.setattr(executor, "watchers", [Counting()])
    for steps in (8, 16):
        counts.append(0)
        x = metaop.eye(3, dtype=metaop.float64).requires_grad_()
        y = x * 1
        for _ in range(steps):
            y = y - 0.1 * step(y + x) @ y
        counts[-1] = 0
        y.sum().backward()
        x.grad.tolist()
    # Each step finds what the one before it has passed on, and computes only its own part.
    assert counts[1] < 2.3 * counts[0]


def test_anomalies_are_named_with_the_line_that_called_the_operator() -> None:
    x = metaop.zeros(2, requires_grad=True)
    with metaop.autograd.set_detect_anomaly(True):
        loss = (x.sqrt() * 0).sum()
        with pytest.raises(RuntimeError, match=r"'SqrtBackward0' returned nan.*test_backward.py:"):
            loss.backward()


@pytest.mark.parametrize(
    "function",
    [
        lambda x, F: F.batch_norm(x, None, None, training=True),
        lambda x, F: F.group_norm(x, 2),
        lambda x, F: F.layer_norm(x, (4,)),
        lambda x, F: F.softmax(x, 1),
        lambda x, F: F.cosine_similarity(x, x.roll(1, 0), 1),
        lambda x, F: x.std(1),
        lambda x, F: x.prod(1),
        lambda x, F: x.logsumexp(1),
    ],
)
def test_second_gradients_after_a_result_was_read(function: Callable[..., Any]) -> None:
    random = np.random.default_rng(3)
    values, weights = random.standard_normal((2, 6, 4))
    found = []
    for lib in LIBRARIES:
        x = lib.tensor(values, requires_grad=True)
        result = function(x, lib.nn.functional)
        result.sum().item()
        loss = (
            result.sin() * lib.tensor(weights[:, :1] if result.ndim == 2 else weights[:, 0])
        ).sum()
        (slope,) = lib.autograd.grad(loss, x, create_graph=True)
        slope.square().sum().backward()
        found.append(x.grad.tolist())
    np.testing.assert_allclose(*found, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("bias", [True, False])
def test_what_meets_only_padding_gets_zeros(bias: bool) -> None:
    found = []
    for library in (torch, metaop):
        layer = library.nn.Conv2d(2, 1, 1, stride=3, padding=1, bias=bias)
        x = library.ones(2, 2, 1, 1).requires_grad_()
        layer(x).square().sum().backward()
        tensors = (x, layer.weight)
        found.append([None if t.grad is None else t.grad.tolist() for t in tensors])
    assert found[1] == found[0] and None not in found[1]


ROUNDED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "nearest pixels": lambda T, x, y: T.nn.functional.grid_sample(
        x.view(1, 1, 2, 2), y.view(1, 1, 2, 2) / 9, "nearest", align_corners=False
    ),
    "rounded factor": lambda T, x, y: x * y.round(),
    "sign": lambda T, x, y: x * 2 + T.sign(y),
    "sign of another": lambda T, x, y: T.copysign(x, y),
}


@pytest.mark.parametrize("name", ROUNDED)
def test_operands_that_are_only_rounded_get_zeros(name: str) -> None:
    """An optimizer decays and moves what has the gradient zero, and skips what has none."""
    found = []
    for T in (torch, metaop):
        x, y = (T.tensor(v, requires_grad=True) for v in ([1.5, -2.0, 3.0, 0.5], [2.5, 1, -2, 4]))
        ROUNDED[name](T, x, y).sum().backward()
        found.append([x.grad.tolist(), y.grad.tolist()])
    assert found[1] == found[0] and found[1][1] == [0.0] * 4


def test_hooks_of_leaves_that_backward_names() -> None:
    def run(T: Any) -> list[Any]:
        x, other = (T.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
        for leaf in (x, other):
            leaf.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", p.grad * 2))
        middle = x * other
        seen: list[Any] = []
        for inputs in ([x], x, [other, middle]):
            middle.square().sum().backward(inputs=inputs, retain_graph=True)
            seen += [None if one.grad is None else one.grad.tolist() for one in (x, other)]
        middle.retain_grad()
        return [*seen, middle.grad.tolist()]

    assert run(metaop) == run(torch)


def test_parts_that_two_gradients_read() -> None:
    def run(T: Any) -> Any:
        layer = T.nn.Conv2d(4, 4, (3, 5), padding=3, groups=2, bias=False)
        with T.no_grad():
            values = T.arange(layer.weight.numel()).reshape(layer.weight.shape)
            layer.weight.copy_(values / 40)
        optimizer = T.optim.RMSprop(layer.parameters(), lr=0.02)

        def forward(x: Any) -> Any:
            return T.fft.fft(layer(x).sin(), dim=1).abs().square()

        for rows in (2, 3):
            x = T.arange(24.0 * rows).reshape(rows, 4, 3, 2) / 10
            loss = forward(x).abs().amax(1).sum()
            seen = x.clone().requires_grad_()
            slope = T.autograd.grad(forward(seen).sum(), seen, create_graph=True)[0]
            loss = loss + slope.square().sum()
            loss.backward()
            optimizer.step()
        return layer.weight.grad.sum().item()

    assert run(metaop) == pytest.approx(run(torch), rel=1e-4)


def test_results_of_a_function_name_it() -> None:
    def described(lib: Any) -> list[Any]:
        class Both(lib.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x * 2, x * 3

            @staticmethod
            def backward(ctx: Any, first: Any, second: Any) -> Any:
                return 2 * first + 3 * second

        x = lib.ones(2, requires_grad=True)
        first, second = Both.apply(x)
        total = first * second
        reached = [(one.name(), index) for one, index in total.grad_fn.next_functions]
        leaves = [one.name().split(":")[-1] for one, _ in second.grad_fn.next_functions]
        loss = lib.ones((), requires_grad=True) * 2
        return [repr(second), reached, leaves, f"{loss} {loss:.1f}"]

    mine, theirs = described(metaop), described(torch)
    assert [mine[0].split()[-1], *mine[1:]] == [theirs[0].split()[-1], *theirs[1:]]
    assert mine[1] == [("BothBackward", 0), ("BothBackward", 1)]
