"""Functions that few programs call, beside PyTorch's: values, memory, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaop
from tests.helpers import from_numpy, to_torch

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*range is deprecated", "ignore:TypedStorage", "ignore:Sparse inv"
)

random = np.random.default_rng(11)
X = random.normal(size=(2, 6, 4))
SEQUENCE, KERNEL, BIAS = random.normal(size=(7, 2, 3)), random.normal(size=(3, 3, 5)), X[0, 0, :1]

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "range": lambda T, t: (T.range(1, 4), T.range(0, 1, 0.25), T.range(5, 1, -2)),
    "range of a type": lambda T, t: T.range(1, 7, 2, dtype=T.int64),
    "range whose end is passed over": lambda T, t: T.range(0.5, 3.2),
    "empty_permuted": lambda T, t: T.empty_permuted((2, 3, 5), (1, 2, 0)).fill_(2.0),
    "unsafe_chunk": lambda T, t: T.unsafe_chunk(t(X), 4, 1),
    "unsafe_split": lambda T, t: (*T.unsafe_split(t(X), 4, 1), *t(X).unsafe_split(3, -1)),
    "conv_tbc": lambda T, t: T.conv_tbc(t(SEQUENCE), t(KERNEL), t(X[0, :5, 0]), 1),
    "native_channel_shuffle": lambda T, t: T.native_channel_shuffle(t(X), 3),
    "celu_": lambda T, t: T.celu_(t(X), 0.7),
    "selu_": lambda T, t: T.selu_(t(X)),
    "threshold_": lambda T, t: T.threshold_(t(X), 0.1, -2.0),
    "rrelu_": lambda T, t: T.rrelu_(t(X), 0.2, 0.2, True),
    "fftfreq": lambda T, t: T.fft.fftfreq(5, 0.5, out=T.empty(0)),
    "rfftfreq": lambda T, t: T.fft.rfftfreq(5, 0.5, out=T.empty(0)),
    "apply_": lambda T, t: t(X).apply_(lambda x: x * 2 if x > 0 else 1),
    "apply_ of integers": lambda T, t: T.arange(4).apply_(lambda x: x * 1.75),
    "map_": lambda T, t: t(X).map_(t(X[:, :1]), lambda x, y: x * y + 1),
    "fake_quantize_per_tensor_affine": lambda T, t: T.fake_quantize_per_tensor_affine(
        T.linspace(-3, 3, 9), 0.5, 0, -4, 3
    ),
    "fake_quantize_per_channel_affine": lambda T, t: T.fake_quantize_per_channel_affine(
        T.linspace(-3, 3, 8).view(2, 4),
        T.tensor([0.5, 0.3]),
        T.zeros(2, dtype=T.int32),
        0,
        -4,
        3,
    ),
}


def listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


@pytest.mark.parametrize("name", CALLS)
def test_values(name: str) -> None:
    ours, theirs = listed(CALLS[name](metaop, from_numpy)), listed(CALLS[name](torch, to_torch))
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs):
        assert str(one.dtype).split(".")[1] == str(other.dtype).split(".")[1]
        assert tuple(one.shape) == tuple(other.shape) and one.stride() == other.stride()
        np.testing.assert_allclose(one.numpy(), other.numpy(), 1e-6, 1e-6)


REFUSED: dict[str, Callable[[Any], Any]] = {
    "range of no step": lambda T: T.range(0, 3, 0),
    "range the wrong way": lambda T: T.range(0, 3, -1),
    "empty_permuted": lambda T: T.empty_permuted((2, 3), (0, 0)),
    "apply_ with a gradient": lambda T: T.ones(2, requires_grad=True).apply_(abs),
    "coalesce": lambda T: T.ones(2).coalesce(),
    "is_coalesced": lambda T: T.ones(2).is_coalesced(),
    "sparse_mask": lambda T: T.ones(2).sparse_mask(T.ones(3).to_sparse()),
    "set_ of another type": lambda T: T.ones(2).set_(T.ones(2, dtype=T.float64)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    for library in (torch, metaop):
        with pytest.raises(RuntimeError):
            REFUSED[name](library)


def memory(T: Any) -> list[Any]:
    base = T.arange(12.0).view(3, 4)
    view, apart = base[1:], T.arange(12.0)
    facts: list[Any] = [base.is_set_to(base), base.is_set_to(view), base.is_set_to(base.view(3, 4))]
    facts += [base.is_set_to(base.clone()), view.is_set_to(base[1:]), base.is_set_to(base.mT)]
    facts += [base.const_data_ptr() == base.data_ptr(), T.is_storage(base.untyped_storage())]
    facts += [T.is_storage(base), base.is_conj(), base.is_neg(), T.is_conj(base)]
    facts += [
        base.dim_order(),
        base.mT.dim_order(),
        T.empty_permuted((2, 3, 5), (2, 0, 1)).dim_order(),
    ]
    facts += [base.sparse_dim(), base.dense_dim()]
    shown = T.empty(0).set_(apart)
    shown[3] = -1.0
    facts += [apart.tolist(), tuple(shown.shape), shown.is_set_to(apart)]
    part = T.empty(0).set_(apart, 2, (2, 3), (3, 1))
    part[0, 0] = 7.0
    facts += [apart.tolist(), part.tolist(), part.stride(), part.storage_offset()]
    whole = T.empty(5).set_(apart.untyped_storage())
    whole[11] = 9.0
    facts += [apart.tolist(), tuple(whole.shape)]
    facts += [tuple(T.ones(3).set_().shape)]
    return facts


def test_memory() -> None:
    assert memory(metaop) == memory(torch)


@pytest.mark.parametrize("make", [lambda T: T.ones(1, 3), lambda T: T.ones(1, 1).expand(2, 2)])
def test_dimensions_that_may_stand_anywhere(make: Callable[[Any], Any]) -> None:
    for library in (torch, metaop):
        with pytest.raises(RuntimeError, match="unique dim order"):
            make(library).dim_order(ambiguity_check=True)


def test_elements_of_a_mask() -> None:
    dense = np.arange(6.0).reshape(2, 3)
    found = []
    for library, convert in ((metaop, from_numpy), (torch, to_torch)):
        mask = library.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], library.ones(3), (2, 3)).coalesce()
        kept = convert(dense).sparse_mask(mask)
        found.append((kept.is_coalesced(), kept._indices().tolist(), kept.to_dense().tolist()))
    assert found[0] == found[1]


def test_results_of_in_place_forms_are_the_tensors() -> None:
    for name in ("celu_", "selu_", "rrelu_"):
        x = from_numpy(X)
        assert getattr(metaop, name)(x) is x


def test_names_from_elsewhere() -> None:
    assert metaop.GradScaler is metaop.amp.GradScaler
    assert issubclass(metaop.OutOfMemoryError, MemoryError)
    assert metaop.random.thread_safe_generator() is torch.random.thread_safe_generator() is None
