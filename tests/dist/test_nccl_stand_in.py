"""The stand-in for NCCL is like the library where it can be known, and refuses what NCCL would."""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.cuda.emulator import arrays, cupy_stand_in, nccl_stand_in, streams
from tests.cuda.emulator.nccl_stand_in import NcclError

# What cupy 14.2 offers with NCCL 2.27, as the documentation strings of its module say.
_KNOWN = (Path(__file__).parent / "nccl_signatures.txt").read_text().splitlines()
SUM, MAX, FLOAT, BYTE = 0, 2, 7, 1


def lines_of(module: Any, signature: Callable[[Any], str]) -> set[str]:
    """Functions, methods and numbers of a module as lines of the file."""
    found = set()
    for name, value in vars(module).items():
        if name.startswith("NCCL_"):
            found.add(f"{name} {value}")
        elif name.startswith("g") and callable(value):
            found.add(f"{name}{signature(value)}")
    for name in dir(module.NcclCommunicator):
        value = getattr(module.NcclCommunicator, name)
        if not name.startswith("_") and callable(value):
            found.add(f"NcclCommunicator.{name}{signature(value)}")
    return found


def parameters(function: Any) -> str:
    names = [name for name in inspect.signature(function).parameters if name != "self"]
    return f"({', '.join(names)})"


def documented(function: Any) -> str:
    """The parameters that the first line of a compiled function's documentation names."""
    (listed,) = re.findall(r"^[\w.]+\((.*?)\)", function.__doc__)
    names = [part.split("=")[0].split()[-1] for part in listed.split(", ") if part]
    return f"({', '.join(name for name in names if name != 'self')})"


def test_it_has_the_names_of_the_library() -> None:
    assert lines_of(nccl_stand_in.module(), parameters) == set(_KNOWN)


def test_the_library_has_the_names_of_the_file() -> None:
    library: Any = pytest.importorskip("cupy.cuda.nccl")
    if not library.available:
        pytest.skip("cupy finds no NCCL here")
    assert set(_KNOWN) <= lines_of(library, documented)


@pytest.fixture
def cupy() -> Iterator[ModuleType]:
    with cupy_stand_in.installed(3) as module:
        yield module


