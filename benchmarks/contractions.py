"""Matrix products in all transpositions and the convolutions of ResNet-50 beside PyTorch.

    python benchmarks/contractions.py [--only WORD] [--json FILE] [--rounds N] [--threads N]

Prints a Markdown table of GFLOP/s and of the ratio PyTorch time / metaop time (above 1 metaop is
faster), and writes the same as JSON. Runs alternate in short rounds and the fastest counts.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch

from metaop.codegen.llvm.program import LLVMProgram
from metaop.codegen.memory import Buffer
from metaop.codegen.schedule import schedule
from metaop.differentiation.transposition import pullback
from metaop.operators.convolution import convolution
from metaop.operators.linear_algebra import matmul
from metaop.reindex import views
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.node import Node, input_node

_SECONDS = 0.06  # of one contender in one round
_BATCH = 8
# rows, columns, depth
PRODUCTS = (
    (256, 256, 256),
    (512, 512, 512),
    (1024, 1024, 1024),
    (2048, 768, 3072),
    (512, 64, 512),
    (8192, 32, 32),
    (64, 10, 784),
    (128, 3072, 768),
)
# Channels in and out, image, window, stride, padding: every convolution of ResNet-50 once.
CONVOLUTIONS = (
    (3, 64, 224, 7, 2, 3),
    (64, 64, 56, 1, 1, 0),
    (64, 64, 56, 3, 1, 1),
    (64, 256, 56, 1, 1, 0),
    (256, 64, 56, 1, 1, 0),
    (256, 128, 56, 1, 1, 0),
    (128, 128, 56, 3, 2, 1),
    (128, 512, 28, 1, 1, 0),
    (256, 512, 56, 1, 2, 0),
    (512, 128, 28, 1, 1, 0),
    (128, 128, 28, 3, 1, 1),
    (512, 256, 28, 1, 1, 0),
    (256, 256, 28, 3, 2, 1),
    (256, 1024, 14, 1, 1, 0),
    (512, 1024, 28, 1, 2, 0),
    (1024, 256, 14, 1, 1, 0),
    (256, 256, 14, 3, 1, 1),
    (1024, 512, 14, 1, 1, 0),
    (512, 512, 14, 3, 2, 1),
    (512, 2048, 7, 1, 1, 0),
    (1024, 2048, 14, 1, 2, 0),
    (2048, 512, 7, 1, 1, 0),
    (512, 512, 7, 3, 1, 1),
)
PERMUTATIONS = (
    ((1024, 1024), (1, 0)),
    ((1000, 777), (1, 0)),
    ((8, 197, 12, 64), (0, 2, 1, 3)),
    ((8, 197, 12, 64), (0, 2, 3, 1)),
    ((8, 64, 56, 56), (0, 2, 3, 1)),
    ((8, 56, 56, 64), (0, 3, 1, 2)),
    ((8, 224, 224, 3), (0, 3, 1, 2)),
)


@dataclass
class Case:
    """One operation: its work in floating point operations (or bytes), and both contenders."""

    name: str
    work: float
    ours: Callable[[], object]
    theirs: Callable[[], object]
    check: Callable[[], float]


@dataclass
class Result:
    """Giga-operations (bytes, for permutations) a second, and PyTorch's time over ours."""

    name: str
    metaop: float
    torch: float
    ratio: float
    error: float


def _case(
    name: str,
    work: float,
    inputs: Sequence[Node],
    output: Node,
    arrays: Sequence[np.ndarray],
    theirs: Callable[[], torch.Tensor],
) -> Case:
    program = LLVMProgram(schedule(inputs, [output]))
    buffers = [Buffer.from_numpy(array) for array in arrays]

    def check() -> float:
        wanted = theirs().numpy()
        found = program.run(buffers)[0].view(output.shape, np.float32)
        return float(np.abs(found - wanted).max() / np.abs(wanted).max())

    return Case(name, work, lambda: program.run(buffers), theirs, check)


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def products() -> Iterator[Case]:
    """Matrix products; N and T tell whether a factor is transposed in memory."""
    for rows, columns, depth in PRODUCTS:
        for left_turned, right_turned in ((0, 0), (0, 1), (1, 0), (1, 1)):
            left_shape = (depth, rows) if left_turned else (rows, depth)
            right_shape = (columns, depth) if right_turned else (depth, columns)
            a, b = _random(*left_shape), _random(*right_shape)
            left = input_node(0, left_shape, dtypes.float32)
            right = input_node(1, right_shape, dtypes.float32)
            output = matmul(
                views.transpose(left, 0, 1) if left_turned else left,
                views.transpose(right, 0, 1) if right_turned else right,
            )
            x = torch.from_numpy(a.T if left_turned else a)
            y = torch.from_numpy(b.T if right_turned else b)
            form = "NT"[left_turned] + "NT"[right_turned]
            yield _case(
                f"product {rows}x{columns}x{depth} {form}",
                2.0 * rows * columns * depth,
                [left, right],
                output,
                [a, b],
                lambda x=x, y=y: x @ y,
            )


