"""What a hook wants done at the end of a backward pass is done once, with all gradients known."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import metaop
from metaop import nn
from metaop.differentiation.tape import running
from metaop.utils.checkpoint import checkpoint

Known = list[list[bool]]


def _watched(layers: nn.Sequential) -> Known:
    """At the end of each pass, which parameters have a gradient."""
    known: Known = []
    parameters = list(layers.parameters())

    def done() -> None:
        known.append([parameter.grad is not None for parameter in parameters])

    def reached(parameter: Any) -> None:
        waiting = running.passes[0].at_end
        if done not in waiting:
            waiting.append(done)

    for parameter in parameters:
        parameter.register_post_accumulate_grad_hook(reached)
    return known


def whole(layers: nn.Sequential) -> None:
    layers(metaop.ones(3, 2)).sum().backward()


def checkpointed(layers: nn.Sequential) -> None:
    x = metaop.ones(3, 2, requires_grad=True)
    layers[1](checkpoint(layers[0], x, use_reentrant=False)).sum().backward()


def for_chosen(layers: nn.Sequential) -> None:
    layers(metaop.ones(3, 2)).sum().backward(inputs=list(layers.parameters()))


def with_a_pass_in_a_hook(layers: nn.Sequential) -> None:
    hidden = layers[0](metaop.ones(3, 2))

    def another(gradient: Any) -> None:
        with metaop.enable_grad():
            (metaop.ones(1, requires_grad=True) * 2).backward()

    hidden.register_hook(another)
    layers[1](hidden).sum().backward()


@pytest.mark.parametrize("program", [whole, checkpointed, for_chosen, with_a_pass_in_a_hook])
def test_all_gradients_are_known(program: Callable[[nn.Sequential], None]) -> None:
    layers = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    known = _watched(layers)
    program(layers)
    assert known == [[True] * 4]


def test_what_a_failed_pass_wanted_is_not_done_later() -> None:
    layers = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    known = _watched(layers)
    hidden = layers[0](metaop.ones(3, 2))

    def failing(gradient: Any) -> None:
        raise KeyError("failed")

    hidden.register_hook(failing)
    with pytest.raises(KeyError):
        layers[1](hidden).sum().backward()
    metaop.ones(1, requires_grad=True).backward()
    assert known == []


def test_passes_of_other_threads_are_apart() -> None:
    layers = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    known = _watched(layers)
    hidden = layers[0](metaop.ones(3, 2))

    def elsewhere(gradient: Any) -> None:
        thread = threading.Thread(target=whole, args=(nn.Sequential(nn.Linear(2, 2)),))
        thread.start()
        thread.join()

    hidden.register_hook(elsewhere)
    layers[1](hidden).sum().backward()
    assert known == [[True] * 4]
