"""Making tensors where they are to lie: the values and random numbers of one device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaop
from metaop import nn
from metaop.dist.placement import Placement
from metaop.dist.sbp import BROADCAST, PARTIAL, Sbp, Split
from metaop.distributed import global_mode
from metaop.errors import ArgumentError

ROW = Placement("cpu", range(3), simulate=True)
MESH = Placement("cpu", [[0, 1], [2, 3]], simulate=True)
ARRAY = np.arange(35.0).reshape(7, 5)
like = metaop.tensor(ARRAY)

MAKERS: dict[str, Callable[..., Any]] = {
    "zeros": lambda **o: metaop.zeros(7, 5, **o),
    "ones": lambda **o: metaop.ones((7, 5), dtype=metaop.float64, **o),
    "full": lambda **o: metaop.full((7, 5), 2.5, **o),
    "empty": lambda **o: metaop.empty(7, 5, **o).fill_(3),
    "arange": lambda **o: metaop.arange(7, **o),
    "arange of floats": lambda **o: metaop.arange(0.5, 7.5, 0.5, **o),
    "linspace": lambda **o: metaop.linspace(-1, 1, 9, **o),
    "logspace": lambda **o: metaop.logspace(0, 1, 9, **o),
    "eye": lambda **o: metaop.eye(7, 5, **o),
    "rand": lambda **o: metaop.rand(7, 5, **o),
    "randn": lambda **o: metaop.randn(7, 5, dtype=metaop.float64, **o),
    "randint": lambda **o: metaop.randint(-3, 9, (7, 5), **o),
    "randperm": lambda **o: metaop.randperm(9, **o),
    "normal": lambda **o: metaop.normal(1.0, 2.0, (7, 5), **o),
    "zeros_like": lambda **o: metaop.zeros_like(like, **o),
    "ones_like": lambda **o: metaop.ones_like(like, **o),
    "full_like": lambda **o: metaop.full_like(like, 3, **o),
    "empty_like": lambda **o: metaop.empty_like(like, **o).fill_(1),
    "rand_like": lambda **o: metaop.rand_like(like, **o),
    "randn_like": lambda **o: metaop.randn_like(like, **o),
    "randint_like": lambda **o: metaop.randint_like(like, 0, 4, **o),
    "new_zeros": lambda **o: like.new_zeros(4, 3, **o),
    "new_full": lambda **o: like.new_full((4, 3), 7, **o),
    "new_tensor": lambda **o: like.new_tensor([1, 2, 3], **o),
    "tensor": lambda **o: metaop.tensor(ARRAY, **o),
    "tensor of a tensor": lambda **o: metaop.tensor(like, **o),
    "as_tensor": lambda **o: metaop.as_tensor([[1, 2]] * 4, **o),
    "from_numpy": lambda **o: metaop.from_numpy(ARRAY, **o),
    "frombuffer": lambda **o: metaop.frombuffer(bytearray(9), dtype=metaop.uint8, **o),
    "from_file": lambda **o: metaop.from_file(__file__, size=9, dtype=metaop.uint8, **o),
    "tril_indices": lambda **o: metaop.tril_indices(4, 4, **o),
}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("state", [BROADCAST, Split(0), PARTIAL], ids=repr)
def test_a_placement_gives_the_values_of_one_device(name: str, state: Sbp) -> None:
    if name == "tril_indices" and state == Split(0):
        state = Split(1)  # Its first dimension has two indices: of rows and of columns.
    metaop.manual_seed(3)
    expected = MAKERS[name]()
    metaop.manual_seed(3)
    found = MAKERS[name](placement=ROW, sbp=state)
    assert found.placement is ROW
    assert found.sbp == state or name.startswith("empty")
    assert found.dtype is expected.dtype
    np.testing.assert_array_equal(found.full_tensor().numpy(), expected.numpy())


def test_no_rank_makes_more_than_its_part() -> None:
    text = metaop.inspect.graph(metaop.randn(9, 4, placement=ROW, sbp=Split(0)))
    assert "reshard to S0" in text
    before = MESH.world.sent
    made = metaop.randn(9, 4, placement=MESH, sbp=(Split(0), Split(1)))
    assert made.sbp == (Split(0), Split(1))
    assert MESH.world.sent == before


def test_tensors_that_track_gradients_are_leaves() -> None:
    weight = metaop.randn(6, 4, placement=ROW, sbp=Split(1), requires_grad=True)
    (weight * weight).sum().backward()
    assert weight.is_leaf
    np.testing.assert_allclose(
        weight.grad.full_tensor().numpy(), 2 * weight.full_tensor().detach().numpy()
    )


def network() -> nn.Module:
    metaop.manual_seed(0)
    parts = (nn.Linear(6, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.LSTM(8, 3), nn.Embedding(9, 4))
    return nn.Sequential(*parts)


def test_modules_are_built_where_the_mode_says() -> None:
    with global_mode(True, placement=ROW, sbp=Split(0)):
        spread = network()
        own = metaop.zeros(3, device="cpu")
        following = metaop.ones_like(own)
        with metaop.dist.global_mode(False):
            inner = metaop.zeros(3)
    outside = metaop.zeros(3)
    assert all(tensor.is_local for tensor in (own, following, inner, outside))
    for found, expected in zip(spread.state_dict().values(), network().state_dict().values()):
        long = expected.ndim and expected.shape[0] >= 3
        assert found.sbp == (Split(0) if long else BROADCAST)
        np.testing.assert_array_equal(found.full_tensor().numpy(), expected.numpy())


def test_the_mode_ends_with_an_error() -> None:
    with pytest.raises(KeyError), global_mode(True, placement=ROW, sbp=BROADCAST):
        raise KeyError
    assert metaop.zeros(2).is_local


def test_a_module_lies_as_its_names_say() -> None:
    rules = {"0.weight": Split(1), "*.weight": Split(0)}
    layers = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 4)).to_global(ROW, rules)
    lies = [value.sbp for value in layers.state_dict().values()]
    assert lies == [Split(1), BROADCAST, Split(0), BROADCAST]
    layers.to_global(sbp=lambda name, tensor: Split(0) if tensor.ndim == 1 else BROADCAST)
    lies = [value.sbp for value in layers.state_dict().values()]
    assert lies == [BROADCAST, Split(0), BROADCAST, Split(0)]
    with pytest.raises(ArgumentError, match="no parameter or buffer matches it"):
        layers.to_global(ROW, {"2.weight": Split(0)})


def test_what_is_missing_is_said() -> None:
    for options in (
        {"placement": ROW},
        {"sbp": BROADCAST},
        {"placement": ROW, "sbp": Split(1)},
        {"placement": ROW, "sbp": BROADCAST, "device": "cpu"},
    ):
        with pytest.raises(ArgumentError, match="fix: "):
            metaop.zeros(3, **options)
    assert metaop.zeros(2, placement=ROW, sbp=Split(0)).full_tensor().tolist() == [0, 0]
    with pytest.raises(ArgumentError, match="needs placement and sbp"):
        global_mode(True)
    for name in ("sbp", "placement"):
        with pytest.raises(ArgumentError, match="is not a global tensor"):
            getattr(metaop.ones(3), name)
