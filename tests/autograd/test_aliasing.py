"""Views and writes in random programs: every tensor and every gradient as in PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaop

torch = pytest.importorskip("torch")


class Program:
    """The same random program in both libraries: views of views, writes through any of them."""

    def __init__(self, seed: int, tracked: bool) -> None:
        self.rng = np.random.default_rng(seed)
        self.tracked = tracked
        values = self.rng.standard_normal((4, 6))
        self.leaves = [
            metaop.tensor(values, requires_grad=tracked),
            torch.tensor(values, requires_grad=tracked),
        ]
        self.tensors = [[leaf * 1.5 for leaf in self.leaves]]
        if not tracked:
            self.tensors.append(list(self.leaves))

    def number(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high))

    def pick(self) -> list[Any]:
        return self.tensors[self.number(0, len(self.tensors))]

    def view(self) -> None:
        """Adds a view of some tensor."""
        pair = self.pick()
        shape = tuple(pair[1].shape)
        dim = self.number(0, len(shape)) if shape else 0
        kind = self.number(0, 9)
        if kind == 0 and shape:
            start = self.number(0, shape[dim])
            length = self.number(1, shape[dim] - start + 1)
            made = [x.narrow(dim, start, length) for x in pair]
        elif kind == 1 and shape:
            other = self.number(0, len(shape))
            made = [x.transpose(dim, other) for x in pair]
        elif kind == 2 and shape:
            key = (slice(None),) * dim + (slice(self.number(0, 2), None, self.number(1, 3)),)
            made = [x[key] for x in pair]
        elif kind == 3 and shape:
            position = self.number(0, shape[dim])
            made = [x.select(dim, position) for x in pair]
        elif kind == 4:
            made = [x.unsqueeze(dim) for x in pair]
        elif kind == 5:
            made = [x.reshape(-1) for x in pair]
        elif kind == 6 and not self.tracked:
            made = [x.detach() for x in pair]
        elif kind == 7:
            made = [x.view_as(x) if x.is_contiguous() else x.unsqueeze(0) for x in pair]
        elif kind == 8 and len(shape) > 1:
            made = [x.diagonal() for x in pair]
        else:
            return
        if 0 not in made[1].shape:
            self.tensors.append(made)

    def write(self) -> None:
        """Writes into some tensor."""
        pair, source = self.pick(), self.pick()
        kind = self.number(0, 8)
        factor = float(self.rng.uniform(0.5, 1.5))
        index = self.number(0, max(len(pair[1]) if pair[1].ndim else 1, 1))
        for x, other in zip(pair, source):
            if kind == 0:
                x.mul_(factor)
            elif kind == 1:
                x.add_(other.sum())
            elif kind == 2 and x.ndim:
                x[index] = factor
            elif kind == 3 and x.ndim:
                x[index : index + 2] *= factor
            elif kind == 4:
                x.copy_(other.mean() * x.clone())
            elif kind == 5:
                x.zero_()
            elif kind == 6:
                x.sub_(x.clone().flip(0) if x.ndim else x * factor)
            elif kind == 7:
                x[x.detach() > 0.5] = factor

    def compute(self) -> None:
        """Adds a tensor with storage of its own."""
        pair = self.pick()
        # PyTorch keeps the strides of its operand here; metaop results are always row-major.
        self.tensors.append([(x * 1.25).sin().contiguous() for x in pair])

    def check(self) -> None:
        for number, (ours, theirs) in enumerate(self.tensors):
            assert tuple(ours.shape) == tuple(theirs.shape), number
            np.testing.assert_allclose(
                ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-9, atol=1e-12,
                err_msg=f"tensor {number}",
            )  # fmt: skip


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("tracked", [False, True])
def test_random_program(seed: int, tracked: bool) -> None:
    program = Program(seed, tracked)
    for _ in range(14):
        kind = program.number(0, 10)
        if kind < 5:
            program.view()
        elif kind < 9:
            program.write()
        else:
            program.compute()
        if program.number(0, 6) == 0:
            program.check()
    program.check()
    if tracked:
        for side in (0, 1):
            total = sum(pair[side].square().sum() for pair in program.tensors)
            total.backward()
        ours, theirs = (leaf.grad for leaf in program.leaves)
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-8, atol=1e-9)


def both(values: Any, **options: Any) -> list[Any]:
    return [metaop.tensor(values, **options), torch.tensor(values, **options)]


def test_detached_peers_share_storage_but_not_history() -> None:
    for x, lib in zip(both([1.0, 2.0, 3.0], requires_grad=True), (metaop, torch)):
        y = x * 2
        d = y.detach()
        d[0] = 10.0
        assert y.tolist() == [10.0, 4.0, 6.0]
        assert y.requires_grad and not d.requires_grad
        y.sum().backward()
        assert x.grad.tolist() == [2.0, 2.0, 2.0]
        with lib.no_grad():
            y.mul_(2)
        assert d.tolist() == [20.0, 8.0, 12.0]
        e = d[1:].detach()
        e.zero_()
        assert y.tolist() == [20.0, 0.0, 0.0]


def test_writes_through_a_peer_outlive_it() -> None:
    for x in both([1.0, 2.0], requires_grad=True):
        y = x * 2
        for factor in (2, 5):
            peer = y.detach()
            peer.mul_(factor)
            assert y._version == peer._version
            del peer
        assert y.tolist() == [20.0, 40.0] and y.requires_grad
        x.data.add_(1)
        again = x.detach()
        assert x.tolist() == again.tolist() == [2.0, 3.0]
        x.data = x.data * 2
        assert again.tolist() == [2.0, 3.0] and x.tolist() == [4.0, 6.0]


def test_data_of_a_parameter() -> None:
    for p, lib in zip(both([1.0, 2.0], requires_grad=True), (metaop, torch)):
        view = p.data[1:]
        view.add_(5)
        p.data.mul_(2)
        assert p.tolist() == [2.0, 14.0] and view.tolist() == [14.0]
        assert p.is_leaf and p.requires_grad
        p.data = lib.tensor([3.0, 4.0, 5.0])
        (p * p).sum().backward()
        assert p.grad.tolist() == [6.0, 8.0, 10.0]


def test_leaf_that_shares_storage_keeps_its_gradient() -> None:
    for x in both([1.0, 2.0, 3.0]):
        leaf = x.detach().requires_grad_()
        x.mul_(2)
        assert leaf.tolist() == [2.0, 4.0, 6.0] and leaf.is_leaf and leaf.requires_grad
        leaf[1:].sum().backward()
        assert leaf.grad.tolist() == [0.0, 1.0, 1.0]


def test_version_counts_writes_through_views() -> None:
    for x in both([1.0, 2.0, 3.0]):
        before = x._version
        view = x[1:]
        view.add_(1)
        x.detach().mul_(2)
        assert x._version == before + 2 == view._version


def test_write_through_overlapping_windows() -> None:
    x = metaop.zeros(5)
    windows = x.unfold(0, 3, 1)
    windows.copy_(metaop.arange(9.0).reshape(3, 3))
    assert x.tolist() == [0.0, 3.0, 6.0, 7.0, 8.0]


def test_gradient_flows_through_writes_into_views() -> None:
    results = []
    for x in both(np.arange(1.0, 7.0).reshape(2, 3), requires_grad=True):
        y = x * 1
        row = y[0]
        row.mul_(x[1])
        y[:, 1] = row.exp()[:2]
        sibling = y.t()[2]
        sibling += row[2].clone()
        (y.square().sum() + row.sum()).backward()
        results.append(x.grad.tolist())
    np.testing.assert_allclose(results[0], results[1], rtol=1e-12)


@pytest.mark.parametrize("copy", ["clone", "mul", "copy_"])
def test_copies_have_memory_of_their_own(copy: str) -> None:
    for x, lib in zip(both([1.0, 2.0, 3.0]), (metaop, torch)):
        if copy == "copy_":
            y = lib.zeros(3, dtype=x.dtype).copy_(x)
        else:
            y = x.clone() if copy == "clone" else x * 1
        y.numpy()[0] = 5.0
        x.numpy()[1] = 7.0
        assert (x.tolist(), y.tolist()) == ([1.0, 7.0, 3.0], [5.0, 2.0, 3.0])
        x.detach().numpy()[2] = 9.0
        assert x.tolist() == [1.0, 7.0, 9.0]


def _two_layers(lib: Any) -> tuple[Any, Any]:
    layer = lib.nn.Linear(3, 3)
    return layer.bias.detach(), copy.deepcopy(layer).bias.detach()


EQUAL_VALUES: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "zeros": lambda lib: (lib.zeros(3), lib.zeros(3)),
    "tensor": lambda lib: (lib.tensor([1.0, 2.0]), lib.tensor([1.0, 2.0])),
    "computed": lambda lib: (lib.ones(3) * 2, lib.ones(3) * 2),
    "detached": lambda lib: (lib.ones(3).detach(), lib.ones(3).detach()),
    "parameters": lambda lib: (
        lib.nn.Parameter(lib.ones(3), False),
        lib.nn.Parameter(lib.ones(3), False),
    ),
    "layers": lambda lib: tuple(lib.nn.BatchNorm1d(3).weight.detach() for _ in range(2)),  # type: ignore
    "deep copies": _two_layers,
}


@pytest.mark.parametrize("kind", EQUAL_VALUES)
@pytest.mark.parametrize("lib", [metaop, torch], ids=["metaop", "torch"])
def test_equal_values_made_apart_have_memory_of_their_own(lib: Any, kind: str) -> None:
    first, second = EQUAL_VALUES[kind](lib)
    peer, before = second.detach(), second.tolist()
    (first + second + peer).tolist()
    assert first.data_ptr() != second.data_ptr() == peer.data_ptr()
    first.numpy()[0] = 9.0
    assert first[0] == 9.0 and second.tolist() == before
    second.numpy()[0] = 7.0
    assert second[0] == peer[0] == 7.0 and first[0] == 9.0


@pytest.mark.parametrize("lib", [metaop, torch], ids=["metaop", "torch"])
def test_a_view_lies_where_its_strides_say(lib: Any) -> None:
    x = lib.arange(24.0).view(2, 3, 4)
    views = {
        "row": x[1],
        "transposed": x.mT,
        "column": x[..., 1:],
        "expanded": x[1, 2].expand(2, 4),
        "of a peer": x.detach()[1, 2:],
        "of a view": x[1][2][3:],
        "another shape": x.view(24),
    }
    for name, view in views.items():
        distance = view.storage_offset() * view.element_size()
        assert view.data_ptr() - x.data_ptr() == distance, name
    assert lib.empty(0).data_ptr() == x[2:].data_ptr() == 0


@pytest.mark.parametrize("lib", [metaop, torch], ids=["metaop", "torch"])
def test_a_view_that_is_first_read_without_gradients_goes_on_tracking(lib: Any) -> None:
    weight = lib.ones(2, 3, requires_grad=True)
    turned = weight.t()
    with lib.no_grad():
        other = weight.t()
        weight.mul_(2)
        assert turned.sum() == other.sum() == 12
    assert turned.requires_grad and other.requires_grad
    (turned**2).sum().backward()
    assert weight.grad.tolist() == [[4.0] * 3] * 2
