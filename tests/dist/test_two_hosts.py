"""Two network namespaces play two hosts: data parallel training and a pipeline across them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from metaop.dist.launch import launch_environment
from tests.dist.jobs import PROGRAMS, ROOT, needs_mpi

# Namespaces and the addresses of the two ends of the cable between them.
HOSTS = {"metaop-a": "10.77.0.1", "metaop-b": "10.77.0.2"}
AGENT = """#!/bin/sh
# Stands for ssh: runs a command in the namespace that has the address.
case "$1" in {cases} esac
shift
exec ip netns exec "$name" sh -c "$*"
"""


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=20)


def connect() -> None:
    """Makes the namespaces and the cable; CalledProcessError without the rights."""
    for name in HOSTS:
        ip("netns", "add", name)
    first, second = HOSTS
    ip("-n", first, "link", "add", "cable-a", "type", "veth", "peer", "name", "cable-b")
    ip("-n", first, "link", "set", "cable-b", "netns", second)
    for (name, address), end in zip(HOSTS.items(), ("cable-a", "cable-b")):
        ip("-n", name, "address", "add", f"{address}/24", "dev", end)
        ip("-n", name, "link", "set", end, "up")
        ip("-n", name, "link", "set", "lo", "up")


def disconnect() -> None:
    for name in HOSTS:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=20)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The script that reaches the hosts; skips where namespaces cannot be made."""
    if shutil.which("ip") is None:
        pytest.skip("there is no `ip` to make network namespaces with")
    disconnect()
    try:
        connect()
    except (subprocess.CalledProcessError, PermissionError) as error:
        disconnect()
        pytest.skip(f"network namespaces need rights that this process lacks: {error}")
    agent = tmp_path_factory.mktemp("hosts") / "agent"
    cases = " ".join(f"{address}) name={name};;" for name, address in HOSTS.items())
    agent.write_text(AGENT.format(cases=cases))
    agent.chmod(0o755)
    yield agent
    disconnect()


@needs_mpi
@pytest.mark.mpi
@pytest.mark.parametrize(
    ("program", "slots"), [("data_parallel.py", 1), ("pipeline.py", 1), ("transports.py", 2)]
)
def test_ranks_on_two_hosts_agree_with_one_process(program: str, slots: int, hosts: Path) -> None:
    where = ",".join(f"{address}:{slots}" for address in HOSTS.values())
    ranks = 2 * slots
    environment = launch_environment(ranks, where)
    environment |= {
        "PYTHONPATH": str(ROOT),
        "PRTE_MCA_plm_ssh_agent": str(hosts),
        "OMPI_MCA_btl": "self,sm,tcp",
        "OMPI_MCA_btl_tcp_if_include": "10.77.0.0/24",
        "PRTE_MCA_prte_if_include": "10.77.0.0/24",
    }
    command = [sys.executable, "-m", "metaop", "run", "-np", str(ranks), "--hosts", where]
    inside = ["ip", "netns", "exec", next(iter(HOSTS)), *command, str(PROGRAMS / program)]
    done = subprocess.run(
        inside, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in range(ranks):
        assert f"rank {rank} agrees" in done.stdout
