"""The state of a model as `torch.distributed.checkpoint.state_dict` takes it and puts it back."""

from __future__ import annotations

from typing import Any

import pytest

import metaop
from metaop.distributed import state_dict as ours
from metaop.errors import UnsupportedError

torch = pytest.importorskip("torch")
theirs = pytest.importorskip("torch.distributed.checkpoint.state_dict")


def network(library: Any) -> Any:
    nn = library.nn
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    model[0].weight.requires_grad_(False)
    return model


@pytest.mark.parametrize(
    "options", [{}, {"full_state_dict": True}, {"ignore_frozen_params": True, "cpu_offload": True}]
)
def test_the_same_names_are_taken(options: dict[str, bool]) -> None:
    found = ours.get_model_state_dict(network(metaop), options=ours.StateDictOptions(**options))
    expected = theirs.get_model_state_dict(
        network(torch), options=theirs.StateDictOptions(**options)
    )
    assert list(found) == list(expected)


def test_wrappers_are_left_out() -> None:
    model = network(metaop)
    names = list(ours.get_model_state_dict(metaop.nn.DataParallel(model)))
    assert names == list(model.state_dict())


@pytest.mark.parametrize("options", [None, {"full_state_dict": True}])
def test_a_model_without_memory_takes_the_tensors(options: dict[str, bool] | None) -> None:
    source = network(metaop).eval()
    with metaop.device("meta"):
        empty = network(metaop).eval()
    chosen = None if options is None else ours.StateDictOptions(**options)
    keys = ours.set_model_state_dict(empty, source.state_dict(), options=chosen)
    assert not keys.missing_keys
    x = metaop.ones(2, 2)
    assert empty(x).tolist() == source(x).tolist()


def test_what_is_missing_is_told_or_raised() -> None:
    for library, module in ((metaop, ours), (torch, theirs)):
        state = network(library).state_dict()
        del state["2.bias"]
        lax = module.StateDictOptions(strict=False)
        keys = module.set_model_state_dict(network(library), state, options=lax)
        assert keys.missing_keys == ["2.bias"]
        with pytest.raises(RuntimeError, match="2.bias"):
            module.set_model_state_dict(network(library), state)
    with pytest.raises(UnsupportedError, match="broadcast_from_rank0"):
        many = ours.StateDictOptions(broadcast_from_rank0=True)
        ours.set_model_state_dict(network(metaop), {}, options=many)
