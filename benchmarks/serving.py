"""Requests a second and their times: `metaop serve` beside onnxruntime in the same server.

    python -m benchmarks.serving --clients 1 16 --seconds 5 --rounds 3

Each network is exported twice, by `metaop.export` and by `metaop.onnx.export`. Four servers run:
either library behind the same HTTP server, with requests of one row joined or each alone (a plain
server). Clients on one event loop send tensors as bytes and wait for each answer; the servers take
turns, and the medians of the rounds are printed. All answers are compared with the first server's.
Both libraries use one thread: a second one that waits for the first shows how busy a machine is.
The processor time of a request, all threads of its server together, changes little with that.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import aiohttp
import numpy as np

import metaop
import metaop.onnx
from metaop import nn
from metaop.export.program import Program
from metaop.serving.application import Application, Limits
from metaop.serving.model import Arrays, Model
from metaop.serving.protocol import HEADER
from metaop.serving.repository import Repository
from metaop.serving.server import serve
from metaop.settings import get
from models import resnet

_DISTINCT = 16
_ROWS = 16


class Load(NamedTuple):
    """What one measurement found: requests a second, times of single ones in milliseconds, and the
    server's processor time for one."""

    rate: float
    p50: float
    p99: float
    processor: float


def networks() -> dict[str, tuple[nn.Module, np.ndarray]]:
    """The networks, each with rows of inputs."""
    random = np.random.default_rng(0)
    layers = [nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU()]
    images = random.standard_normal((_DISTINCT, 3, 64, 64)).astype(np.float32)
    return {
        "MLP 784-1024-1024-10": (
            nn.Sequential(*layers, nn.Linear(1024, 10)),
            random.standard_normal((_DISTINCT, 784)).astype(np.float32),
        ),
        "ResNet-18, 64 × 64": (resnet.resnet18(num_classes=10), images),
    }


# --- servers ------------------------------------------------------------------------------------


class OnnxModel(Model):
    """A model whose network onnxruntime computes."""

    def use(self, path: str) -> None:
        """Loads an ONNX file."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = get("METAOP_NUM_THREADS")
        self._session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
        self._names = [one.name for one in self._session.get_inputs()]

    def computed(self, program: Program, arrays: Arrays) -> Arrays:
        """The outputs of the loaded network."""
        return self._session.run(None, dict(zip(self._names, arrays)))


class OnnxRepository(Repository):
    """One model, which lies beside its program."""

    def _model(self, name: str, version: str, path: Path) -> Model:
        model = OnnxModel(name, version, metaop.load_program(path))
        model.use(str(path.with_suffix(".onnx")))
        model.warm_up(_ROWS)
        return model


def serve_onnx(path: str, rows: int) -> None:
    """Serves a network of ONNX as `metaop serve` does a program."""
    repository = OnnxRepository([path], rows)
    repository.load(Path(path).stem)
    serve(Application(repository, Limits(rows)), "127.0.0.1", 0)


@contextmanager
def started(threads: int, command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """A server in its own process, which ends with the block."""
    with subprocess.Popen(
        [sys.executable, "-m", *command],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "METAOP_NUM_THREADS": str(threads)},
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def address_of(process: subprocess.Popen[str]) -> str:
    """The address of a server, once it listens."""
    assert process.stdout is not None
    return process.stdout.readline().split()[-1]


# --- clients ------------------------------------------------------------------------------------


def bodies(inputs: np.ndarray) -> tuple[list[bytes], str]:
    """A request for each row, and the header that all of them have."""
    parts = []
    for row in inputs:
        one = {
            "name": "x",
            "shape": [1, *row.shape],
            "datatype": {"f": "FP32", "i": "INT64"}[row.dtype.kind],
            "parameters": {"binary_data_size": row.nbytes},
        }
        content = {"inputs": [one], "parameters": {"binary_data_output": True}}
        parts.append((json.dumps(content).encode(), row.tobytes()))
    return [text + data for text, data in parts], str(len(parts[0][0]))


def processor_seconds(process: int) -> float:
    """The CPU time of all threads of a process, by Linux."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measured(
    address: str, process: int, inputs: np.ndarray, clients: int, seconds: float
) -> tuple[Load, list[np.ndarray]]:
    """What so many clients find, and the outputs of each row of the inputs."""
    sent, header = bodies(inputs)
    url = f"{address}/v2/models/network/infer"
    times: list[float] = []
    found: dict[int, np.ndarray] = {}

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def ask(number: int) -> np.ndarray:
            async with session.post(url, data=sent[number], headers={HEADER: header}) as answer:
                content = await answer.read()
                assert answer.status == 200, content
                return np.frombuffer(content[int(answer.headers[HEADER]) :], np.float32)

        async def client(number: int, end: float) -> None:
            while time.perf_counter() < end:
                start = time.perf_counter()
                row = (number + len(times)) % len(sent)
                output = await ask(row)
                times.append(time.perf_counter() - start)
                known = found.setdefault(row, output)
                np.testing.assert_allclose(output, known, 1e-3, 1e-3)

        for row in range(len(sent)):
            found[row] = await ask(row)
        begin, used = time.perf_counter(), processor_seconds(process)
        await asyncio.gather(*[client(k, begin + seconds) for k in range(clients)])
        elapsed = time.perf_counter() - begin
    used = processor_seconds(process) - used
    p50, p99 = np.percentile(np.array(times) * 1e3, (50, 99))
    return Load(len(times) / elapsed, float(p50), float(p99), used / len(times) * 1e3), [
        found[k] for k in sorted(found)
    ]


