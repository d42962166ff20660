"""Streams of ever new sizes: every step as PyTorch computes it, few programs for all of them."""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import chain
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import metaop
from metaop.codegen.caches.kernels import KernelCache
from metaop.codegen.llvm import kernels
from metaop.codegen.llvm import rows as program_rows
from metaop.codegen.nest.ir import LoopNest
from metaop.compiler import compile_subgraph
from metaop.execution import executor, specialisation
from metaop.inspect import profile

Numbers = np.random.Generator
Step = Callable[[Any, Numbers], list[Any]]

STREAMS: dict[str, Step] = {}
# Steps of a stream, and programs that they may take: how many thresholds lie between the sizes
# depends on the processor.
_STEPS, _MOST_PROGRAMS = 30, 12


def stream(step: Step) -> Step:
    """Registers one step of a stream."""
    STREAMS[step.__name__] = step
    return step


def drawn(T: Any, numbers: Numbers, *shape: int, scale: float = 1.0) -> Any:
    values = T.tensor(scale * numbers.standard_normal(shape), dtype=T.float32)
    return values.requires_grad_()


def weight(T: Any, *shape: int) -> Any:
    return drawn(T, np.random.default_rng(7), *shape, scale=0.1)


def with_gradients(loss: Any, *leaves: Any) -> list[Any]:
    for leaf in leaves:
        leaf.grad = None
    loss.backward()
    return [loss.detach(), *(leaf.grad for leaf in leaves)]


@stream
def sorted_rows(T: Any, numbers: Numbers) -> list[Any]:
    rows, length = (int(numbers.integers(2, most)) for most in (9, 300))
    x = drawn(T, numbers, rows, length)
    values, places = x.sort(1, descending=True)
    loss = (values * T.arange(1.0, length + 1)).sum() / length
    return [places, *with_gradients(loss, x)]


@stream
def batch_sizes(T: Any, numbers: Numbers) -> list[Any]:
    F, count = T.nn.functional, int(numbers.integers(2, 200))
    first, second = weight(T, 32, 20), weight(T, 5, 32)
    target = T.tensor(numbers.integers(0, 5, count))
    hidden = F.linear(drawn(T, numbers, count, 20), first).relu()
    return with_gradients(F.cross_entropy(F.linear(hidden, second), target), first, second)


@stream
def sizes_of_products(T: Any, numbers: Numbers) -> list[Any]:
    rows, depth, columns = (int(n) for n in numbers.integers(2, 700, 3))
    left, right = drawn(T, numbers, rows, depth), drawn(T, numbers, depth, columns)
    return with_gradients((left @ right).tanh().sum() / depth, left, right)


@stream
def lengths(T: Any, numbers: Numbers) -> list[Any]:
    F, length = T.nn.functional, int(numbers.integers(2, 100))
    query, key, value = (drawn(T, numbers, 2, 2, length, 16) for _ in range(3))
    result = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    return with_gradients(result.square().sum(), query, key, value)


@stream
def long_lengths(T: Any, numbers: Numbers) -> list[Any]:
    """Scores that are worth a tiled group of launches."""
    F, length = T.nn.functional, int(numbers.integers(90, 160))
    query, key, value = (drawn(T, numbers, 4, 4, length, 8) for _ in range(3))
    result = F.scaled_dot_product_attention(query, key, value)
    return with_gradients(result.square().sum(), query, key, value)


@stream
def rows_of_batches(T: Any, numbers: Numbers) -> list[Any]:
    """Rows of which no block divides the number, summed in several blocks of the depth."""
    rows, first, second = drawn(T, numbers, 8, int(numbers.integers(2, 120)), 600), 40, 70
    hidden = (rows @ weight(T, 600, first)).relu()
    return with_gradients((hidden @ weight(T, first, second)).square().mean(), rows)


@stream
def images(T: Any, numbers: Numbers) -> list[Any]:
    F, (height, width) = T.nn.functional, map(int, numbers.integers(8, 50, 2))
    kernel, scale, shift = weight(T, 8, 3, 3, 3), weight(T, 8), weight(T, 8)
    pixels = drawn(T, numbers, 2, 3, height, width)
    result = F.batch_norm(F.conv2d(pixels, kernel, padding=1), None, None, scale, shift, True)
    loss = F.adaptive_avg_pool2d(F.max_pool2d(result.relu(), 2), 1).square().sum()
    return with_gradients(loss, pixels, kernel, scale, shift)


