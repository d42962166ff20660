"""Turns processes that mpirun did not start into the ranks of one MPI job.

Rank 0 starts mpirun with one small process (`seat`) for each rank. A rank takes over the
environment of its seat, so MPI identifies it as that process; the seat lives as long as the rank.
So MPI carries everything, whatever started the ranks: `multiprocessing.spawn`, torchrun, a shell.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import MutableMapping
from contextlib import suppress
from hashlib import sha256
from multiprocessing import parent_process
from pathlib import Path
from typing import NamedTuple

from metaop import settings
from metaop.dist import seat
from metaop.dist.environment import Launched, adopt, launched
from metaop.dist.faults import call_at_exit, is_forked
from metaop.dist.launch import command_line, launch_environment
from metaop.errors import ArgumentError, DistributedError

# In seconds.
_PAUSE = 0.01
_NOWHERE = Launched(-1, -1, 0, 1)
_START = "start it with `metaop run -np {} script.py`"
_SEVERAL_HOSTS = "on several hosts start it with `metaop run -np {} --hosts a:2,b:2 script.py`"


class Wish(NamedTuple):
    """The rank and world size that a process requests, and an address that all ranks know."""

    rank: int
    size: int
    address: str = ""
    host: str = ""


def wish_of(
    init_method: str | None = None,
    rank: int = -1,
    size: int = -1,
    environment: MutableMapping[str, str] = os.environ,
) -> Wish | None:
    """What `init_process_group` and PyTorch's environment variables request; None if nothing.

    Omitted numbers come from the launcher. Raises ArgumentError if rank, size or
    address is missing or wrong.
    """
    method = init_method or "env://"
    kind, _, rest = method.partition("://")
    rest, _, query = rest.partition("?")
    if kind not in ("env", "tcp", "file") or (kind != "env" and not rest):
        raise ArgumentError(
            f"init_method is {method!r}", fix="use env://, tcp://host:port or file:///path"
        )
    numbers = dict(part.partition("=")[::2] for part in query.split("&") if part)
    if kind == "env":
        names = {"rank": "RANK", "world_size": "WORLD_SIZE"}
        numbers = {k: environment[v] for k, v in names.items() if v in environment} | numbers
        if not numbers and rank == size == -1:
            return None
        rest = ":".join(environment.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT"))
    place = launched(environment) or _NOWHERE
    rank = int(numbers.get("rank", place.rank)) if rank == -1 else rank
    size = int(numbers.get("world_size", place.size)) if size == -1 else size
    if not 0 <= rank < size:
        raise ArgumentError(
            f"rank is {rank} and world_size is {size} with init_method {method}",
            fix="give both, as arguments or as RANK and WORLD_SIZE; ranks count from 0",
        )
    if size > 1 and kind == "env" and place is _NOWHERE and not all(rest.partition(":")[::2]):
        raise ArgumentError(
            f"rank {rank} of {size} cannot find the others: MASTER_ADDR or MASTER_PORT is not set",
            fix=f"set both, or pass init_method='tcp://localhost:29500', or {_START.format(size)}",
        )
    address = os.path.abspath(rest) if kind == "file" else rest
    return Wish(rank, size, address, "" if kind == "file" else rest.rpartition(":")[0])


def take_place(wish: Wish | None) -> None:
    """Gives this process its rank, before MPI is loaded."""
    place = launched()
    if place is not None and is_launched():
        check_place(wish, place.rank, place.size)
    elif wish is not None and wish.size > 1:
        join(wish)
    elif wish is None and parent_process() is not None:
        raise DistributedError(
            "this process, started by multiprocessing, does not know its rank, and would be rank 0 "
            "of 1",
            fix=f"call init_process_group(rank=, world_size=) first, or {_START.format('N')}",
        )


def check_place(wish: Wish | None, rank: int, size: int) -> None:
    """Raises DistributedError if MPI gave this process another rank or size than requested."""
    if wish is not None and (wish.rank, wish.size) != (rank, size):
        raise DistributedError(
            f"this process is rank {rank} of {size} of the MPI job, and rank {wish.rank} of "
            f"{wish.size} according to init_process_group or RANK and WORLD_SIZE",
            fix=f"omit the numbers, or {_START.format(wish.size)}",
        )


def is_launched() -> bool:
    """Whether mpirun, or something equivalent, started this process as one of several ranks."""
    place = launched()
    return place is not None and (place.size > 1 or "OMPI_COMM_WORLD_SIZE" in os.environ)


def join(wish: Wish) -> None:
    """Joins the job with the requested rank, before MPI is loaded.

    Raises DistributedError if the ranks are on several hosts or do not meet within
    METAOP_TIMEOUT_SECONDS.
    """
    _check_host(wish)
    user, digest = os.getuid(), sha256(wish.address.encode()).hexdigest()[:16]
    place = Path(tempfile.gettempdir()) / f"metaop-{user}-{digest}"
    started = _start_seats(wish, place) if wish.rank == 0 else None
    line = _connect(wish, Path(f"{place}-{wish.rank}"), started)
    with line.makefile("rb") as file:
        given: dict[str, str] = json.loads(file.readline())
    if int(given["OMPI_COMM_WORLD_SIZE"]) != wish.size:
        raise DistributedError(
            f"rank {wish.rank} has a world size of {wish.size}, and rank 0 one of "
            f"{given['OMPI_COMM_WORLD_SIZE']}",
            fix="give all ranks the same world_size",
        )
    # mpirun passes the library's folder in LD_LIBRARY_PATH, which is only read at process start.
    library = Path(given.pop("LD_LIBRARY_PATH").partition(os.pathsep)[0]) / "libmpi.so.40"
    if library.exists():
        os.environ.setdefault("MPI4PY_LIBMPI", str(library))
    os.environ.update(given)
    adopt()
    # Registered before MPI is loaded, it runs after MPI's own exit functions.
    call_at_exit(lambda: _leave(line))
    threading.Thread(target=_end_with_job, args=(line, wish.rank), daemon=True).start()


def _leave(line: socket.socket) -> None:
    """Tells the seat that this rank has ended."""
    if is_forked() and "mpi4py.MPI" in sys.modules:
        sys.modules["mpi4py.MPI"].Finalize()
    with suppress(OSError):
        line.sendall(seat.END)


def _check_host(wish: Wish) -> None:
    local = os.environ.get("LOCAL_WORLD_SIZE", "")
    several = local.isdigit() and int(local) != wish.size
    if wish.host and not several:
        try:
            kind, *_, place = socket.getaddrinfo(wish.host, 0, type=socket.SOCK_STREAM)[0]
            with socket.socket(kind) as here:
                here.bind(place)
        except OSError:
            several = True
    if several:
        raise DistributedError(
            f"rank {wish.rank} of {wish.size} is not on the host of {wish.address}",
            fix=_SEVERAL_HOSTS.format(wish.size),
        )


def _start_seats(wish: Wish, place: Path) -> subprocess.Popen[bytes]:
    command = command_line(wish.size, ["-I", seat.__file__, str(place)])
    return subprocess.Popen(
        command, env=launch_environment(wish.size), stdin=subprocess.DEVNULL, close_fds=True
    )


def _connect(wish: Wish, path: Path, started: subprocess.Popen[bytes] | None) -> socket.socket:
    """The connection to the seat of this rank, once the seat exists."""
    begin = time.perf_counter()
    while True:
        line = socket.socket(socket.AF_UNIX)
        try:
            if path.stat().st_uid == os.getuid():
                line.connect(str(path))
                return line
        except OSError:
            pass
        line.close()
        time.sleep(_PAUSE)
        waited = time.perf_counter() - begin
        if started is not None and started.poll() is not None:
            raise DistributedError(
                f"mpirun ended with code {started.returncode} while the ranks were joining",
                fix="see its message above",
            )
        if waited > settings.get("METAOP_TIMEOUT_SECONDS"):
            raise DistributedError(
                f"rank {wish.rank} of {wish.size} has waited {waited:.0f} s at {wish.address} for "
                "rank 0",
                fix="start all ranks with the same address, or increase METAOP_TIMEOUT_SECONDS",
            )


def _end_with_job(line: socket.socket, rank: int) -> None:
    """Ends this process when mpirun ends its seat, because another rank has failed."""
    with suppress(OSError):
        line.recv(1)
    sys.stdout.flush()
    print(f"metaop: rank {rank} ends with the job", file=sys.stderr, flush=True)
    os._exit(1)
