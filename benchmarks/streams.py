"""Streams of batches whose sizes change from step to step, as real data have them.

A stream is set up like a workload: `prepare(framework)` gives the step, a function of one batch
that returns a value to read. `sizes(random, count)` gives the batches, each a tuple of arrays and
Python numbers, for as many steps as it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from benchmarks.frameworks import Framework
from benchmarks.whole_steps import network, training

Batch = tuple[Any, ...]
Step = Callable[..., Any]
Sizes = Callable[[np.random.Generator, int], Iterator[Batch]]
_VOCABULARY, _WIDTH, _CONTEXT = 256, 128, 256


class Stream(NamedTuple):
    """A row of the table."""

    prepare: Callable[[Framework], Step]
    sizes: Sizes


STREAMS: dict[str, Stream] = {}


def _stream(name: str, sizes: Sizes) -> Callable[[Callable[[Framework], Step]], Any]:
    def register(prepare: Callable[[Framework], Step]) -> Callable[[Framework], Step]:
        STREAMS[name] = Stream(prepare, sizes)
        return prepare

    return register


def _steps(
    f: Framework, model: Any, loss_of: Callable[..., Any], optimizer: str, lr: float
) -> Step:
    """Training steps of `loss_of(model, *batch)`; the loss is what is read."""
    prepared = training(f, model, loss_of, optimizer, lr=lr)
    return lambda *batch: prepared(*batch).run()


def _classified(f: Framework, model: Any, optimizer: str, lr: float) -> Step:
    """Training steps by cross-entropy, for inputs and labels."""
    return _steps(f, model, lambda m, *batch: _entropy(f, m(*batch[:-1]), batch[-1]), optimizer, lr)


def _entropy(f: Framework, logits: Any, labels: Any) -> Any:
    return f.functional.cross_entropy(logits.flatten(0, -2), labels.flatten())


def _distinct(random: np.random.Generator, low: int, high: int, count: int) -> list[int]:
    """Numbers in random order; none comes twice before all have come."""
    numbers = np.arange(low, high)
    rounds = -(-count // len(numbers))
    return np.concatenate([random.permutation(numbers) for _ in range(rounds)])[:count].tolist()


def _tokens(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.integers(0, _VOCABULARY, shape)


def _normal(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.standard_normal(shape, np.float32)


def _gpt(f: Framework) -> Any:
    return network(f, "models.gpt.GPT", _VOCABULARY, _CONTEXT, _WIDTH, layers=4, heads=4)


def _texts(random: np.random.Generator, count: int) -> Iterator[Batch]:
    for length in _distinct(random, 24, 97, count):
        text = _tokens(random, 8, length + 1)
        yield text[:, :-1], text[:, 1:]


@_stream("GPT, 4 layers of 128, 8 texts of 24 to 96 tokens, AdamW", _texts)
def gpt(f: Framework) -> Step:
    return _classified(f, _gpt(f), "AdamW", 1e-4)


def _growing(random: np.random.Generator, count: int) -> Iterator[Batch]:
    text = _tokens(random, 1, count + 8)
    for end in range(8, count + 8):
        yield (text[:, :end],)


@_stream("GPT, writing token by token without a memory", _growing)
def writing(f: Framework) -> Step:
    model = f.module(_gpt(f)).eval()
    forward = f.function(model)

    def step(tokens: Any) -> Any:
        with f.library.no_grad():
            return forward(tokens)[:, -1].amax()

    return step


def _single_tokens(random: np.random.Generator, count: int) -> Iterator[Batch]:
    for position in range(count):
        yield _tokens(random, 1, 1), np.array([position % _CONTEXT])


def _from_cache(f: Framework, made: Callable[[Step], Step]) -> Step:
    model = f.module(_gpt(f)).eval()
    cache, forward = model.cache(1), made(model.forward)

    def step(token: Any, positions: Any) -> Any:
        with f.library.no_grad():
            return forward(token, positions, cache)[:, -1].amax()

    return step


@_stream("GPT, writing from a memory", _single_tokens)
def writing_from_cache(f: Framework) -> Step:
    return _from_cache(f, f.function)


@_stream("GPT, writing from a memory, captured by jit", _single_tokens)
def writing_captured(f: Framework) -> Step:
    return _from_cache(f, f.captured)


def _images(random: np.random.Generator, count: int) -> Iterator[Batch]:
    heights, widths = (_distinct(random, 24, 65, count) for _ in range(2))
    for height, width in zip(heights, widths):
        yield _normal(random, 4, 3, height, width), random.integers(0, 10, 4)


def _small_convolutions(f: Framework) -> Any:
    return network(f, "benchmarks.networks.SmallConvolutions", 10)


@_stream("conv net with BatchNorm, images of ever new height x width, SGD", _images)
def convolutions(f: Framework) -> Step:
    return _classified(f, _small_convolutions(f), "SGD", 1e-3)


def _rows(random: np.random.Generator, count: int) -> Iterator[Batch]:
    for rows in _distinct(random, 1, 257, count):
        yield _normal(random, rows, 64), random.integers(0, 10, rows)


@_stream("MLP 64-128-128-10, ever new batch sizes, Adam", _rows)
def batch_sizes(f: Framework) -> Step:
    return _classified(f, network(f, "models.mlp.MLP", 64, 128, 128, 10), "Adam", 1e-3)


def _starts(random: np.random.Generator, count: int) -> Iterator[Batch]:
    for start in _distinct(random, 0, 4096 - 128, count):
        yield (start,)


@_stream("MLP 64-128-128-10 on x[i : i + 128] with random i, Adam", _starts)
def slices(f: Framework) -> Step:
    x, labels = f.normal(4096, 64), f.integers(10, 4096)

    def loss_of(model: Any, start: int) -> Any:
        part = slice(start, start + 128)
        return _entropy(f, model(x[part]), labels[part])

    return _steps(f, network(f, "models.mlp.MLP", 64, 128, 128, 10), loss_of, "Adam", 1e-3)


def _sentences(random: np.random.Generator, count: int, ordered: bool) -> Iterator[Batch]:
    """Batches of 8 sentences, padded to the longest, with a mask of what is padding."""
    lengths = random.integers(8, 97, 8 * count)
    if ordered:
        lengths.sort()
    for members in lengths.reshape(count, 8):
        tokens = _tokens(random, 8, members.max())
        yield tokens, np.arange(members.max()) >= members[:, None], random.integers(0, 4, 8)


def _encoder(f: Framework) -> Step:
    model = network(f, "benchmarks.networks.TextEncoder", _VOCABULARY, _CONTEXT, _WIDTH, 4)
    return _classified(f, model, "AdamW", 1e-4)


_stream(
    "BERT-like encoder, 2 layers of 128, 8 sentences of sorted lengths, AdamW",
    lambda random, count: _sentences(random, count, True),
)(_encoder)
_stream(
    "BERT-like encoder, 2 layers of 128, 8 sentences of any lengths, AdamW",
    lambda random, count: _sentences(random, count, False),
)(_encoder)


def _boxes(random: np.random.Generator, count: int) -> Iterator[Batch]:
    """Features of proposals, their classes, which of them are objects, and where those lie."""
    for boxes in _distinct(random, 20, 201, count):
        classes = random.integers(-8, 5, boxes).clip(0)
        (objects,) = classes.nonzero()
        yield _normal(random, boxes, 16, 7, 7), classes, objects, _normal(random, len(objects), 4)


@_stream("detector head, ever new numbers of boxes, SGD", _boxes)
def detector(f: Framework) -> Step:
    def loss_of(model: Any, features: Any, classes: Any, objects: Any, places: Any) -> Any:
        logits, moves = model(features)
        placed = f.functional.smooth_l1_loss(moves[objects], places, reduction="sum")
        return _entropy(f, logits, classes) + placed / len(classes)

    head = network(f, "benchmarks.networks.DetectorHead", 16 * 7 * 7, 128, 5)
    return _steps(f, head, loss_of, "SGD", 1e-3)


def _neighbourhoods(random: np.random.Generator, count: int) -> Iterator[Batch]:
    """Sampled parts of a graph: features, ends of edges, 1 / sqrt(degree) and labels."""
    for nodes in _distinct(random, 200, 1001, count):
        source, target = random.integers(0, nodes, (2, int(nodes * random.uniform(4, 8))))
        degree = np.bincount(target, minlength=nodes) + 1
        scale = (degree**-0.5).astype(np.float32)[:, None]
        yield _normal(random, nodes, 64), source, target, scale, random.integers(0, 16, nodes)


@_stream("GCN on sampled neighbourhoods, Adam", _neighbourhoods)
def neighbourhoods(f: Framework) -> Step:
    return _classified(f, network(f, "benchmarks.networks.GCN", 64, 64, 16), "Adam", 1e-3)


def _buckets(random: np.random.Generator, count: int) -> Iterator[Batch]:
    for bucket in random.integers(1, 7, count):
        yield _normal(random, 16, 8 * bucket, 32), random.integers(0, 10, 16)


@_stream("LSTM 2 x 64, sequences in buckets of 8 to 48 steps, Adam", _buckets)
def recurrent(f: Framework) -> Step:
    model = network(f, "benchmarks.networks.RecurrentClassifier", 32, 64)
    return _classified(f, model, "Adam", 1e-3)


def _epochs(random: np.random.Generator, count: int) -> Iterator[Batch]:
    """Batches of 32, every fourth with what is left of an epoch, of ever new data."""
    rests = _distinct(random, 1, 32, count)
    for number in range(count):
        rows = 32 if number % 4 else rests[number]
        yield _normal(random, rows, 1, 28, 28), random.integers(0, 10, rows)


@_stream("LeNet, batches of 32 and the last ones of epochs, Adam", _epochs)
def last_batches(f: Framework) -> Step:
    return _classified(f, network(f, "models.lenet.LeNet"), "Adam", 1e-3)


def _magnified(random: np.random.Generator, count: int) -> Iterator[Batch]:
    for number in range(count):
        size = 16 + 8 * (12 * number // count)
        yield _normal(random, 4, 3, size, size), random.integers(0, 10, 4)


@_stream("conv net with BatchNorm, images that grow eleven times, SGD", _magnified)
def progressive(f: Framework) -> Step:
    return _classified(f, _small_convolutions(f), "SGD", 1e-3)


def _trees(random: np.random.Generator, count: int) -> Iterator[Batch]:
    """Binary trees of 4 to 16 words, and labels."""

    def tree(words: list[int]) -> Any:
        if len(words) == 1:
            return words[0]
        cut = int(random.integers(1, len(words)))
        return tree(words[:cut]), tree(words[cut:])

    for _ in range(count):
        words = random.integers(0, _VOCABULARY, random.integers(4, 17)).tolist()
        yield tree(words), random.integers(0, 5, 1)


@_stream("LSTM over trees, Adam", _trees)
def trees(f: Framework) -> Step:
    model = network(f, "benchmarks.networks.TreeNetwork", _VOCABULARY, 64, 5)
    return _classified(f, model, "Adam", 1e-3)


def _chances(random: np.random.Generator, count: int) -> Iterator[Batch]:
    for seed in range(count):
        yield _normal(random, 32, 128), seed, random.integers(0, 10, 32)


@_stream("MLP of 12 layers, some left out by chance, Adam", _chances)
def shallow_by_chance(f: Framework) -> Step:
    return _classified(f, network(f, "benchmarks.networks.ShallowByChance", 128, 12), "Adam", 1e-3)


def _sequences(random: np.random.Generator, count: int) -> Iterator[Batch]:
    for length in random.integers(4, 33, count):
        yield _normal(random, length, 8, 32), random.integers(0, 10, (length, 8))


@_stream("LSTM cell in a Python loop, 4 to 32 steps, Adam", _sequences)
def cell_by_cell(f: Framework) -> Step:
    return _classified(f, network(f, "benchmarks.networks.CellByCell", 32, 64), "Adam", 1e-3)
