"""Worker processes: order, shared memory, failures."""

from __future__ import annotations

import os
import random
import signal
import time
from multiprocessing import Pipe
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import metaop
from metaop import data
from metaop.data.transfer import receive, send
from tests.data.test_datasets import Squares, Stream, tensor_of

pytestmark = pytest.mark.timeout(120)


class Images(data.Dataset):
    """Large enough that batches go through shared memory."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return np.full((3, 64, 64), index, np.float32), index


class Faulty(Squares):
    def __getitem__(self, index: int) -> int:
        if index == 3:
            raise KeyError("no sample 3")
        return index


class Suicidal(Squares):
    def __getitem__(self, index: int) -> int:
        if index == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return index


class Slow(Squares):
    def __getitem__(self, index: int) -> int:
        if index == 3:
            time.sleep(60)
        return index


class Shares(data.IterableDataset):
    """Each worker streams its share of 0 … 9."""

    def __iter__(self) -> Any:
        info = data.get_worker_info()
        assert info is not None and info.dataset is self
        return iter(range(info.id, 10, info.num_workers))


class Facts(data.Dataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[int, int, float, float]:
        info = data.get_worker_info()
        assert info is not None
        return info.id, os.getpid(), random.random(), float(np.random.rand())


def initialise_badly(number: int) -> None:
    raise OSError(f"worker {number} has no disk")


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_batches_arrive_in_order_and_intact(context: str) -> None:
    loader = data.DataLoader(Images(), batch_size=3, num_workers=2, multiprocessing_context=context)
    batches = list(loader)
    assert [labels.tolist() for _, labels in batches] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    for images, labels in batches:
        expected = np.broadcast_to(labels.numpy()[:, None, None, None], images.shape)
        np.testing.assert_array_equal(images.numpy(), expected)
        assert images.buffer().address % 64 == 0


def test_tensor_datasets_in_workers() -> None:
    values = np.random.default_rng(0).normal(size=(9, 5000)).astype(np.float32)
    loader = data.DataLoader(data.TensorDataset(tensor_of(values)), batch_size=2, num_workers=2)
    received = np.concatenate([batch.numpy() for (batch,) in loader])
    np.testing.assert_array_equal(received, values)


def test_each_worker_has_its_number_and_its_random_numbers() -> None:
    facts = list(data.DataLoader(Facts(), batch_size=None, num_workers=2))
    assert [fact[0] for fact in facts] == [0, 1, 0, 1]
    assert len({fact[1] for fact in facts}) == 2 and os.getpid() not in {f[1] for f in facts}
    assert len({fact[2] for fact in facts}) == 4 and len({fact[3] for fact in facts}) == 4
    assert data.get_worker_info() is None


def test_streams_are_shared_out_by_the_data_set() -> None:
    loader = data.DataLoader(Shares(), batch_size=2, num_workers=3)
    expected = [[0, 3], [1, 4], [2, 5], [6, 9], [7], [8]]
    assert [batch.tolist() for batch in loader] == expected


def test_every_worker_reads_a_stream_that_does_not_ask() -> None:
    loader = data.DataLoader(Stream(1, 2), batch_size=None, num_workers=2)
    assert sorted(loader) == [1, 1, 2, 2]


def test_persistent_workers_stay_and_a_broken_off_epoch_leaves_nothing_behind() -> None:
    loader = data.DataLoader(
        Facts(), batch_size=None, num_workers=2, persistent_workers=True, prefetch_factor=1
    )
    first = {fact[1] for fact in loader}
    next(iter(loader))
    assert {fact[1] for fact in loader} == first
    squares = data.DataLoader(Squares(6), batch_size=2, num_workers=2, persistent_workers=True)
    for _ in range(3):
        assert next(iter(squares)).tolist() == [0, 1]
    assert [batch.tolist() for batch in squares] == [[0, 1], [4, 9], [16, 25]]


@pytest.mark.parametrize("persistent", [False, True])
def test_an_exception_carries_the_traceback_of_the_worker(persistent: bool) -> None:
    loader = data.DataLoader(Faulty(6), batch_size=2, num_workers=2, persistent_workers=persistent)
    with pytest.raises(KeyError) as caught:
        list(loader)
    text = str(caught.value)
    assert "Caught KeyError in DataLoader worker process 1" in text
    assert "Traceback (most recent call last)" in text and "in __getitem__" in text
    assert "no sample 3" in text and "\n" in text


def test_a_failing_initialisation_is_reported() -> None:
    loader = data.DataLoader(Squares(4), num_workers=2, worker_init_fn=initialise_badly)
    with pytest.raises(OSError, match="worker 0 has no disk"):
        list(loader)


def test_a_batch_that_cannot_be_pickled_is_reported() -> None:
    loader = data.DataLoader(Squares(4), num_workers=1, collate_fn=lambda batch: lambda: batch)
    with pytest.raises(Exception, match="worker process 0"):
        list(loader)


def test_a_killed_worker_raises_instead_of_hanging() -> None:
    with pytest.raises(RuntimeError, match=r"worker 1 \(pid \d+\) exited.*signal 9"):
        list(data.DataLoader(Suicidal(40), batch_size=2, num_workers=2))


def test_a_slow_worker_runs_into_the_timeout() -> None:
    with pytest.raises(RuntimeError, match="timed out after 0.3 seconds"):
        list(data.DataLoader(Slow(6), batch_size=2, num_workers=2, timeout=0.3))


def test_breaking_off_ends_the_workers() -> None:
    iterator = iter(data.DataLoader(Facts(), batch_size=None, num_workers=2))
    process = next(iterator)[1]
    iterator.close()  # type: ignore[attr-defined]
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.bool_, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("size", [0, 3, 70001])
def test_arrays_and_tensors_survive_the_transfer(dtype: Any, size: int) -> None:
    array = np.random.default_rng(size).integers(0, 2, size).astype(dtype)
    here, there = Pipe()
    for value in (array, tensor_of(array)):
        send(here, {"a": [value, value[:1] if value is array else None], "b": "text"})
        received = receive(there)
        first = received["a"][0]
        restored = first if value is array else first.numpy()
        assert restored.dtype == array.dtype and received["b"] == "text"
        np.testing.assert_array_equal(restored, array)
        restored[...] = 0


def test_shared_memory_is_used_for_large_arrays() -> None:
    here, there = Pipe()
    send(here, np.zeros(1 << 20))
    payload, spans, total = there.recv()
    assert len(payload) < 1000 and total == spans[0][1] == 8 << 20


class Computed(data.Dataset):
    """Samples that tensors compute, in the worker."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return (metaop.arange(50000) * 2.5 + index).sum()


def test_workers_can_compute_with_tensors_after_the_main_process_has() -> None:
    expected = [Computed()[index].item() for index in range(4)]
    for context in ("fork", "spawn"):
        loader = data.DataLoader(
            Computed(), batch_size=2, num_workers=2, multiprocessing_context=context
        )
        assert [value for batch in loader for value in batch.tolist()] == expected


def test_pending_work_of_the_main_process_stays_there() -> None:
    pending = metaop.arange(10) * 3
    loader = data.DataLoader(Computed(), batch_size=2, num_workers=1)
    assert len(list(loader)) == 2 and pending.call.is_pending
    assert pending.tolist() == [3 * k for k in range(10)]