def compare(
    name: str, model: nn.Module, inputs: np.ndarray, options: argparse.Namespace
) -> Iterator[str]:
    """The lines of the table for a network."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        path = Path(folder) / "network.mo"
        example = {"x": metaop.from_numpy(inputs[:2].copy())}

        def network(x: metaop.Tensor) -> metaop.Tensor:
            return model(x)

        metaop.export(network, example, path, dynamic={"x": {0: "batch"}})
        metaop.onnx.export(
            network,
            (example["x"],),
            str(path.with_suffix(".onnx")),
            input_names=["x"],
            dynamic_axes={"x": {0: "batch"}},
        )
        commands: dict[str, list[str]] = {}
        for label, rows in (("joined", _ROWS), ("alone", 1)):
            commands[f"metaop, {label}"] = [
                *("metaop", "serve", str(path), "--port", "0", "--max-batch", str(rows)),
            ]
            commands[f"onnxruntime, {label}"] = [
                *("benchmarks.serving", "--serve", str(path), "--rows", str(rows)),
            ]
        processes = {
            label: stack.enter_context(started(options.threads, command))
            for label, command in commands.items()
        }
        places = {label: (address_of(one), one.pid) for label, one in processes.items()}
        wanted: Sequence[np.ndarray] = []
        for clients in options.clients:
            loads: dict[str, list[Load]] = {label: [] for label in places}
            for _ in range(options.rounds):
                for label, place in places.items():
                    load, found = asyncio.run(measured(*place, inputs, clients, options.seconds))
                    loads[label].append(load)
                    wanted = wanted or found
                    for one, other in zip(found, wanted, strict=True):
                        scale = float(np.abs(other).max())
                        assert np.abs(one - other).max() <= 1e-4 * scale, label
            for label, all_of_it in loads.items():
                rate, p50, p99, used = (median(column) for column in zip(*all_of_it))
                columns = f"{rate:.0f} | {p50:.1f} ms | {p99:.1f} ms | {used:.2f} ms"
                yield f"| {name} | {clients} | {label} | {columns} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a table in Markdown."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="of each library; 0 is one a core")
    parser.add_argument("--only", default="", help="networks with this word in their name")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        serve_onnx(options.serve, options.rows)
        return
    print("| network | clients | server | requests/s | p50 | p99 | processor |", flush=True)
    print("|---|---|---|---|---|---|---|", flush=True)
    for name, (model, inputs) in networks().items():
        if options.only in name:
            line: Any
            for line in compare(name, model.eval(), inputs, options):
                print(line, flush=True)


if __name__ == "__main__":
    main()
