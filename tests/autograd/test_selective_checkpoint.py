"""Checkpoints that keep the results of chosen operators."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import metaop
from metaop import nn
from metaop.unified_graph.recording import watched
from metaop.utils.checkpoint import (
    CheckpointPolicy,
    SelectiveCheckpointContext,
    checkpoint,
    create_selective_checkpoint_contexts,
    set_checkpoint_debug_enabled,
    set_checkpoint_early_stop,
)

torch = pytest.importorskip("torch")

NET = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 4), nn.LayerNorm(4))
X = metaop.randn(3, 4)


def body(x: Any) -> Any:
    return (NET(x) * x).softmax(-1).max(1)[0]


def gradients(policy: Any = None, read: bool = False) -> list[np.ndarray]:
    x = X.clone().requires_grad_()
    NET.zero_grad()
    keep = partial(create_selective_checkpoint_contexts, policy)
    result = body(x) if policy is None else kept(body, x, keep)
    if read:
        result.tolist()
    result.sum().backward()
    return [x.grad.numpy(), *(one.grad.numpy() for one in NET.parameters())]


def kept(function: Callable[[Any], Any], x: Any, keep: Any, **options: Any) -> Any:
    return checkpoint(function, x, use_reentrant=False, context_fn=keep, **options)


def every_other() -> Callable[..., CheckpointPolicy]:
    seen = []

    def policy(context: Any, op: str, *args: Any) -> CheckpointPolicy:
        seen.append(op)
        return CheckpointPolicy(len(seen) % 2 * 2)

    return policy


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize(
    "policy",
    [
        ["linear"],
        ["layer_norm", "softmax", "extreme_with_index"],
        [],
        lambda context, op, *args: op != "gelu",
        lambda context, op, *args: CheckpointPolicy.MUST_CPU_OFFLOAD,
        every_other(),
    ],
)
def test_gradients(policy: Any, read: bool) -> None:
    for one, other in zip(gradients(policy, read), gradients(), strict=True):
        np.testing.assert_allclose(one, other, 1e-5, 1e-6)


def test_only_what_was_not_kept_is_computed_again() -> None:
    again = []

    class Noting:
        def __enter__(self) -> None:
            self.before = watched.locations, watched.on_record
            watched.locations, watched.on_record = True, again.append

        def __exit__(self, *exception: object) -> None:
            watched.locations, watched.on_record = self.before

    class Both:
        def __init__(self, inner: Any) -> None:
            self.outer, self.inner = Noting(), inner

        def __enter__(self) -> None:
            self.outer.__enter__()
            self.inner.__enter__()

        def __exit__(self, *exception: object) -> None:
            self.inner.__exit__(*exception)
            self.outer.__exit__(*exception)

    def contexts() -> Any:
        first, second = create_selective_checkpoint_contexts(["linear", "extreme_with_index"])
        return first, Both(second)

    x = X.clone().requires_grad_()
    kept(body, x, contexts).sum().backward()
    computed = {call.signature.composite.name: call.buffer is not None for call in again}
    assert computed["linear"] and computed["extreme_with_index"]
    assert not computed["gelu"] and not computed["softmax"]


def test_noise_that_is_kept() -> None:
    for names, is_same in ((["normal"], True), ([], False)):
        x = metaop.ones(8, requires_grad=True)
        keep = partial(create_selective_checkpoint_contexts, names)
        total = kept(lambda x: (x * metaop.randn(8)).sum(), x, keep, preserve_rng_state=False)
        value = total.item()
        total.backward()
        assert (abs(value - x.grad.sum().item()) < 1e-5) == is_same


def test_what_a_policy_is_told() -> None:
    told = []

    def policy(context: SelectiveCheckpointContext, op: str, *args: Any) -> bool:
        outputs = context.op_output
        shapes = [tuple(one.shape) for one in outputs] if isinstance(outputs, tuple) else None
        told.append((op, shapes or tuple(outputs.shape), tuple(args[0].shape)))
        assert not context.is_recompute
        return False

    x = X.clone().requires_grad_()
    keep = partial(create_selective_checkpoint_contexts, policy)
    kept(lambda x: (x @ x.mT).exp().max(1)[0], x, keep).sum().backward()
    assert [one for one in told if one[0] in ("matmul", "exp", "extreme_with_index")] == [
        ("matmul", (3, 3), (3, 4)),
        ("exp", (3, 3), (3, 3)),
        ("extreme_with_index", [(3,), (3,)], (3, 3)),
    ]


def test_a_second_backward_pass_is_refused() -> None:
    x = X.clone().requires_grad_()
    result = kept(body, x, partial(create_selective_checkpoint_contexts, ["linear"])).sum()
    result.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="backward an extra time"):
        result.backward()


def test_other_operators_in_backward_are_refused() -> None:
    runs = []

    def changing(x: Any) -> Any:
        runs.append(1)
        return x.exp() if len(runs) == 1 else x.exp().sin()

    x = X.clone().requires_grad_()
    result = kept(changing, x, partial(create_selective_checkpoint_contexts, ["exp"])).sum()
    with pytest.raises(RuntimeError, match="sin"):
        result.backward()


@pytest.mark.parametrize("allow", [False, True])
def test_results_that_were_written_since(allow: bool) -> None:
    def writing(x: Any) -> Any:
        product = x @ x.mT
        product.mul_(2)
        return product.exp().sum()

    x, plain = X.clone().requires_grad_(), X.clone().requires_grad_()
    keep = partial(create_selective_checkpoint_contexts, ["matmul"], allow)
    result = kept(writing, x, keep)
    if not allow:
        with pytest.raises(RuntimeError, match="was written by mul_"):
            result.backward()
        return
    result.backward()
    writing(plain).backward()
    np.testing.assert_allclose(x.grad.numpy(), plain.grad.numpy(), 1e-5)


def test_lists_of_other_things_are_refused() -> None:
    with pytest.raises(TypeError, match="named by strings"):
        create_selective_checkpoint_contexts([metaop.exp])


def test_policies_have_pytorchs_numbers() -> None:
    theirs = torch.utils.checkpoint.CheckpointPolicy
    assert {one.name: one.value for one in CheckpointPolicy} == {
        one.name: one.value for one in theirs
    }


def test_switches_of_bookkeeping() -> None:
    for switch, value in ((set_checkpoint_early_stop, False), (set_checkpoint_debug_enabled, None)):
        x = X.clone().requires_grad_()
        with switch(value):
            result = checkpoint(body, x, use_reentrant=False)
        result.sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), gradients()[0], 1e-5, 1e-6)
        with pytest.raises(ValueError), switch("on"):
            pass


def test_threads_of_backward() -> None:
    x = metaop.ones(2, requires_grad=True)

    @metaop.autograd.set_multithreading_enabled(False)
    def back() -> None:
        x.sum().backward()

    back()
    with metaop.autograd.set_multithreading_enabled(True).clone() as nothing:
        x.sum().backward()
    assert nothing is None and x.grad.tolist() == [2.0, 2.0]
    with pytest.raises(TypeError):
        metaop.autograd.set_multithreading_enabled(1)


def test_keywords_of_factories() -> None:
    for library in (metaop, torch):
        kind = library.float64
        take = library.nn.factory_kwargs
        assert take(None) == {}
        assert take({"dtype": kind, "factory_kwargs": {"device": "cpu"}}) == {
            "dtype": kind,
            "device": "cpu",
        }
        for wrong in ({"size": 3}, {"dtype": kind, "factory_kwargs": {"dtype": kind}}):
            with pytest.raises(TypeError):
                take(wrong)
