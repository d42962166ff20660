"""What races.cpp finds, in words: the buffer, both threads, and the lines of the kernel's text."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

_DONE = {"read": "reads", "write": "writes", "atomic": "changes atomically"}


class _Access(NamedTuple):
    kind: str
    thread: str
    block: str
    place: str


def explained(message: str, library: Path) -> str:
    """A message of an emulated launch, with names for the addresses in its library."""
    word, *fields = message.split()
    if word != "race":
        return message
    buffer, element = int(fields[0]), int(fields[1])
    now, before = _Access(*fields[2:6]), _Access(*fields[6:10])
    where = f"b{buffer}[{element}]" if buffer >= 0 else _shared(element, library)
    if now == before._replace(kind=now.kind):
        return f"{_one(now, where, library)}, which the kernel may only read"
    missing = "no barrier is between" if now.block == before.block else "blocks have no order"
    accesses = ", ".join(_one(access, where, library) for access in (before, now))
    return f"a race: {accesses}, and {missing}"


def _one(access: _Access, where: str, library: Path) -> str:
    # The call returns behind the access.
    place = hex(int(access.place, 16) - 1)
    found = _output("addr2line", "-e", str(library), place).split()[0]
    path, _, line = found.rpartition(":")
    text = ""
    if line.isdecimal() and Path(path).exists():
        number = int(line)
        text = f" in line {number} `{Path(path).read_text().splitlines()[number - 1].strip()}`"
    return f"thread {access.thread} of block {access.block} {_DONE[access.kind]} {where}{text}"


def _shared(address: int, library: Path) -> str:
    """The array in shared memory at an address, and how many bytes from its start."""
    for line in _output("nm", "-C", "-S", str(library)).splitlines():
        found = re.match(r"(\w+) (\w+) \w (.*)", line)
        if found is None:
            continue
        start, size = int(found[1], 16), int(found[2], 16)
        if start <= address < start + size:
            return f"byte {address - start} of {found[3].rpartition('::')[2]}"
    return "shared memory"


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
