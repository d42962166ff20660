"""The process that mpirun starts as a stand-in for a rank that already runs: see `joining`.

It passes its environment to that rank, so that MPI takes the rank for the stand-in, and lives as
long as the rank. It must start quickly, so it imports nothing from metaop.
"""

import json
import os
import socket
import sys

END = b"end"


def main(place: str) -> int:
    """Waits for the process; the exit code says whether it ended normally."""
    path = f"{place}-{os.environ['OMPI_COMM_WORLD_RANK']}"
    given = {name: os.environ[name] for name in os.environ if name.startswith(("OMPI_", "PMI"))}
    for name in ("OPAL_PREFIX", "LD_LIBRARY_PATH"):
        given[name] = os.environ.get(name, "")
    with socket.socket(socket.AF_UNIX) as door:
        if os.path.exists(path):
            os.unlink(path)
        door.bind(path)
        door.listen(1)
        guest, _ = door.accept()
    os.unlink(path)
    guest.sendall(json.dumps(given).encode() + b"\n")
    last = received = guest.recv(len(END))
    while received:
        last, received = received, guest.recv(len(END))
    return int(last != END)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
