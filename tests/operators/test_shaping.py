"""Views and rearranging copies against PyTorch: values, strides, errors and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaop

torch = pytest.importorskip("torch")

# What is done to a tensor of shape (2, 3, 4, 6), in the words that both libraries share.
VIEWS: dict[str, Callable[[Any], Any]] = {
    "reshape": lambda x: x.reshape(6, -1),
    "reshape of a transpose": lambda x: x.transpose(1, 2).reshape(2, 12, 6),
    "view": lambda x: x.view(2, 3, 2, 12),
    "view of a slice": lambda x: x[:, 1:].view(2, 2, 24),
    "view_as": lambda x: x.view_as(x[..., :6].reshape(6, 4, 6)),
    "flatten": lambda x: x.flatten(1, 2),
    "ravel": lambda x: x.ravel(),
    "unflatten": lambda x: x.unflatten(3, (2, -1)),
    "squeeze": lambda x: x[:1].squeeze(),
    "squeeze dim": lambda x: x[:1, :, :1].squeeze((0, 2)),
    "squeeze nothing": lambda x: x.squeeze(1),
    "unsqueeze": lambda x: x.unsqueeze(-2),
    "transpose": lambda x: x.transpose(-1, 1),
    "swapaxes": lambda x: x.swapaxes(0, 2),
    "permute": lambda x: x.permute(2, 0, -1, 1),
    "t": lambda x: x[0, 0].t(),
    "T": lambda x: x[0, 0].T,
    "mT": lambda x: x.mT,
    "movedim": lambda x: x.movedim((0, 2), (-1, 0)),
    "expand": lambda x: x[:, :1].expand(5, -1, 3, 4, 6),
    "broadcast_to": lambda x: x[0, :, :1].broadcast_to((2, 3, 4, 6)),
    "narrow": lambda x: x.narrow(2, -3, 2),
    "select": lambda x: x.select(1, -1),
    "diagonal": lambda x: x.diagonal(),
    "diagonal offset": lambda x: x.diagonal(-2, 2, 3),
    "diagonal above": lambda x: x.diagonal(3, -2, -1),
    "unfold": lambda x: x.unfold(3, 3, 2),
    "as_strided": lambda x: x.as_strided((3, 5), (7, 2), 4),
    "detach": lambda x: x.detach(),
    "chunk": lambda x: x.chunk(4, 3)[1],
    "split": lambda x: x.split(4, -1)[1],
    "split sizes": lambda x: x.split([1, 3], 2)[1],
    "tensor_split": lambda x: x.tensor_split(4, 3)[2],
    "tensor_split at": lambda x: x.tensor_split((1, 4), 3)[1],
    "unbind": lambda x: x.unbind(2)[3],
    "hsplit": lambda x: x.hsplit(3)[1],
    "index": lambda x: x[1, ..., None, ::2],
    "index steps": lambda x: x[:, -2:, 1:4:2, :-1],
}
COPIES: dict[str, Callable[[Any], Any]] = {
    "clone": lambda x: x.clone(),
    "contiguous": lambda x: x.transpose(0, 3).contiguous(),
    "repeat": lambda x: x.repeat(2, 1, 1, 3, 1),
    "tile": lambda x: x.tile(2, 2),
    "repeat_interleave": lambda x: x.repeat_interleave(3, 1),
    "repeat_interleave flat": lambda x: x.repeat_interleave(2),
    "flip": lambda x: x.flip(0, -1),
    "fliplr": lambda x: x.fliplr(),
    "roll": lambda x: x.roll((1, -5), (2, 3)),
    "roll flat": lambda x: x.roll(-7),
    "rot90": lambda x: x.rot90(1, (2, 3)),
    "rot90 back": lambda x: x.rot90(3, (1, 3)),
    "rot90 twice": lambda x: x.rot90(2, (1, 3)),
    "tril": lambda x: x.tril(1),
    "triu": lambda x: x.triu(-2),
    "diag": lambda x: x[0, 0].diag(1),
    "diag of a vector": lambda x: x[0, 0, 0].diag(-2),
    "diag_embed": lambda x: x.diag_embed(1, 0, 2),
    "diagflat": lambda x: x[0, 0].diagflat(),
}


def pair(shape: tuple[int, ...], seed: int = 0) -> tuple[Any, Any]:
    """The same random numbers as a tensor of each library, tracking gradients."""
    values = np.random.default_rng(seed).standard_normal(shape)
    return metaop.tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)


@pytest.mark.parametrize("name", [*VIEWS, *COPIES])
def test_value_and_gradient(name: str) -> None:
    function = {**VIEWS, **COPIES}[name]
    ours, theirs = pair((2, 3, 4, 6))
    result, expected = function(ours), function(theirs)
    assert tuple(result.shape) == tuple(expected.shape)
    assert np.array_equal(result.detach().numpy(), expected.detach().numpy())
    if expected.requires_grad:
        weights = np.random.default_rng(1).standard_normal(tuple(expected.shape))
        (result * metaop.tensor(weights)).sum().backward()
        (expected * torch.tensor(weights)).sum().backward()
        np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-12)


@pytest.mark.parametrize("name", VIEWS)
def test_strides_and_aliasing(name: str) -> None:
    ours, theirs = (x.detach().clone() for x in pair((2, 3, 4, 6)))
    result, expected = VIEWS[name](ours), VIEWS[name](theirs)
    assert result.stride() == expected.stride()
    assert result.storage_offset() == expected.storage_offset()
    assert result.is_contiguous() == expected.is_contiguous()
    if name not in ("expand", "broadcast_to"):
        result.fill_(7.0)
        expected.fill_(7.0)
        assert np.array_equal(ours.numpy(), theirs.numpy())
    ours.mul_(2.0)
    theirs.mul_(2.0)
    assert np.array_equal(result.numpy(), expected.numpy())


@pytest.mark.parametrize("name", COPIES)
def test_copies_have_their_own_storage(name: str) -> None:
    ours = pair((2, 3, 4, 6))[0].detach()
    result = COPIES[name](ours)
    before = ours.numpy().copy()
    result.fill_(3.0)
    assert np.array_equal(ours.numpy(), before)


ERRORS: dict[str, Callable[[Any], Any]] = {
    "reshape": lambda x: x.reshape(5, 5),
    "two unknown sizes": lambda x: x.reshape(-1, -1),
    "view": lambda x: x.transpose(1, 2).view(-1),
    "dim": lambda x: x.unsqueeze(6),
    "transpose": lambda x: x.transpose(0, 4),
    "permute": lambda x: x.permute(0, 1),
    "permute twice": lambda x: x.permute(0, 1, 1, 2),
    "expand": lambda x: x.expand(2, 5, 4, 6),
    "narrow": lambda x: x.narrow(1, 2, 2),
    "select": lambda x: x.select(1, 3),
    "split": lambda x: x.split([1, 1], 1),
    "unfold": lambda x: x.unfold(1, 4, 1),
    "index": lambda x: x[2],
    "too many indices": lambda x: x[0, 0, 0, 0, 0],
    "t": lambda x: x.t(),
    "write expanded": lambda x: x[:, :1].expand(2, 3, 4, 6).mul_(2.0),
    "repeat": lambda x: x.repeat(2),
    "roll": lambda x: x.roll((1, 2), (0,)),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_those_of_pytorch(name: str) -> None:
    ours, theirs = (x.detach() for x in pair((2, 3, 4, 6)))
    with pytest.raises((RuntimeError, IndexError, ValueError)) as expected:
        ERRORS[name](theirs)
    with pytest.raises(expected.type):
        ERRORS[name](ours)


def test_reshape_views_where_a_view_exists() -> None:
    x = metaop.arange(24).reshape(4, 6)
    x.t().reshape(2, 3, 4).fill_(0)
    assert x.tolist() == np.zeros((4, 6)).tolist()
    x = metaop.arange(24).reshape(4, 6)
    x.t().reshape(24).fill_(0)
    assert x.tolist() == np.arange(24).reshape(4, 6).tolist()


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "float16", "float32"])
def test_types(dtype: str) -> None:
    values = np.random.default_rng(0).integers(0, 2, (3, 4)).astype(dtype)
    ours, theirs = metaop.tensor(values), torch.tensor(values)
    for function in (lambda x: x.tril(), lambda x: x.diag_embed(), lambda x: x.t().flip(0)):
        result, expected = function(ours), function(theirs)
        assert str(result.dtype).split(".")[1] == str(expected.dtype).split(".")[1]
        assert np.array_equal(result.numpy(), expected.numpy())


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0, 2)])
def test_empty_tensors(shape: tuple[int, ...]) -> None:
    ours, theirs = metaop.zeros(shape), torch.zeros(shape)
    for function in (
        lambda x: x.flatten(),
        lambda x: x.unsqueeze(0),
        lambda x: x.transpose(0, -1),
        lambda x: x.flip(0),
        lambda x: x.repeat(2, *(1,) * len(shape)),
        lambda x: x[..., :1],
    ):
        assert tuple(function(ours).shape) == tuple(function(theirs).shape)
        assert function(ours).numpy().shape == tuple(function(theirs).shape)


def test_shape_changes_in_place() -> None:
    for lib in (metaop, torch):
        base = lib.arange(6.0)
        x = base[1:5]
        assert x.unsqueeze_(0) is x and tuple(x.shape) == (1, 4)
        x.t_().mul_(2)
        assert base.tolist() == [0.0, 2.0, 4.0, 6.0, 8.0, 5.0]
        x.squeeze_()
        assert x.tolist() == [2.0, 4.0, 6.0, 8.0]
        own = lib.ones(2, 3)
        own.transpose_(0, 1).add_(1)
        assert tuple(own.shape) == (3, 2) and own.sum().item() == 12.0
        with pytest.raises(RuntimeError, match="leaf"):
            lib.ones(2, requires_grad=True).unsqueeze_(0)


def test_sums_and_multiples_of_shapes_are_shapes() -> None:
    torch = pytest.importorskip("torch")
    for compute in (
        lambda s: s + s,
        lambda s: s + (1,),
        lambda s: (1, *s[:0]) + s,
        lambda s: s * 2,
        lambda s: 2 * s,
    ):
        ours, theirs = compute(metaop.ones(2, 3).shape), compute(torch.ones(2, 3).shape)
        assert type(ours) is metaop.Size and tuple(ours) == tuple(theirs)
        assert ours.numel() == theirs.numel()
    for refused in (lambda s: s + [1], lambda s: [1] + s, lambda s: s * 1.5, lambda s: "a" + s):
        with pytest.raises(TypeError):
            refused(metaop.ones(2, 3).shape)


def test_sizes_and_dimensions_by_their_names() -> None:
    def made(framework: Any) -> list:
        x = framework.arange(24.0).reshape(shape=(2, 3, 4))
        pieces = (
            *x.split(split_size=2, dim=1),
            *x.split(split_size=[1, 2], dim=1),
            *framework.split(x, split_size_or_sections=[1, 1]),
            *x.unsafe_split(split_size=1),
            *x.tensor_split(sections=3, dim=2),
            *x.tensor_split(indices=(1, 2), dim=2),
            *x.tensor_split(tensor_indices_or_sections=framework.tensor(2), dim=2),
            *x.hsplit(sections=3),
            *x.hsplit(indices=(1,)),
            *x.vsplit(sections=2),
            *x.dsplit(indices=(1,)),
        )
        return [
            *pieces,
            x.view(size=(6, 4)),
            x.view(dtype=framework.int32),
            x.permute(dims=(1, 0, 2)),
            framework.permute(x, dims=(2, 1, 0)),
            x[:, :1].expand(size=(2, 5, 4)),
            x.repeat(repeats=(1, 2, 1)),
            x.tile(dims=(2,)),
            framework.tile(x, dims=(2, 1, 1)),
            framework.reshape(x, shape=(4, -1)),
            x.sum_to_size(size=(1, 3, 4)),
            x.new_zeros(size=(2, 3)),
            x.new_ones(size=(2, 3), dtype=framework.int64),
            x.new_empty(size=(0, 3)),
            framework.arange(end=3),
        ]

    for actual, expected in zip(made(metaop), made(torch), strict=True):
        assert actual.dtype.name == str(expected.dtype).removeprefix("torch.")
        np.testing.assert_array_equal(actual.numpy(), expected.numpy())
