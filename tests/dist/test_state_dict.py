"""The state of a model as `torch.distributed.checkpoint.state_dict` takes it and puts it back."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

import metaop
from metaop.distributed import state_dict as ours
from metaop.errors import ArgumentError

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


def trained(library: Any) -> tuple[Any, Any]:
    model = network(library)
    rates = [{"params": model[0].parameters()}, {"params": model[1:].parameters(), "lr": 0.5}]
    return model, library.optim.SGD(rates, lr=0.1, momentum=0.9)


def test_states_of_optimizers_have_the_names_of_parameters() -> None:
    taken = []
    for library, module in ((metaop, ours), (torch, theirs)):
        model, optimizer = trained(library)
        _, state = module.get_state_dict(model, optimizer)
        assert set(state["state"]["2.bias"]) == {"momentum_buffer"}
        groups = state["param_groups"]
        taken.append([(sorted(one["params"]), one["lr"], one["momentum"]) for one in groups])
    assert taken[0] == taken[1]


def test_optimizers_go_on_from_a_state_in_other_groups() -> None:
    x = metaop.ones(4, 2)
    results = []
    model, optimizer = trained(metaop)
    model(x).sum().backward()
    optimizer.step()
    kept = deepcopy(ours.get_state_dict(model, [optimizer]))
    again = network(metaop)
    other = metaop.optim.SGD(again.parameters(), lr=0.1, momentum=0.9)
    ours.set_state_dict(again, other, model_state_dict=kept[0], optim_state_dict=kept[1])
    for group in other.param_groups:
        group["lr"] = 0.1
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    for net, rule in ((model, optimizer), (again, other)):
        rule.zero_grad()
        net(x).sum().backward()
        rule.step()
        results.append([value.tolist() for value in net.state_dict().values()])
    assert results[0] == results[1]


def test_a_state_without_a_parameter_is_refused() -> None:
    model, optimizer = trained(metaop)
    _, state = ours.get_state_dict(model, optimizer)
    state["param_groups"][1]["params"].remove("2.bias")
    with pytest.raises(ArgumentError, match=r"nothing of 2\.bias"):
        ours.set_optimizer_state_dict(model, optimizer, state)
    with pytest.raises(ArgumentError, match="does not have"):
        ours.get_optimizer_state_dict(network(metaop), optimizer)
