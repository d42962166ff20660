"""Linear algebra on the host uses as many threads as matrices pay for, and leaves others theirs."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

import metaop
from metaop.tensor.linear_algebra.lapack import on_host


def threads(*_: np.ndarray) -> set[int]:
    """The threads of the libraries that compute matrices now."""
    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    return {library.get_num_threads() for library in libraries}


@pytest.fixture(autouse=True)
def two_threads():
    """Two threads for both sides, whatever this machine has."""
    before = metaop.get_num_threads()
    metaop.set_num_threads(2)
    with threadpool_limits(2, user_api="blas"):
        yield
    metaop.set_num_threads(before)


def test_small_matrices_wake_no_threads():
    assert on_host("solve", threads, np.zeros((64, 64)), np.zeros(64)) == {1}
    assert on_host("solve", threads, np.zeros((1000, 64, 64))) == {1}
    assert threads() == {2}


def test_large_matrices_have_the_threads_of_metaop():
    assert on_host("solve", threads, np.zeros((300, 300))) == {2}
    metaop.set_num_threads(1)
    assert on_host("solve", threads, np.zeros((300, 300))) == {1}
    assert threads() == {2}


def test_an_error_leaves_the_threads():
    with pytest.raises(metaop.linalg.LinAlgError, match=r"linalg\.inv: Singular"):
        metaop.linalg.inv(metaop.zeros(2, 2))
    assert threads() == {2}


def test_a_limit_of_the_user_stays():
    with threadpool_limits(1, user_api="blas"):
        metaop.linalg.cholesky(metaop.eye(3))
        assert threads() == {1}
    metaop.linalg.cholesky(metaop.eye(3))
    assert threads() == {2}


def test_calls_of_several_threads_leave_the_threads():
    started, ended = threading.Event(), threading.Event()

    def long(*_: np.ndarray) -> None:
        started.set()
        ended.wait(10)

    thread = threading.Thread(target=on_host, args=("solve", long, np.zeros((64, 64))))
    thread.start()
    started.wait(10)
    # The second call begins inside of the first one and ends after it.
    assert on_host("solve", _after(ended, thread), np.zeros((300, 300))) == {2}
    assert threads() == {2}


def _after(ended: threading.Event, other: threading.Thread) -> Callable[..., set[int]]:
    def run(*_: np.ndarray) -> set[int]:
        found = threads()
        ended.set()
        other.join()
        return found

    return run