@stream
def columns_of_images(T: Any, numbers: Numbers) -> list[Any]:
    """Vectors of columns reach from one image into the next."""
    F, (batch, *size) = T.nn.functional, map(int, numbers.integers(2, 12, 3))
    first, second = weight(T, 12, 8, 1, 1), weight(T, 20, 12, 1, 1)
    pixels = drawn(T, numbers, batch, 8, *size)
    hidden = F.conv2d(pixels, first).relu()
    return with_gradients(F.conv2d(hidden, second).square().mean(), pixels, first, second)


@stream
def windows_of_single_channels(T: Any, numbers: Numbers) -> list[Any]:
    F, (batch, *size) = T.nn.functional, map(int, numbers.integers(6, 40, 3))
    narrow, wide = weight(T, 8, 1, 3, 3), weight(T, 8, 1, 5, 5)
    pixels = drawn(T, numbers, batch, 8, *size)
    hidden = F.conv2d(pixels, narrow, padding=1, groups=8)
    loss = F.conv2d(hidden, wide, stride=2, padding=2, groups=8).square().mean()
    return with_gradients(loss, pixels, narrow, wide)


@stream
def parts_of_images(T: Any, numbers: Numbers) -> list[Any]:
    height, width = map(int, numbers.integers(14, 60, 2))
    pixels = drawn(T, numbers, 2, 3, height, width)
    return with_gradients(T.nn.functional.adaptive_avg_pool2d(pixels, 7).square().sum(), pixels)


@stream
def strided_images(T: Any, numbers: Numbers) -> list[Any]:
    size = int(numbers.integers(5, 40))
    pixels, kernel = drawn(T, numbers, 2, 8, size, size), weight(T, 8, 1, 3, 3)
    result = T.nn.functional.conv2d(pixels, kernel, padding=1, groups=8, stride=2)
    return with_gradients(result.square().mean(), pixels, kernel)


@stream
def signals(T: Any, numbers: Numbers) -> list[Any]:
    values, kernel = drawn(T, numbers, 2, 4, int(numbers.integers(9, 200))), weight(T, 6, 4, 5)
    result = T.nn.functional.conv1d(values, kernel, dilation=2)
    return with_gradients(result.square().mean(), values, kernel)


@stream
def groups(T: Any, numbers: Numbers) -> list[Any]:
    size = int(numbers.integers(2, 30))
    pixels = drawn(T, numbers, 2, 8, size, size)
    normed = T.nn.functional.group_norm(pixels, 4)
    return with_gradients((normed * pixels).tanh().sum(), pixels)


@stream
def slice_starts(T: Any, numbers: Numbers) -> list[Any]:
    values, start = weight(T, 700, 10), int(numbers.integers(0, 500))
    return with_gradients(values[start : start + 64].square().sum(), values)


@stream
def pads(T: Any, numbers: Numbers) -> list[Any]:
    before, after, length = map(int, numbers.integers(0, 9, 3))
    values = drawn(T, numbers, 2, length + 3)
    padded = T.nn.functional.pad(values, (before, after))
    return with_gradients(padded.cumsum(1).square().sum(), values)


@stream
def shifts(T: Any, numbers: Numbers) -> list[Any]:
    values = weight(T, 31, 3)
    return with_gradients((values.roll(int(numbers.integers(0, 30)), 0) * values).sum(), values)


@stream
def slopes(T: Any, numbers: Numbers) -> list[Any]:
    F, slope, values = T.nn.functional, float(numbers.random()), drawn(T, numbers, 7, 9)
    result = F.leaky_relu(values, slope) + F.elu(values, slope + 0.5)
    return with_gradients((result + F.threshold(values, slope, 2 * slope)).sum(), values)