def together(cupy: ModuleType, *ranks: Callable[[Any], None]) -> list[BaseException | None]:
    """What the ranks raise, each with a communicator on a GPU of its own, up to the last stream."""
    identity = cupy.cuda.nccl.get_unique_id()
    raised: list[BaseException | None] = [None] * len(ranks)

    def run(rank: int) -> None:
        try:
            with cupy.cuda.Device(rank):
                stream = cupy.cuda.Stream(non_blocking=True)
                with stream:
                    ranks[rank](cupy.cuda.nccl.NcclCommunicator(len(ranks), identity, rank))
                    stream.synchronize()
        except BaseException as error:
            raised[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(ranks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def place(array: Any) -> int:
    return array.data.ptr


def stream() -> int:
    return streams.get_current_stream().ptr


def reduces(count: int = 4, op: int = SUM, kind: int = FLOAT) -> Callable[[Any], None]:
    def run(link: Any) -> None:
        given, taken = arrays.ndarray((8,), np.float32), arrays.ndarray((8,), np.float32)
        link.allReduce(place(given), place(taken), count, kind, op, stream())

    return run


def gathers(link: Any) -> None:
    given, taken = arrays.ndarray((4,), np.float32), arrays.ndarray((8,), np.float32)
    link.allGather(place(given), place(taken), 4, FLOAT, stream())


def nothing(link: Any) -> None:
    """Makes the communicator, and no call."""


def sends(link: Any) -> None:
    link.send(place(arrays.ndarray((4,), np.float32)), 4, FLOAT, 1 - link.rank_id(), stream())


def receives(count: int) -> Callable[[Any], None]:
    def run(link: Any) -> None:
        taken = arrays.ndarray((8,), np.float32)
        link.recv(place(taken), count, FLOAT, 1 - link.rank_id(), stream())

    return run


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (reduces(4), reduces(5)),
        (reduces(4), reduces(4, MAX)),
        (reduces(4), reduces(4, kind=2)),
        (reduces(4), gathers),
        (reduces(4), nothing),
        (sends, receives(3)),
        (sends, nothing),
        # Messages outside of a group wait for each other for ever.
        (sends, sends),
    ],
    ids=["count", "operation", "type", "collective", "missing", "size", "untaken", "crossed"],
)
def test_ranks_that_differ_are_an_error(
    cupy: ModuleType,
    one: Callable[[Any], None],
    other: Callable[[Any], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if one is not sends:
        assert together(cupy, one, one) == [None, None]
    monkeypatch.setattr(nccl_stand_in, "patience", 0.5)
    assert any(isinstance(error, NcclError) for error in together(cupy, one, other))


def overlapping(link: Any) -> None:
    both = arrays.ndarray((8,), np.float32)
    link.allReduce(place(both), place(both) + 4, 4, FLOAT, SUM, stream())


def too_large(link: Any) -> None:
    both = arrays.ndarray((8,), np.float32)
    link.allReduce(place(both), place(both), 4096, FLOAT, SUM, stream())


def of_host(link: Any) -> None:
    address = np.zeros(8, np.float32).ctypes.data
    link.allReduce(address, address, 8, FLOAT, SUM, stream())


def of_another_gpu(link: Any) -> None:
    with streams.Device(2):
        array = arrays.ndarray((8,), np.float32)
    link.allReduce(place(array), place(array), 8, FLOAT, SUM, stream())


def of_nothing(link: Any) -> None:
    array = arrays.ndarray((8,), np.float32)
    link.allReduce(place(array), place(array), 0, FLOAT, SUM, stream())


def of_no_type(link: Any) -> None:
    array = arrays.ndarray((8,), np.float32)
    link.allReduce(place(array), place(array), 8, 12, SUM, stream())


@pytest.mark.parametrize(
    "call", [overlapping, too_large, of_host, of_another_gpu, of_nothing, of_no_type]
)
def test_calls_that_nccl_does_not_take(cupy: ModuleType, call: Callable[[Any], None]) -> None:
    assert all(isinstance(error, NcclError) for error in together(cupy, call, call))


def test_two_ranks_on_one_gpu_are_an_error(cupy: ModuleType) -> None:
    identity, raised = cupy.cuda.nccl.get_unique_id(), []

    def join(rank: int) -> None:
        with pytest.raises(NcclError, match="Duplicate GPU"):
            cupy.cuda.nccl.NcclCommunicator(2, identity, rank)
        raised.append(rank)

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(raised) == [0, 1]


def test_what_no_stream_waits_for_is_not_there(cupy: ModuleType) -> None:
    """The fault that a program with too few events has on a GPU shows here too."""
    found: dict[bool, list[np.ndarray]] = {True: [], False: []}

    def run(link: Any) -> None:
        for waits, results in found.items():
            given = cupy.asarray(np.ones(4, np.float32))
            taken = arrays.full_like(given, -1)
            other = cupy.cuda.Stream(non_blocking=True)
            other.wait_event(streams.get_current_stream().record())
            begins = threading.Event()  # The collective may take as long as it likes.
            other.put(begins.wait)
            link.allReduce(place(given), place(taken), 4, FLOAT, SUM, other.ptr)
            if waits:
                streams.get_current_stream().wait_event(other.record())
                begins.set()
            results.append(cupy.asnumpy(taken))
            begins.set()
            other.synchronize()

    assert together(cupy, run, run) == [None, None]
    for waits, expected in ((True, 2.0), (False, -1.0)):
        np.testing.assert_array_equal(np.stack(found[waits]), np.full((2, 4), expected))


def test_memory_that_is_given_up_too_early_is_overwritten(cupy: ModuleType) -> None:
    with cupy.cuda.Device(0):
        array = cupy.asarray(np.ones(4, np.float32))
        copy = arrays.empty_like(array)
        other = cupy.cuda.Stream(non_blocking=True)
        other.wait_event(streams.get_current_stream().record())
        begins = threading.Event()
        other.put(begins.wait)
        with other:
            copy[...] = array
        del array
        begins.set()
        other.synchronize()
        assert np.isnan(cupy.asnumpy(copy)).all()
