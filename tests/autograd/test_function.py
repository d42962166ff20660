"""User-written gradients: `autograd.Function` in all its styles, against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import metaop
from metaop.autograd import gradcheck, gradgradcheck

torch = pytest.importorskip("torch")

LIBRARIES = [metaop, torch]


def functions(lib: Any) -> dict[str, Any]:
    """The same user functions for either library."""

    class Cube(lib.autograd.Function):  # type: ignore[name-defined, misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 3 * x**2 * gradient

    class Exponential(lib.autograd.Function):  # type: ignore[name-defined, misc]
        @staticmethod
        def forward(x: Any, scale: float) -> Any:
            return (x * scale).exp()

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.scale = inputs[1]
            ctx.save_for_backward(output)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            (y,) = ctx.saved_tensors
            return gradient * y * ctx.scale, None

    class Pair(lib.autograd.Function):  # type: ignore[name-defined, misc]
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.save_for_backward(x, y)
            largest = (x > y).long()
            ctx.mark_non_differentiable(largest)
            return x * y, largest, x + 2 * y

        @staticmethod
        def backward(ctx: Any, product: Any, _: Any, total: Any) -> Any:
            x, y = ctx.saved_tensors
            assert ctx.needs_input_grad == (True, True)
            return product * y + total, product * x + 2 * total

    return {"cube": Cube, "exponential": Exponential, "pair": Pair}


def test_values_and_gradients() -> None:
    results = []
    for lib in LIBRARIES:
        f = functions(lib)
        x = lib.tensor([0.5, -1.0, 2.0], dtype=lib.float64, requires_grad=True)
        y = f["cube"].apply(x) * f["exponential"].apply(x, 0.5)
        product, largest, total = f["pair"].apply(y, x)
        assert not largest.requires_grad and product.requires_grad
        (product.sum() + total.square().sum()).backward()
        results.append([*y.tolist(), *total.tolist(), *x.grad.tolist()])
    np.testing.assert_allclose(results[0], results[1], rtol=1e-12)


@pytest.mark.parametrize("name", ["cube", "exponential", "pair"])
def test_first_and_second_order(name: str) -> None:
    function = functions(metaop)[name]
    x, y = (metaop.tensor(v, requires_grad=True) for v in np.random.default_rng(0).random((2, 3)))
    inputs = {"cube": (x,), "exponential": (x, 0.7), "pair": (x, y)}[name]
    assert gradcheck(function.apply, inputs)
    assert gradgradcheck(function.apply, inputs)


@pytest.mark.parametrize("materialize", [True, False])
@pytest.mark.parametrize("lib", LIBRARIES, ids=["metaop", "torch"])
def test_missing_cotangents_are_zeros_or_none(lib: Any, materialize: bool) -> None:
    seen: list[Any] = []

    class Two(lib.autograd.Function):  # type: ignore[name-defined, misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.set_materialize_grads(materialize)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx: Any, first: Any, second: Any) -> Any:
            seen.append(None if second is None else second.tolist())
            return first * 2

    x = lib.ones(2, requires_grad=True)
    Two.apply(x)[0].sum().backward()
    assert seen == [[0.0, 0.0] if materialize else None]
    assert x.grad.tolist() == [2.0, 2.0]


def test_once_differentiable() -> None:
    for lib in LIBRARIES:

        class Square(lib.autograd.Function):  # type: ignore[name-defined, misc]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            @lib.autograd.function.once_differentiable
            def backward(ctx: Any, gradient: Any) -> Any:
                return 2 * ctx.saved_tensors[0] * gradient

        x = lib.ones(2, requires_grad=True)
        (g,) = lib.autograd.grad(Square.apply(x).square().sum(), x, create_graph=True)
        assert g.tolist() == [4.0, 4.0]
        with pytest.raises(RuntimeError, match="once_differentiable"):
            g.sum().backward()


def test_saved_tensors_are_checked() -> None:
    for lib in LIBRARIES:
        f = functions(lib)["cube"]
        x = lib.ones(2, requires_grad=True)
        y = x * 1
        z = f.apply(y)
        y.add_(1)
        with pytest.raises(RuntimeError, match="inplace"):
            z.sum().backward()
        z = f.apply(x).sum()
        z.backward()
        with pytest.raises(RuntimeError, match="second time"):
            z.backward()


def test_wrong_gradients_are_errors() -> None:
    for lib in LIBRARIES:

        class Wrong(lib.autograd.Function):  # type: ignore[name-defined, misc]
            @staticmethod
            def forward(ctx: Any, x: Any, kind: str) -> Any:
                ctx.kind = kind
                return x * 2

            @staticmethod
            def backward(ctx: Any, gradient: Any) -> Any:
                return gradient if ctx.kind == "count" else (gradient[:1], None)

        for kind in ("count", "shape"):
            with pytest.raises(RuntimeError):
                Wrong.apply(lib.ones(2, 2, requires_grad=True), kind).sum().backward()


def test_dirty_inputs() -> None:
    for lib in LIBRARIES:

        class Double(lib.autograd.Function):  # type: ignore[name-defined, misc]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                x.mul_(2)
                ctx.mark_dirty(x)
                return x

            @staticmethod
            def backward(ctx: Any, gradient: Any) -> Any:
                return gradient * 2

        x = lib.ones(2, requires_grad=True)
        y = x * 3
        z = Double.apply(y)
        assert z is y and z.tolist() == [6.0, 6.0]
        z.sum().backward()
        assert x.grad.tolist() == [6.0, 6.0]


def test_without_tracking_nothing_is_recorded() -> None:
    x = metaop.ones(2, requires_grad=True)
    with metaop.no_grad():
        assert not functions(metaop)["cube"].apply(x).requires_grad
    assert not functions(metaop)["cube"].apply(metaop.ones(2)).requires_grad


def test_gradcheck_finds_mistakes() -> None:
    class Wrong(metaop.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.sin()

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient * 2

    x = metaop.tensor([0.3, 0.4], dtype=metaop.float64, requires_grad=True)
    with pytest.raises(metaop.autograd.GradcheckError):
        gradcheck(Wrong.apply, (x,))
    assert not gradcheck(Wrong.apply, (x,), raise_exception=False)


def _hooked(lib: Any) -> list[Any]:
    """What hooks on saved tensors see, in their order."""
    log: list[Any] = []

    class Product(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            out = x * y
            ctx.save_for_backward(x, None, y, out)
            log.append("forward")
            return out

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            x, _, y, out = ctx.saved_tensors
            log.append((x.tolist(), y.tolist(), out.tolist()))
            return gradient * y, gradient * x

    def pack(tensor: Any) -> Any:
        log.append(("pack", tensor is x, tensor.tolist()))
        return tensor.detach() * 2

    def unpack(packed: Any) -> Any:
        log.append("unpack")
        return packed

    hooks = lib.autograd.graph
    x, y = lib.ones(2, requires_grad=True), lib.full((2,), 3.0)
    with hooks.saved_tensors_hooks(lambda t: log.append("outer"), unpack):
        with hooks.saved_tensors_hooks(pack, unpack):
            out = Product.apply(x, y)
        with lib.no_grad():
            Product.apply(x, y)
    out.sum().backward()
    Product.apply(x, y)
    log.append(x.grad.tolist())
    with hooks.saved_tensors_hooks(lambda t: 3, lambda t: t):
        wrong = Product.apply(x, y)
    with pytest.raises(TypeError, match="expected to be a Tensor but got result of type"):
        wrong.sum().backward()
    refused = pytest.raises(RuntimeError, match="not here")
    with hooks.disable_saved_tensors_hooks("not here"), refused:
        hooks.saved_tensors_hooks(pack, unpack).__enter__()
    with hooks.save_on_cpu(pin_memory=True):
        (lib.ones(1, requires_grad=True) ** 2).backward()
    return log


def test_saved_tensors_go_through_hooks() -> None:
    torch = pytest.importorskip("torch")
    with pytest.warns(UserWarning, match="only what ctx.save_for_backward saves"):
        found = _hooked(metaop)
    assert found == _hooked(torch)
