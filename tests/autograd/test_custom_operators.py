"""Operators that a program registers: `library.custom_op`, against PyTorch."""

# Annotations are evaluated: PyTorch reads the types of an operator from them.
# mypy: disable-error-code="name-defined"

from typing import Any

import numpy as np
import pytest

import metaop

torch = pytest.importorskip("torch")

LIBRARIES = pytest.mark.parametrize("lib", [metaop, torch], ids=["metaop", "torch"])


def sine(lib: Any) -> Any:
    """An operator that computes with NumPy, without a gradient."""

    @lib.library.custom_op("tests::sine", mutates_args=())
    def operator(x: lib.Tensor, factor: float = 2.0, *, shift: float = 0.0) -> lib.Tensor:
        return lib.from_numpy(np.sin(x.numpy() * factor) + np.float32(shift))

    return operator


@LIBRARIES
def test_calls(lib: Any) -> None:
    operator = sine(lib)
    x = lib.tensor([0.5, 1.0])
    expected = np.sin(np.float32([1.5, 3.0])) + np.float32(1)
    for function in (operator, lib.ops.tests.sine, lib.ops.tests.sine.default):
        np.testing.assert_allclose(function(x, 3.0, shift=1.0).numpy(), expected, rtol=1e-6)
    assert repr(operator) == "<CustomOpDef(tests::sine)>"
    assert hasattr(lib.ops.tests, "sine") and not hasattr(lib.ops.tests, "cosine")
    for arguments, keywords in (((), {}), ((x,), {"other": 1})):
        with pytest.raises(RuntimeError):
            operator(*arguments, **keywords)


@LIBRARIES
def test_without_a_gradient(lib: Any) -> None:
    x = lib.ones(2, requires_grad=True)
    result = sine(lib)(x)
    assert result.requires_grad
    with pytest.raises(RuntimeError, match="no autograd formula was registered"):
        result.sum().backward()
    with lib.no_grad():
        assert not sine(lib)(x).requires_grad


@LIBRARIES
def test_nothing_inside_is_recorded(lib: Any) -> None:
    weight = lib.ones(2, requires_grad=True)

    @lib.library.custom_op("tests::weighted", mutates_args=())
    def operator(x: lib.Tensor) -> lib.Tensor:
        return x * weight

    assert not operator(lib.ones(2)).requires_grad


@LIBRARIES
def test_gradient(lib: Any) -> None:
    operator = sine(lib)
    seen: list[Any] = []

    def setup_context(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
        x, ctx.factor = inputs
        ctx.save_for_backward(x, output)
        seen.append((keyword_only_inputs, ctx.needs_input_grad[:2]))

    def backward(ctx: Any, gradient: Any) -> Any:
        x, output = ctx.saved_tensors
        seen.append(output.tolist())
        return gradient * ctx.factor * (x * ctx.factor).cos(), None

    lib.library.register_autograd("tests::sine", backward, setup_context=setup_context)
    x = lib.tensor([0.5, 1.0], requires_grad=True)
    y = operator(x, shift=1.0)
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.cos([1.0, 2.0]), rtol=1e-5)
    assert seen == [({"shift": 1.0}, (True, False)), y.tolist()]


@LIBRARIES
def test_lists_of_tensors(lib: Any) -> None:
    @lib.library.custom_op("tests::scaled", mutates_args=())
    def operator(xs: list[lib.Tensor], factors: list[float]) -> tuple[list[lib.Tensor], lib.Tensor]:
        return [x * factor for x, factor in zip(xs, factors)], sum(xs).clone()

    needs: list[Any] = []

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.factors = inputs[1]

    def backward(ctx: Any, scaled: Any, total: Any) -> Any:
        needs.append(ctx.needs_input_grad)
        return [total + g * factor for g, factor in zip(scaled, ctx.factors)], None

    operator.register_autograd(backward, setup_context=setup_context)
    x, y = lib.ones(2, requires_grad=True), lib.ones(2)
    (first, second), total = operator([x, y], [3.0, 4.0])
    (first.sum() + 2 * second.sum() + 5 * total.sum()).backward()
    assert x.grad.tolist() == [8, 8] and y.grad is None
    assert needs == [([True, False], False)]

    operator.register_autograd(lambda ctx, scaled, total: (total, None))
    with pytest.raises(RuntimeError, match="of the same structure"):
        operator([x, y], [3.0, 4.0])[1].sum().backward()