def convolutions() -> Iterator[Case]:
    """Convolutions forward, and their gradients by the input and by the weight."""
    for inputs, outputs, image, window, stride, padding in CONVOLUTIONS:
        x, w = _random(_BATCH, inputs, image, image), _random(outputs, inputs, window, window)
        node_x = input_node(0, x.shape, dtypes.float32)
        node_w = input_node(1, w.shape, dtypes.float32)
        pairs = ((stride,) * 2, (padding,) * 2, (1, 1))
        y = convolution(node_x, node_w, None, pairs[0], pairs[1], pairs[1], pairs[2], 1)
        g = _random(*y.shape)
        node_g = input_node(2, y.shape, dtypes.float32)
        by_input, by_weight = pullback([y], [node_g], [node_x, node_w])
        assert by_input is not None and by_weight is not None
        tx, tw, tg = map(torch.from_numpy, (x, w, g))
        name = f"{inputs}->{outputs}@{image} {window}x{window} stride {stride}"
        work = 2.0 * y.size * inputs * window * window

        def torch_backward(mask: list[bool], tx=tx, tw=tw, tg=tg, pairs=pairs):
            return torch.ops.aten.convolution_backward(
                tg, tx, tw, None, *pairs, False, [0, 0], 1, mask
            )

        yield _case(
            f"forward {name}",
            work,
            [node_x, node_w],
            y,
            [x, w],
            lambda tx=tx, tw=tw, pairs=pairs: torch.conv2d(tx, tw, None, *pairs),
        )
        yield _case(
            f"by input {name}",
            work,
            [node_x, node_w, node_g],
            by_input,
            [x, w, g],
            lambda back=torch_backward: back([True, False, False])[0],
        )
        yield _case(
            f"by weight {name}",
            work,
            [node_x, node_w, node_g],
            by_weight,
            [x, w, g],
            lambda back=torch_backward: back([False, True, False])[1],
        )


def permutations() -> Iterator[Case]:
    """Axes in another order, beside PyTorch's copy; the work is the bytes moved."""
    for shape, order in PERMUTATIONS:
        x = _random(*shape)
        node = input_node(0, shape, dtypes.float32)
        one = torch.from_numpy(x).permute(order)
        yield _case(
            f"permute {shape} {order}",
            2.0 * x.nbytes,
            [node],
            views.permute(node, order),
            [x],
            lambda one=one: one.contiguous(),
        )


def _fastest(run: Callable[[], object], clock: Callable[[], float]) -> float:
    best = float("inf")
    stop = clock() + _SECONDS
    while True:
        start = clock()
        run()
        end = clock()
        best = min(best, end - start)
        if end > stop:
            return best


def measure(case: Case, rounds: int, threads: int) -> Result:
    """The fastest of several alternating rounds; one thread is measured by its processor time."""
    error = case.check()
    clock = time.thread_time if threads == 1 else time.perf_counter
    ours = theirs = float("inf")
    for _ in range(rounds):
        ours = min(ours, _fastest(case.ours, clock))
        theirs = min(theirs, _fastest(case.theirs, clock))
    scale = case.work * 1e-9
    return Result(case.name, scale / ours, scale / theirs, theirs / ours, error)


def main() -> None:
    """Measures all cases whose names contain a word."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--json", default="")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    os.environ["METAOP_NUM_THREADS"] = str(options.threads)
    torch.set_num_threads(options.threads)
    print("| case | metaop G/s | PyTorch G/s | ratio | error |\n|---|---|---|---|---|", flush=True)
    results = []
    for family in (products, convolutions, permutations):
        for case in family():
            if options.only not in case.name:
                continue
            one = measure(case, options.rounds, options.threads)
            results.append(one)
            print(
                f"| {one.name} | {one.metaop:.1f} | {one.torch:.1f} | {one.ratio:.2f} "
                f"| {one.error:.0e} |",
                flush=True,
            )
    logs = np.log([one.ratio for one in results])
    print(f"\ngeometric mean of the ratios: {np.exp(logs.mean()):.3f} of {len(results)} cases")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump([asdict(one) for one in results], file, indent=1)


if __name__ == "__main__":
    main()
