"""PyTorch's names for what carries values between ranks: here always MPI, and NCCL between GPUs."""

from __future__ import annotations

import importlib.util

from metaop.cuda import nccl
from metaop.distributed.process_group import ProcessGroup
from metaop.errors import ArgumentError
from metaop.tensor.options import DeviceLike, device_of


class Backend(str):
    """The name of a backend, in lower case; anything but a text raises ArgumentError.

    `init_process_group` takes all of them except "undefined" and "fake", and MPI does the work.

    >>> metaop.distributed.Backend("NCCL") == metaop.distributed.Backend.NCCL
    True
    """

    UNDEFINED = "undefined"
    GLOO = "gloo"
    NCCL = "nccl"
    UCC = "ucc"
    MPI = "mpi"
    XCCL = "xccl"
    FAKE = "fake"
    backend_list = [UNDEFINED, GLOO, NCCL, XCCL, UCC, MPI, FAKE]
    default_device_backend_map = {"cpu": GLOO, "cuda": NCCL, "xpu": XCCL, "mps": GLOO}

    def __new__(cls, name: str) -> Backend:
        if not isinstance(name, str):
            raise ArgumentError(f"a backend called {name!r}", fix="pass a text, such as 'gloo'")
        return str.__new__(cls, name.lower())


# What `init_process_group` and `new_group` take.
_TAKEN = {Backend.GLOO, Backend.MPI, Backend.NCCL, Backend.UCC, Backend.XCCL}


def check_backend(backend: str | None) -> None:
    """Raises ArgumentError for a backend that PyTorch does not have."""
    if backend is not None and set(_names(backend)) - _TAKEN:
        raise ArgumentError(f"backend is {backend!r}", fix=f"use one of {sorted(_TAKEN)}")


def _names(backend: str) -> list[str]:
    """The names in "gloo" or "cpu:gloo,cuda:nccl"."""
    return [part.rpartition(":")[2].lower() for part in backend.split(",")]


def is_available() -> bool:
    """Whether mpi4py is installed.

    >>> metaop.distributed.is_available()
    True
    """
    return importlib.util.find_spec("mpi4py") is not None


is_mpi_available = is_available


def is_nccl_available() -> bool:
    """Whether NCCL can carry collectives between GPUs.

    >>> metaop.distributed.is_nccl_available() and not metaop.cuda.is_available()
    False
    """
    return nccl.is_available()


def is_gloo_available() -> bool:
    """Whether a program may use the backend "gloo", whose work MPI does.

    >>> metaop.distributed.is_gloo_available()
    True
    """
    return is_available()


def is_ucc_available() -> bool:
    """False: metaop does not use UCC.

    >>> metaop.distributed.is_ucc_available()
    False
    """
    return False


def is_xccl_available() -> bool:
    """False: metaop does not use Intel's GPUs.

    >>> metaop.distributed.is_xccl_available()
    False
    """
    return False


def is_backend_available(backend: str) -> bool:
    """Whether a program may use a backend, or all those of a text such as "cpu:gloo,cuda:nccl".

    >>> metaop.distributed.is_backend_available("gloo")
    True
    """
    available = {
        Backend.GLOO: is_gloo_available,
        Backend.MPI: is_available,
        Backend.NCCL: is_nccl_available,
    }
    return all(name in available and available[name]() for name in _names(backend))


def get_backend(group: ProcessGroup | None = None) -> str:
    """ "mpi", whatever backend was requested.

    >>> metaop.distributed.get_backend()
    'mpi'
    """
    return "mpi"


def get_default_backend_for_device(device: DeviceLike) -> str:
    """The backend that PyTorch would use for a device; ArgumentError if it has none.

    >>> metaop.distributed.get_default_backend_for_device("cpu")
    'gloo'
    """
    kind = device_of(device).type
    if kind not in Backend.default_device_backend_map:
        raise ArgumentError(
            f"no backend carries tensors on {kind}", fix="move them to the host: tensor.cpu()"
        )
    return Backend.default_device_backend_map[kind]
