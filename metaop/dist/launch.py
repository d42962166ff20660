"""`metaop run -np 4 script.py`: starts a program on several ranks, with MPI's settings."""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from metaop.dist.environment import launched
from metaop.dist.faults import FINISHED
from metaop.dist.guard import supervise
from metaop.errors import DistributedError

# Allow more ranks than cores, use shared memory within a host, skip the search for networks.
_SETTINGS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "self,sm",
    "OMPI_MCA_osc": "^ucx",
}
# The folders of Open MPI's shared-memory files and of its session files.
_BACKING = (
    "OMPI_MCA_btl_sm_backing_directory",
    "OMPI_MCA_osc_sm_backing_directory",
    "PRTE_MCA_prte_tmpdir_base",
)
_HOSTS_TRANSPORT = "self,sm,tcp"


def launch_environment(
    ranks: int, hosts: str | None = None, base: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment of a job: `base` (default: this process's) plus what it does not set.

    The cores of the host are divided among the ranks, each of which uses its share for kernels.
    """
    environment = dict(_SETTINGS)
    if hosts:
        environment["OMPI_MCA_btl"] = _HOSTS_TRANSPORT
    on_one_host = -(-ranks // (len(hosts.split(",")) if hosts else 1))
    environment["METAOP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // on_one_host))
    environment.update(os.environ if base is None else base)
    # The ranks import the same metaop as the launcher, even from a checkout.
    package = str(Path(__file__).parents[2])
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*filter(None, paths), package]))
    return environment


def command_line(
    ranks: int, program: Sequence[str], hosts: str | None = None, goes_on: bool = False
) -> list[str]:
    """The `mpirun` command; raises DistributedError with a fix if mpirun is missing."""
    found = shutil.which("mpirun")
    if found is None:
        raise DistributedError("mpirun is not installed", fix="pip install 'metaop[mpi]'")
    where = ["--host", hosts] if hosts else []
    tolerant = ["--with-ft", "ulfm"] if goes_on else []
    return [found, "-np", str(ranks), *where, *tolerant, sys.executable, *program]


def add_command(commands: Any) -> None:
    """Adds `run` to the subcommands of `metaop`."""
    parser = commands.add_parser("run", help="start a program on several ranks with MPI")
    parser.add_argument(
        "-np", "--ranks", type=_count, default=2, help="number of processes (default: 2)"
    )
    parser.add_argument("--hosts", help="host:slots,host:slots")
    parser.add_argument(
        "--with-ft",
        action="store_true",
        help="a lost rank does not end the job (see metaop.distributed.elastic)",
    )
    parser.add_argument(
        "--data-parallel",
        action="store_true",
        help="train a program for one device on all ranks, each of which takes its share of every "
        "batch; also as: mpirun -np 4 metaop run --data-parallel train.py",
    )
    parser.add_argument("-m", "--module", help="a module to run instead of a script")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="script.py and its arguments")
    parser.set_defaults(run=partial(_run, parser))


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of processes: use 1 or more")
    return int(text)


def _run(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    program = arguments.program
    if arguments.module:
        program = ["-m", arguments.module, *program]
    elif not program:
        parser.error("there is no program: name a script, as in metaop run -np 2 train.py")
    elif not arguments.hosts and not os.path.exists(program[0]):
        parser.error(f"there is no file {program[0]!r}; use -m to run a module")
    if arguments.data_parallel:
        if launched() is not None:
            return _take_part(program)
        program = ["-m", "metaop", "run", "--data-parallel", *program]
        os.environ.setdefault("PYTHONHASHSEED", "0")
    try:
        return _start(arguments, program)
    except DistributedError as error:
        parser.error(str(error))


def _take_part(program: Sequence[str]) -> int:
    """Runs the program in this process, which is a rank."""
    # The program needs modules of packages above this one.
    importlib.import_module("metaop.distributed.data_parallel").run_program(program)
    return 0


def _start(arguments: argparse.Namespace, program: Sequence[str]) -> int:
    command = command_line(arguments.ranks, program, arguments.hosts, arguments.with_ft)
    environment = launch_environment(arguments.ranks, arguments.hosts)
    # Shared memory left behind by killed ranks is removed with this folder.
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with TemporaryDirectory(prefix="metaop-", dir=memory) as folder:
        if arguments.hosts:
            return supervise(command, environment, folder)
        for name in _BACKING:
            environment.setdefault(name, folder)
        # A job that may lose ranks exits with code 0 even if it has lost them all.
        finished = Path(folder) / "finished"
        if arguments.with_ft:
            environment[FINISHED] = str(finished)
        status = supervise(command, environment, folder)
        return status or int(arguments.with_ft and not finished.exists())