@stream
def edges(T: Any, numbers: Numbers) -> list[Any]:
    nodes, count = map(int, numbers.integers(2, 150, 2))
    values = drawn(T, numbers, nodes, 8)
    source, target = (T.tensor(numbers.integers(0, nodes, count)) for _ in range(2))
    summed = T.zeros(nodes, 8).index_add(0, target, values[source])
    return with_gradients((summed * values).sum(), values)


@stream
def boxes(T: Any, numbers: Numbers) -> list[Any]:
    mine, other = (drawn(T, numbers, int(numbers.integers(1, 60)), 4) for _ in range(2))
    low = T.maximum(mine[:, None, :2], other[None, :, :2])
    high = T.minimum(mine[:, None, 2:], other[None, :, 2:])
    extent = (high - low).clamp(min=0)
    shared = extent[..., 0] * extent[..., 1]
    return [*with_gradients(shared.sum(), mine, other), shared.detach().max(1)[0]]


@stream
def joined_parts(T: Any, numbers: Numbers) -> list[Any]:
    left, right = (drawn(T, numbers, int(numbers.integers(1, 60)), 4) for _ in range(2))
    whole = T.cat([left, right])
    return with_gradients((whole * whole.flip(0)).sum(), left, right)


@stream
def moments(T: Any, numbers: Numbers) -> list[Any]:
    values = drawn(T, numbers, *map(int, numbers.integers(2, 25, 3)))
    means = values.mean((0, 2)) * values.amax((0, 2))
    return with_gradients(means.sum() + values.var(1).sum(), values)


@stream
def views(T: Any, numbers: Numbers) -> list[Any]:
    rows, columns = map(int, numbers.integers(2, 40, 2))
    values = drawn(T, numbers, rows, columns, 3)
    turned = values.reshape(rows * columns, 3).t().reshape(3, rows, columns).permute(1, 2, 0)
    return with_gradients(turned[:, ::2].exp().sum(), values)


@stream
def words(T: Any, numbers: Numbers) -> list[Any]:
    table, shape = weight(T, 50, 12), tuple(map(int, numbers.integers(1, 40, 2)))
    found = T.nn.functional.embedding(T.tensor(numbers.integers(0, 50, shape)), table)
    return with_gradients(found.tanh().mean(1).square().sum(), table)


@stream
def ranges(T: Any, numbers: Numbers) -> list[Any]:
    start, count = int(numbers.integers(0, 50)), int(numbers.integers(1, 300))
    values = T.arange(start, start + count).float()
    return [(values * values).sum(), values.mean()]


@stream
def written_rows(T: Any, numbers: Numbers) -> list[Any]:
    count = int(numbers.integers(2, 60))
    row, values = int(numbers.integers(0, count)), T.zeros(count, 4)
    values[row] = 1.0
    values[:, 3] = row
    return [values, values.sum()]


@stream
def packed_sequences(T: Any, numbers: Numbers) -> list[Any]:
    count, steps = (int(n) for n in numbers.integers(2, 12, 2))
    sizes = numbers.integers(1, steps + 1, count)
    x = drawn(T, numbers, int(sizes.max()), count, 3)
    packed = T.nn.utils.rnn.pack_padded_sequence(x, sizes.tolist(), enforce_sorted=False)
    packed = packed._replace(data=(packed.data @ weight(T, 3, 4)).tanh())
    padded, _ = T.nn.utils.rnn.pad_packed_sequence(packed, True, -1.0, total_length=steps + 2)
    return with_gradients((padded * padded).sum(1).exp().mean(), x)


@stream
def padded_sequences(T: Any, numbers: Numbers) -> list[Any]:
    parts = [drawn(T, numbers, int(n), 5) for n in numbers.integers(1, 40, 4)]
    padded = T.nn.utils.rnn.pad_sequence(parts, True, 0.5)
    return with_gradients((padded @ weight(T, 5, 2)).sin().mean(), *parts)


@stream
def alignments(T: Any, numbers: Numbers) -> list[Any]:
    steps, count, most = (int(n) for n in numbers.integers((8, 2, 2), (80, 6, 5)))
    x = drawn(T, numbers, steps, count, 7)
    targets = T.tensor(numbers.integers(1, 7, (count, most)))
    ends, sizes = (8, *[steps] * (count - 1)), (most,) * count
    scores = T.nn.functional.log_softmax(x, -1)
    return with_gradients(T.nn.functional.ctc_loss(scores, targets, ends, sizes), x)


