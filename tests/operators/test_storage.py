"""Storages: the memory that tensors share, read and written."""

from __future__ import annotations

from typing import Any

import pytest

import metaop
from metaop.errors import UnsupportedError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")


def _facts(lib: Any, dtype: str) -> list[Any]:
    x = lib.arange(6).to(getattr(lib, dtype)).view(2, 3)
    row, peer = x[1], x.detach()
    elements, content = x.storage(), row.untyped_storage()
    facts: list[Any] = [len(elements), elements.size(), elements.nbytes(), list(elements)]
    facts += [len(content), content.nbytes(), content.tolist(), content[-1]]
    facts += [elements.element_size(), content.element_size(), str(content.device)]
    facts += [content.data_ptr() == x.data_ptr(), peer.storage().data_ptr() == x.data_ptr()]
    facts += [content == peer.untyped_storage(), content == x.clone().untyped_storage()]
    elements[1] = 7
    facts += [x.tolist(), peer.tolist()]
    row.storage()[4:] = 5
    facts += [row.tolist(), peer.tolist(), elements[-1]]
    content[0] = 1
    facts += [x.tolist(), peer.tolist()]
    copied = elements.clone().fill_(3)
    facts += [copied.tolist(), x.tolist()]
    x.storage().copy_(copied)
    facts += [x.tolist(), row.tolist()]
    content.fill_(0)
    facts += [x.tolist(), row.tolist(), peer.tolist()]
    return facts


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8"])
def test_storages_are_the_memory_of_all_that_show_it(dtype: str) -> None:
    assert _facts(metaop, dtype) == _facts(torch, dtype)


def test_storages_of_parameters_and_of_computed_values_are_written() -> None:
    for lib in (metaop, torch):
        parameter = lib.nn.Parameter(lib.ones(2))
        parameter.storage()[0] = 4
        assert parameter.tolist() == [4.0, 1.0] and parameter.requires_grad
        computed = parameter * 2
        computed.untyped_storage().fill_(0)
        assert computed.tolist() == [0.0, 0.0] and computed.requires_grad


@pytest.mark.parametrize(("index", "error"), [(4, IndexError), (-5, IndexError), ("a", TypeError)])
def test_entries_that_are_none_are_refused(index: Any, error: type) -> None:
    for lib in (metaop, torch):
        with pytest.raises(error):
            lib.zeros(4, dtype=lib.uint8).untyped_storage()[index]
    with pytest.raises(UnsupportedError):
        metaop.zeros(4).untyped_storage().resize_(3)
    assert isinstance(metaop.zeros(1).storage(), metaop.TypedStorage)
    assert isinstance(metaop.zeros(1).untyped_storage(), metaop.UntypedStorage)
