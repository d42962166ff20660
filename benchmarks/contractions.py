"""Matrix products and the convolutions of ResNet-50 and MobileNetV2 beside PyTorch.

    python -m benchmarks.contractions [--only WORD] [--json FILE] [--rounds N] [--threads N]
                                      [--target NAME] [--tune]

Prints a Markdown table of GFLOP/s and of the ratio PyTorch time / metaop time (above 1 metaop is
faster), then the same for each family: sums over the layers of a network, geometric means of the
products and permutations. PyTorch runs convolutions on images in both orders of memory (NCHW and
channels_last), and its better time counts. Runs alternate in short rounds and the fastest counts.
With --tune, metaop takes what a search finds, or found before, and the column "tuning" tells how
many times as fast that is as without.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch

from benchmarks.narrowed import TARGETS, restart
from metaop.codegen.llvm import tuning
from metaop.codegen.llvm.machine import host_machine
from metaop.codegen.llvm.program import LLVMProgram
from metaop.codegen.memory.buffers import Buffer, allocate
from metaop.compiler import schedule
from metaop.differentiation.transposition import pullback
from metaop.operators.convolution import convolution
from metaop.operators.linear_algebra import matmul
from metaop.reindex import views
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType
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
# Columns and depth of weights that few rows meet: small batches of a decoder or a perceptron.
WEIGHTS = ((768, 768), (3072, 768), (768, 3072), (2048, 2048))
FEW_ROWS = (1, 2, 4, 8, 16)
# Channels in and out, image, window, stride, padding, how often: every convolution of ResNet-50.
CONVOLUTIONS = (
    (3, 64, 224, 7, 2, 3, 1),
    (64, 64, 56, 1, 1, 0, 1),
    (64, 64, 56, 3, 1, 1, 3),
    (64, 256, 56, 1, 1, 0, 4),
    (256, 64, 56, 1, 1, 0, 2),
    (256, 128, 56, 1, 1, 0, 1),
    (128, 128, 56, 3, 2, 1, 1),
    (128, 512, 28, 1, 1, 0, 4),
    (256, 512, 56, 1, 2, 0, 1),
    (512, 128, 28, 1, 1, 0, 3),
    (128, 128, 28, 3, 1, 1, 3),
    (512, 256, 28, 1, 1, 0, 1),
    (256, 256, 28, 3, 2, 1, 1),
    (256, 1024, 14, 1, 1, 0, 6),
    (512, 1024, 28, 1, 2, 0, 1),
    (1024, 256, 14, 1, 1, 0, 5),
    (256, 256, 14, 3, 1, 1, 5),
    (1024, 512, 14, 1, 1, 0, 1),
    (512, 512, 14, 3, 2, 1, 1),
    (512, 2048, 7, 1, 1, 0, 3),
    (1024, 2048, 14, 1, 2, 0, 1),
    (2048, 512, 7, 1, 1, 0, 2),
    (512, 512, 7, 3, 1, 1, 2),
)
# Channels, image, stride, how often: every depthwise convolution of MobileNetV2, all 3 x 3.
DEPTHWISE = (
    (32, 112, 1, 1),
    (96, 112, 2, 1),
    (144, 56, 1, 1),
    (144, 56, 2, 1),
    (192, 28, 1, 2),
    (192, 28, 2, 1),
    (384, 14, 1, 4),
    (576, 14, 1, 2),
    (576, 14, 2, 1),
    (960, 7, 1, 3),
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
    """One operation: its work in floating point operations (or bytes), and the contenders.

    `count` tells how often the operation occurs in its network; 0 keeps it out of the sums.
    `untuned` is metaop without tuning, if that changed anything.
    """

    family: str
    name: str
    work: float
    ours: Callable[[], object]
    theirs: Sequence[Callable[[], object]]
    check: Callable[[], float]
    count: int
    untuned: Callable[[], object] | None = None


@dataclass
class Result:
    """Seconds of both, giga-operations (bytes, for permutations) a second, and their ratio.

    `gain_of_tuning` is the time without tuning over the time with it.
    """

    family: str
    name: str
    count: int
    seconds: float
    torch_seconds: float
    rate: float
    torch_rate: float
    ratio: float
    error: float
    gain_of_tuning: float


def _case(
    family: str,
    name: str,
    work: float,
    inputs: Sequence[Node],
    output: Node,
    arrays: Sequence[np.ndarray],
    theirs: Sequence[Callable[[], torch.Tensor]],
    count: int = 1,
) -> Case:
    plain, program = (
        LLVMProgram(schedule(inputs, [output], machine))
        for machine in (host_machine(), tuning.tuned(host_machine()))
    )
    buffers = [Buffer.from_numpy(array) for array in arrays]

    def check() -> float:
        wanted = theirs[0]().float().numpy()
        found = program.run(buffers)[0].view(output.shape, output.dtype.numpy)
        return float(np.abs(found.astype(np.float32) - wanted).max() / np.abs(wanted).max())

    is_same = program.launches == plain.launches
    return Case(
        family,
        name,
        work,
        lambda: program.run(buffers),
        theirs,
        check,
        count,
        None if is_same else lambda: plain.run(buffers),
    )


def _random(*shape: int) -> np.ndarray:
    """Numbers that begin with a line of memory, as the tensors of both frameworks do."""
    numbers = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    aligned = allocate(numbers.nbytes).view(shape, np.float32)
    aligned[...] = numbers
    return aligned


def products(family: str = "product", dtype: DType = dtypes.float32) -> Iterator[Case]:
    """Matrix products in all four orders of memory."""
    for sizes in PRODUCTS:
        for form in ("NN", "NT", "TN", "TT"):
            yield _product(family, sizes, form, dtype)


def thin_products() -> Iterator[Case]:
    """A layer of few rows: forward (and by input) in both orders of the weight, and by weight.

    In the gradient by the weight the few rows are the depth.
    """
    for rows in FEW_ROWS:
        for columns, depth in WEIGHTS:
            for form in ("NN", "NT"):
                yield _product(f"thin {form}", (rows, columns, depth), form)
            yield _product("thin by weight", (depth, columns, rows), "TN")


def _product(
    family: str, sizes: tuple[int, int, int], form: str, dtype: DType = dtypes.float32
) -> Case:
    """A product of rows, columns and depth; N and T tell whether a factor lies transposed."""
    rows, columns, depth = sizes
    left_turned, right_turned = (letter == "T" for letter in form)
    left_shape = (depth, rows) if left_turned else (rows, depth)
    right_shape = (columns, depth) if right_turned else (depth, columns)
    a, b = _random(*left_shape), _random(*right_shape)
    left, right = input_node(0, left_shape, dtype), input_node(1, right_shape, dtype)
    output = matmul(
        views.transpose(left, 0, 1) if left_turned else left,
        views.transpose(right, 0, 1) if right_turned else right,
    )
    x, y = (torch.from_numpy(array).to(getattr(torch, dtype.name)) for array in (a, b))
    x, y = x.T if left_turned else x, y.T if right_turned else y
    return _case(
        family,
        f"{rows}x{columns}x{depth} {form}",
        2.0 * rows * columns * depth,
        [left, right],
        output,
        [one.astype(dtype.numpy, copy=False) for one in (a, b)],
        [lambda: x @ y],
    )


def products_of_bfloat16() -> Iterator[Case]:
    """The same in bfloat16, as automatic mixed precision runs them."""
    yield from products("product of bfloat16", dtypes.bfloat16)


def convolutions(suffix: str = "", dtype: DType = dtypes.float32) -> Iterator[Case]:
    """Convolutions forward, and their gradients with respect to input and weight."""
    families = [f"{name}{suffix}" for name in ("forward", "by input", "by weight")]
    for inputs, outputs, image, window, stride, padding, count in CONVOLUTIONS:
        name = f"{inputs}->{outputs}@{image} {window}x{window} stride {stride}"
        shapes = (_BATCH, inputs, image, image), (outputs, inputs, window, window)
        # Nobody needs the gradient of the images.
        counts = (count, 0 if inputs == 3 else count, count)
        yield from _layer(families, name, shapes, stride, padding, counts, dtype)


def convolutions_of_bfloat16() -> Iterator[Case]:
    """The same in bfloat16."""
    yield from convolutions(" of bfloat16", dtypes.bfloat16)


def depthwise() -> Iterator[Case]:
    """Depthwise convolutions, and their gradients."""
    families = "depthwise forward", "depthwise by input", "depthwise by weight"
    for channels, image, stride, count in DEPTHWISE:
        name = f"{channels}@{image} stride {stride}"
        shapes = (_BATCH, channels, image, image), (channels, 1, 3, 3)
        yield from _layer(families, name, shapes, stride, 1, (count, count, count))


def _layer(
    families: Sequence[str],
    name: str,
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    stride: int,
    padding: int,
    counts: Sequence[int],
    dtype: DType = dtypes.float32,
) -> Iterator[Case]:
    """A convolution of an input and a weight of these shapes, and its two gradients."""
    x, w = _random(*shapes[0]), _random(*shapes[1])
    groups = x.shape[1] // w.shape[1]
    node_x, node_w = (input_node(k, shape, dtype) for k, shape in enumerate(shapes))
    pads = (padding, padding)
    y = convolution(node_x, node_w, None, (stride, stride), pads, pads, (1, 1), groups)
    g = _random(*y.shape)
    node_g = input_node(2, y.shape, dtype)
    by_input, by_weight = pullback([y], [node_g], [node_x, node_w])
    assert by_input is not None and by_weight is not None
    work = 2.0 * y.size * math.prod(w.shape[1:])
    nodes, arrays = (
        [node_x, node_w, node_g],
        [one.astype(dtype.numpy, copy=False) for one in (x, w, g)],
    )
    tensors = [torch.from_numpy(one).to(getattr(torch, dtype.name)) for one in (x, w, g)]
    theirs = _torch_convolutions(tensors, stride, padding)
    for k, output in enumerate((y, by_input, by_weight)):
        used = 3 if k else 2
        yield _case(
            families[k], name, work, nodes[:used], output, arrays[:used], theirs[k], counts[k]
        )


def _torch_convolutions(
    tensors: Sequence[torch.Tensor], stride: int, padding: int
) -> list[list[Callable[[], object]]]:
    """Forward, by input, by weight: each in both orders of memory."""
    forward, by_input, by_weight = [], [], []
    strides, pads, groups = (
        (stride, stride),
        (padding, padding),
        tensors[0].shape[1] // tensors[1].shape[1],
    )
    for order in (torch.contiguous_format, torch.channels_last):
        tx, tw, tg = (tensor.contiguous(memory_format=order) for tensor in tensors)

        def backward(mask: list[bool], tx=tx, tw=tw, tg=tg) -> tuple[torch.Tensor, ...]:
            return torch.ops.aten.convolution_backward(
                tg, tx, tw, None, strides, pads, (1, 1), False, [0, 0], groups, mask
            )

        forward.append(
            lambda tx=tx, tw=tw: torch.conv2d(tx, tw, None, strides, pads, (1, 1), groups)
        )
        by_input.append(lambda back=backward: back([True, False, False])[0])
        by_weight.append(lambda back=backward: back([False, True, False])[1])
    return [forward, by_input, by_weight]


def permutations() -> Iterator[Case]:
    """Permutations of axes and PyTorch's copy; the work is the number of bytes moved."""
    for shape, order in PERMUTATIONS:
        x = _random(*shape)
        node = input_node(0, shape, dtypes.float32)
        one = torch.from_numpy(x).permute(order)
        yield _case(
            "permute",
            f"{shape} {order}",
            2.0 * x.nbytes,
            [node],
            views.permute(node, order),
            [x],
            [lambda one=one: one.contiguous()],
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
    ours = theirs = untuned = float("inf")
    for _ in range(rounds):
        ours = min(ours, _fastest(case.ours, clock))
        if case.untuned is not None:
            untuned = min(untuned, _fastest(case.untuned, clock))
        theirs = min(theirs, *(_fastest(run, clock) for run in case.theirs), float("inf"))
    scale = case.work * 1e-9
    return Result(
        case.family,
        case.name,
        case.count,
        ours,
        theirs,
        scale / ours,
        scale / theirs,
        theirs / ours,
        error,
        1.0 if case.untuned is None else untuned / ours,
    )


def summary(results: Sequence[Result]) -> Iterator[str]:
    """A line for each family: its sum over the network, and the mean and the worst ratio."""
    yield "| family | metaop ms | PyTorch ms | ratio of sums | mean ratio | worst | tuning |"
    yield "|---|---|---|---|---|---|---|"
    for family in dict.fromkeys(one.family for one in results):
        members = [one for one in results if one.family == family and one.count]
        if members:
            ours = sum(one.count * one.seconds for one in members) * 1e3
            theirs = sum(one.count * one.torch_seconds for one in members) * 1e3
            mean = np.exp(np.mean(np.log([one.ratio for one in members])))
            worst = min(one.ratio for one in members)
            before = sum(one.count * one.seconds * one.gain_of_tuning for one in members) * 1e3
            sums = f"{ours:.1f} | {theirs:.1f} | {theirs / ours:.2f}"
            gain = f"{before / ours:.2f}"
            yield f"| {family} | {sums} | {mean:.2f} | {worst:.2f} | {gain} |"


def main() -> None:
    """Measures all cases whose names contain the word."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--json", default="")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--target", choices=TARGETS, help="instructions that both may use at most")
    parser.add_argument("--tune", action="store_true")
    options = parser.parse_args()
    if options.target:
        restart("benchmarks.contractions", sys.argv[1:], options.target)
    os.environ["METAOP_TIERS"] = "0"
    os.environ["METAOP_TUNE"] = "search" if options.tune else "off"
    os.environ["METAOP_NUM_THREADS"] = str(options.threads)
    torch.set_num_threads(options.threads)
    print("| case | metaop G/s | PyTorch G/s | ratio | error | tuning |")
    print("|---|---|---|---|---|---|", flush=True)
    results = []
    for cases in (
        *(products, thin_products, products_of_bfloat16, convolutions, convolutions_of_bfloat16),
        *(depthwise, permutations),
    ):
        for case in cases():
            if options.only not in f"{case.family} {case.name}":
                continue
            one = measure(case, options.rounds, options.threads)
            results.append(one)
            print(
                f"| {one.family} {one.name} | {one.rate:.1f} | {one.torch_rate:.1f} "
                f"| {one.ratio:.2f} | {one.error:.0e} | {one.gain_of_tuning:.2f} |",
                flush=True,
            )
    print("", *summary(results), sep="\n")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump([asdict(one) for one in results], file, indent=1)


if __name__ == "__main__":
    main()