@stream
def products(T: Any, numbers: Numbers) -> list[Any]:
    """Their gradient has one structure between two powers of two."""
    x = drawn(T, numbers, 3, int(numbers.integers(34, 64)))
    return with_gradients(x.prod(1).sum(), x)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many programs were made and kernels compiled, in a process that has none yet."""
    counts = {"programs": 0, "kernels": 0}

    def counting(what: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            counts[what] += 1
            return function(*arguments)

        return counted

    compile_kernel: Callable[[LoopNest], str] = counting("kernels", kernels.start_compiling)
    cache = KernelCache(compile_kernel)
    monkeypatch.setenv("METAOP_DISK_CACHE", "false")
    monkeypatch.setattr(program_rows, "kernel_cache", lambda: cache)
    for name in ("compile_subgraph", "compile_generally"):
        function = counting("programs", getattr(specialisation, name))
        monkeypatch.setattr(specialisation, name, function)
    executor.clear_programs()
    return counts


def _run(step: Step, framework: ModuleType, seed: int) -> list[np.ndarray]:
    return [value.numpy() for value in step(framework, np.random.default_rng(seed))]


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_of_sizes(name: str, made: dict[str, int]) -> None:
    step = STREAMS[name]
    for seed in range(_STEPS):
        before = dict(made)
        ours_and_theirs = _run(step, metaop, seed), _run(step, torch, seed)
        # Where a program exists, sizes are bound to it, and nothing is compiled.
        assert made["programs"] > before["programs"] or made["kernels"] == before["kernels"]
        for ours, theirs in zip(*ours_and_theirs, strict=True):
            assert ours.shape == theirs.shape
            scale = max(1.0, float(np.abs(theirs).max(initial=0)))
            np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=2e-4 * scale)
    assert made["programs"] <= _MOST_PROGRAMS


class Given:
    """metaop with tensors of an earlier run in place of new ones."""

    def __init__(self, tensors: tuple[metaop.Tensor, ...]) -> None:
        self._left = iter(tensors)

    def tensor(self, *_: Any, **__: Any) -> metaop.Tensor:
        return next(self._left)

    def __getattr__(self, name: str) -> Any:
        return getattr(metaop, name)


class Keeping(Given):
    """metaop that keeps the tensors it makes."""

    def __init__(self) -> None:
        self.made: list[metaop.Tensor] = []

    def tensor(self, *arguments: Any, **options: Any) -> metaop.Tensor:
        self.made.append(metaop.tensor(*arguments, **options))
        return self.made[-1]


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_in_a_captured_function(name: str, made: dict[str, int]) -> None:
    """Captured functions keep memory from run to run: as much as the sizes of a run need."""
    step = STREAMS[name]
    for seed in range(8):
        keeping = Keeping()
        step(keeping, np.random.default_rng(seed))
        captured = metaop.jit(
            lambda *given, seed=seed: step(Given(given), np.random.default_rng(seed))
        )
        expected = _run(step, torch, seed)
        for _ in range(4):
            for ours, theirs in zip(captured(*keeping.made), expected, strict=True):
                scale = max(1.0, float(np.abs(theirs).max(initial=0)))
                np.testing.assert_allclose(ours.numpy(), theirs, rtol=2e-3, atol=2e-4 * scale)
        assert captured.traces == 2


def test_one_length_after_the_other_makes_two_programs(made: dict[str, int]) -> None:
    for length in range(4, 60):
        x = metaop.ones(length, 3)
        x.numpy()
        before = made["programs"]
        assert (x * 2 + 1).sum(0).tolist() == [3.0 * length] * 3
        assert made["programs"] == before + (length < 6)


def test_sizes_seen_in_training_take_the_same_program_in_evaluation(made: dict[str, int]) -> None:
    """The gradients that were once requested of a signature matter to those who read them."""
    F, scale = metaop.nn.functional, weight(metaop, 24)

    def forward(length: int) -> metaop.Tensor:
        return F.layer_norm(metaop.ones(length, 24).cumsum(0), (24,), scale).softmax(0)

    def evaluated(length: int) -> int:
        before = made["programs"]
        with metaop.no_grad():
            forward(length).numpy()
        return made["programs"] - before

    assert [evaluated(length) for length in (11, 13)] == [1, 1]
    for length in (14, 17, 19):
        forward(length).square().sum().backward()
        assert scale.grad.numpy().shape == (24,)
        assert not evaluated(length)


def test_sizes_of_zero_and_one_are_right(made: dict[str, int]) -> None:
    for rows, columns in [(5, 4), (6, 7), (0, 3), (1, 3), (4, 1), (1, 1), (0, 0), (9, 2), (2, 0)]:
        values = np.random.default_rng(rows).standard_normal((rows, columns)).astype(np.float32)
        x = metaop.tensor(values)
        np.testing.assert_allclose((x.t() @ x).numpy(), values.T @ values, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose((x.exp() * 2).sum(1).numpy(), np.exp(values).sum(1) * 2, 1e-4)


def test_numbers_of_both_signs_are_told_apart(made: dict[str, int]) -> None:
    values = np.arange(12, dtype=np.float32)
    x = metaop.tensor(values)
    for shift in (3, 5, -4, -5, 0, 1, -1, 7, -7, 11):
        assert x.roll(shift).tolist() == np.roll(values, shift).tolist()
    for factor in (0.5, 2.5, -0.0, 0.0, 1.0, -1.5, float("inf"), 3.25):
        leaky = metaop.nn.functional.leaky_relu(-x[1:], factor)
        np.testing.assert_array_equal(leaky.numpy(), -values[1:] * np.float32(factor))


def test_numbers_of_a_program_are_not_taken_for_those_of_another(made: dict[str, int]) -> None:
    """Two programs for any number, whose symbols have the same names, share parts."""
    parts: list[Callable[[Any, Any, float], Any]] = [
        lambda F, x, slope: F.leaky_relu(x, slope),
        lambda F, x, slope: F.elu(x, slope + 0.5),
        lambda F, x, slope: F.threshold(x, slope, 2 * slope),
        lambda F, x, slope: F.hardtanh(x, -slope, 3 * slope),
    ]
    values = np.random.default_rng(0).standard_normal((7, 9)).astype(np.float32)
    for count in (1, 2, 3, 4, 3, 2):
        for slope in (0.3, 0.7, 0.9):
            found = []
            for T in (metaop, torch):
                x = T.tensor(values, requires_grad=True)
                chosen = parts[-count:] if slope > 0.8 else parts[:count]
                sum(part(T.nn.functional, x, slope) for part in chosen).sum().backward()
                found.append(x.grad.numpy())
            np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)


def test_the_values_of_general_programs_are_those_of_exact_ones(
    made: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same kernels, unless an exact program writes more out: equal up to rounding."""
    for name in ("lengths", "moments", "edges", "joined_parts"):
        step = STREAMS[name]
        general = [_run(step, metaop, seed) for seed in range(12)]
        with monkeypatch.context() as patch:
            patch.setenv("METAOP_SIZES", "exact")
            executor.clear_programs()
            exact = [_run(step, metaop, seed) for seed in range(12)]
        for ours, theirs in zip(chain(*general), chain(*exact), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular", "constant"])
def test_general_pads_have_the_kernels_of_exact_ones(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Selects by position are cut at bounds that are symbols as well."""

    def kernels_of(size: int) -> list[str]:
        x = metaop.tensor(np.random.default_rng(size).standard_normal((3, 8, size, size)))
        with profile() as found:
            y = metaop.nn.functional.pad(x, (1, 2, 3, 1), mode=mode).numpy()
        wanted = torch.nn.functional.pad(torch.tensor(x.numpy()), (1, 2, 3, 1), mode=mode)
        np.testing.assert_array_equal(y, wanted.numpy())
        return [kernel.name for run in found.runs for kernel in run.kernels]

    executor.clear_programs()
    general = [kernels_of(size) for size in (70, 83, 91)][-1]
    monkeypatch.setenv("METAOP_SIZES", "exact")
    executor.clear_programs()
    assert kernels_of(91) == general


def test_sizes_that_ran_long_enough_get_a_program_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Any] = []
    # As if one run took as long as making a program.
    over = property(lambda trial: trial.seconds > 0)
    monkeypatch.setattr(specialisation.Trial, "is_over", over)
    monkeypatch.setattr(
        executor, "compile_subgraph", lambda cut: made.append(cut) or compile_subgraph(cut)
    )
    executor.clear_programs()
    bound = []
    for size in (11, 13, 29, 29, 29):
        x = metaop.ones(size, 2)
        x.numpy()
        bound.append(len(made))
        assert (x * 0.5).sum(1).tolist() == [1.0] * size
    # One for the values and one for the sum, when the size comes for the second time.
    assert bound == [0, 0, 0, 1, 2] and len(made) == 2


def test_a_stored_general_program_serves_a_new_process(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("METAOP_CACHE_DIR", str(tmp_path))
    scheduled: list[bool] = []
    schedule = metaop.compiler.schedule

    def counting(inputs: Any, outputs: Any, machine: Any, env: Any = None, *rest: Any) -> Any:
        scheduled.append(env is not None)
        return schedule(inputs, outputs, machine, env, *rest)

    monkeypatch.setattr(metaop.compiler, "schedule", counting)
    for length in (17, 23):
        executor.clear_programs()
        for size in (9, 14, length):
            x = metaop.ones(size, 3)
            x.numpy()
            assert (x * 3).sum(0).tolist() == [3.0 * size] * 3
    # One for the values and one for the sum, in the first process.
    assert scheduled.count(True) == 2


def test_extents_that_follow_from_sizes_and_become_one(made: dict[str, int]) -> None:
    values = np.random.default_rng(1).standard_normal((2, 12, 3, 3)).astype(np.float32)
    for groups in (2, 4, 12, 3, 6, 12, 1):
        found = []
        for T in (metaop, torch):
            x = T.tensor(values, requires_grad=True)
            (T.nn.functional.group_norm(x, groups).sin() * x).sum().backward()
            found.append(x.grad.numpy())
        np.testing.assert_allclose(*found, rtol=1e-3, atol=1e-4)


def strided_layers(T: Any, numbers: Numbers, count: int, height: int, width: int) -> list[Any]:
    """Two strided convolutions of 32 channels and a layer, of some images."""
    F, pixels = T.nn.functional, drawn(T, numbers, count, 3, height, width)
    first, second, head = weight(T, 32, 3, 3, 3), weight(T, 32, 32, 3, 3), weight(T, 8, 32)
    hidden = F.conv2d(F.conv2d(pixels, first, stride=2, padding=1).relu(), second, stride=2)
    loss = F.cross_entropy(hidden.mean((2, 3)) @ head.t(), T.arange(count) % 8)
    return with_gradients(loss, pixels, first, second, head)


@pytest.mark.parametrize(
    "sizes",
    [
        [(4, 20, 23), (4, 26, 31), (4, 27, 28), (4, 21, 25), (4, 30, 22), (4, 25, 21)],
        [(5, 21, 21), (32, 21, 21), (11, 21, 21), (8, 21, 21), (3, 21, 21)],
    ],
    ids=["even and odd", "as many images as channels"],
)
def test_sizes_of_a_kind_make_one_program_for_all(
    sizes: list[tuple[int, int, int]], made: dict[str, int]
) -> None:
    """What is so for the second sizes by chance is no condition of the program they make."""
    for seed, size in enumerate(sizes):
        ours, theirs = (
            [value.numpy() for value in strided_layers(T, np.random.default_rng(seed), *size)]
            for T in (metaop, torch)
        )
        for own, other in zip(ours, theirs, strict=True):
            scale = max(1.0, float(np.abs(other).max()))
            np.testing.assert_allclose(own, other, rtol=2e-3, atol=2e-4 * scale)
    assert made["programs"] == 2


def test_many_writes_that_nobody_reads_make_few_programs(made: dict[str, int]) -> None:
    """A table that a loop fills and reads when it is full: no program has all the writes."""

    def filled(T: Any) -> Any:
        table = T.zeros(70, 90)
        for k in range(70):
            table[k, k % 7 :] = k
        for k in range(90):
            table[:, k] += k
        return table

    np.testing.assert_array_equal(filled(metaop).numpy(), filled(torch).numpy())
    assert made["programs"] <= 8
    captured = metaop.jit(lambda: filled(metaop))
    np.testing.assert_array_equal(captured().numpy(), filled(torch).numpy())
    mapped = metaop.vmap(lambda x: filled(metaop) * x)(metaop.tensor([1.0, 2.0]))
    np.testing.assert_array_equal(mapped[1].numpy(), 2 * filled(torch).numpy())


def test_the_first_sizes_do_not_decide_that_products_stay_small() -> None:
    """The shortest come first where batches are sorted: longer ones run as products too."""
    random = np.random.default_rng(0)
    executor.clear_programs()
    for length in (2, 3, 70):
        x = random.standard_normal((4, length, 16)).astype(np.float32)
        left, right = metaop.tensor(x), metaop.tensor(x).transpose(1, 2)
        with profile() as run:
            found = (left @ right).tolist()
        np.testing.assert_allclose(found, x @ x.transpose(0, 2, 1), rtol=1e-5, atol=1e-5)
        is_general = length != 2
        assert ("contraction" in run.table()) == is_general, run.table()


def test_a_process_that_meets_ever_new_sizes_does_not_grow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Objects of Python after 1,000 sizes, and after 5,000 more."""
    monkeypatch.setenv("METAOP_VERIFY", "0")  # it looks at the kernels of each size
    executor.clear_programs()
    values = np.ones((6002, 2), np.float32)
    objects = []
    for size in range(2, 6002):
        x = metaop.tensor(values[:size])
        assert (x.t() * x.sum(1) + x[1:].sum()).max().item() == 2 * size
        if size in (1001, 6001):
            gc.collect()
            objects.append(len(gc.get_objects()))
    # What is kept of the latest sizes is thrown away in one go, so it varies by so many.
    assert objects[1] - objects[0] < 20_000, objects


def test_a_factor_that_two_products_read_unlike() -> None:
    """Weights that are parts of one vector are packed for each way in which depths are cut."""
    metaop.manual_seed(0)
    words, layer = metaop.nn.Embedding(7, 4), metaop.nn.Linear(4, 64, bias=False)
    lstm = metaop.nn.LSTM(64, 64, batch_first=True)
    parameters = [*words.parameters(), *layer.parameters(), *lstm.parameters()]
    optimizer = metaop.optim.SGD(parameters, lr=0.1)
    for batch in (1, 2, 3):
        optimizer.zero_grad()
        x = layer(words(metaop.randint(0, 7, (batch, 3))))
        lstm(*lstm(x.flip(1)))[0].pow(2).mean().backward()
        optimizer.step()
        assert all(p.grad.isfinite().all() for p in parameters)
        whole = metaop.nn.utils.parameters_to_vector(parameters).detach() * 0.9
        metaop.nn.utils.vector_to_parameters(whole, parameters)


def test_gradients_of_reshapes_that_symbols_confuse() -> None:
    """No program for any size searches for the elements that a reshape moves.

    The axes that are joined differ, and nothing says that their sizes have equal products, so
    symbols cannot tell where an element comes from.
    """
    specialisation.clear()
    for given, made in {
        (2, 16, 2, 8): (2, 16, 16),
        (4, 8, 8, 32): (4, 64, 32),
    }.items():
        x = metaop.zeros(given).requires_grad_()
        gradient = np.random.default_rng(1).standard_normal(made).astype(np.float32)
        y = x.reshape(made)
        assert not y.any()  # so that the gradient is computed alone, without what knows its sizes
        (found,) = metaop.autograd.grad(y, x, metaop.tensor(gradient))
        np.testing.assert_array_equal(found.numpy(), gradient.reshape(given))
    families = [one for one in specialisation._families.values() if "gradient" in one.operators]
    assert any("the inverse of" in reason for one in families for reason in one.refusals)