@LIBRARIES
def test_results_that_are_no_tensors(lib: Any) -> None:
    @lib.library.custom_op("tests::counted", mutates_args=())
    def operator(x: lib.Tensor) -> tuple[lib.Tensor, int]:
        return x.clone(), x.numel()

    operator.register_autograd(lambda ctx, gradient, number: gradient * 3)
    x = lib.ones(2, requires_grad=True)
    result, number = operator(x)
    result.sum().backward()
    assert number == 2 and x.grad.tolist() == [3, 3]


@LIBRARIES
def test_written_arguments(lib: Any) -> None:
    @lib.library.custom_op("tests::doubled_", mutates_args={"x"})
    def operator(x: lib.Tensor) -> None:
        x.mul_(2)

    x = lib.ones(2)
    assert operator(x) is None and x.tolist() == [2, 2]
    leaf = lib.ones(2, requires_grad=True)
    y = leaf * 1
    operator(y)
    y.sum().backward()
    assert y.tolist() == [2, 2] and leaf.grad.tolist() == [1, 1]
    with pytest.raises(RuntimeError):
        operator.register_autograd(lambda ctx: None)


@LIBRARIES
def test_kernels_of_devices(lib: Any) -> None:
    @lib.library.custom_op("tests::of_devices", mutates_args=(), device_types="cuda")
    def operator(x: lib.Tensor) -> lib.Tensor:
        return x + 1

    x = lib.ones(2)
    with pytest.raises(NotImplementedError, match="'tests::of_devices' with arguments from the"):
        operator(x)

    @operator.register_kernel(["cpu"])
    def on_the_cpu(x: Any) -> Any:
        return x + 2

    assert operator(x).tolist() == [3, 3]
    lib.library.register_kernel("tests::of_devices", "cpu", lambda x: x + 3)
    assert operator(x).tolist() == [4, 4]

    @lib.library.custom_op("tests::made", mutates_args=(), device_types="cpu")
    def made(size: int, device: lib.device) -> lib.Tensor:
        return lib.ones(size)

    assert made(2, lib.device("cpu")).tolist() == [1, 1]


@LIBRARIES
def test_tensors_without_values(lib: Any) -> None:
    operator = sine(lib)
    x = lib.ones(2, device="meta")
    with pytest.raises(RuntimeError, match="no fake impl registered"):
        operator(x)

    @lib.library.register_fake("tests::sine")
    def fake(x: Any, factor: float = 2.0, *, shift: float = 0.0) -> Any:
        return lib.empty_like(x)

    assert operator(x).shape == (2,)
    operator.register_fake(lambda x, factor=2.0, *, shift=0.0: x.new_empty(3))
    assert operator(x).shape == (3,)


@LIBRARIES
def test_refused_functions(lib: Any) -> None:
    make = lib.library.custom_op
    tensor = lib.Tensor

    def bare(x):  # type: ignore[no-untyped-def]
        return x

    def starred(*x: tensor) -> tensor:
        return x[0]

    def without_a_result(x: tensor):  # type: ignore[no-untyped-def]
        return x

    def good(x: tensor) -> tensor:
        return x

    for function in (bare, starred, without_a_result):
        with pytest.raises(ValueError):
            make("tests::refused", function, mutates_args=())
    for options in (
        {"mutates_args": {"y"}},
        {"mutates_args": "x"},
        {"mutates_args": (), "schema": "(Tensor(a!) x) -> Tensor"},
    ):
        with pytest.raises(ValueError):
            make("tests::refused", good, **options)
    with pytest.raises(ValueError):
        make("refused", good, mutates_args=())
    with pytest.raises(RuntimeError):
        lib.library.register_fake("tests::nowhere", good)
    make("tests::described", bare, mutates_args=(), schema="(Tensor x) -> Tensor")
    with pytest.raises(RuntimeError, match=r"(?i)the output of "):
        make("tests::same", good, mutates_args=())(lib.ones(2))


def test_in_compiled_functions_and_maps() -> None:
    @metaop.library.custom_op("tests::cubed", mutates_args=())
    def operator(x: metaop.Tensor) -> metaop.Tensor:
        return x**3

    operator.register_autograd(
        lambda ctx, gradient: gradient * 3 * ctx.saved_tensors[0] ** 2,
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    x = metaop.tensor([1.0, 2.0], requires_grad=True)
    step = metaop.jit(lambda x: metaop.autograd.grad(operator(x).sum(), x)[0])
    assert [step(x).tolist() for _ in range(3)] == [[3, 12]] * 3
    assert metaop.vmap(operator)(metaop.tensor([[1.0], [2.0]])).tolist() == [[1], [8]]
    assert metaop.func.grad(lambda x: operator(x).sum())(x.detach()).tolist() == [3, 12]
