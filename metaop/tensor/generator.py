"""Where random operators get their seeds from: one fresh 64-bit seed a call, as an argument."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from metaop.tensor.core import Tensor, from_array
from metaop.tensor.options import DeviceLike, device_of
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.recording import Call, scalar_leaf
from metaop.unified_graph.tensor_type import Device
from metaop.unified_graph.tracing import refuse, repeated, state

_WORD = (1 << 64) - 1


class Generator:
    """A stream of seeds that is determined by its own seed.

    Each random call takes one seed; what the call draws depends on this seed and the indices of the
    elements only, on every device. `get_state()` gives the state of the stream, 16 bytes.

    >>> generator = metaop.Generator().manual_seed(7)
    >>> first = metaop.rand(2, generator=generator)
    >>> metaop.equal(first, metaop.rand(2, generator=generator.manual_seed(7)))
    True
    """

    def __init__(self, device: DeviceLike = None) -> None:
        self.device = device_of(device)
        self._seed = 67280421310721
        self._draws = 0

    def manual_seed(self, seed: int) -> Generator:
        """Starts the stream of `seed` from its beginning."""
        refuse("it seeds a generator")
        self._seed = int(seed) & _WORD
        self._draws = 0
        return self

    def seed(self) -> int:
        """Starts the stream of a seed that the operating system draws, and returns it."""
        self.manual_seed(int.from_bytes(os.urandom(8), "little") >> 1)
        return self._seed

    def initial_seed(self) -> int:
        """The seed that the stream started from."""
        return self._seed

    @property
    def position(self) -> int:
        """How many seeds the stream has given."""
        return self._draws

    def get_state(self) -> Tensor:
        """Seed and position of the stream as a byte tensor."""
        state = np.array([self._seed, self._draws], np.uint64)
        return from_array(state.view(np.uint8).copy(), dtypes.uint8)

    def set_state(self, new_state: Tensor) -> None:
        """Continues from a state that `get_state` returned."""
        refuse("it sets the state of a generator")
        seed, draws = new_state.numpy().copy().view(np.uint64).tolist()
        self._seed, self._draws = seed, draws

    def draw(self) -> int:
        """The next seed, a number of 63 bits (SplitMix64 of the stream's seed and position)."""
        self._draws += 1
        word = (self._seed + self._draws * 0x9E3779B97F4A7C15) & _WORD
        word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
        return (word ^ (word >> 31)) >> 1


default_generator = Generator()


def seed_call(generator: Generator | None, device: Device) -> Call:
    """A fresh seed as a program argument."""
    source = generator or default_generator
    call = scalar_leaf(source.draw(), dtypes.int64, device)
    if state.trace is not None:
        repeated(lambda: (source.draw(),), (call,))
    return call


def host_random(generator: Generator | None) -> np.random.Generator:
    """A NumPy generator with a fresh seed, for what is drawn on the host."""
    refuse("it draws random numbers on the host")
    return np.random.default_rng((generator or default_generator).draw())


def manual_seed(seed: int) -> Generator:
    """Starts the default stream of random numbers from its beginning, and returns it.

    >>> generator = metaop.manual_seed(7)
    >>> x = metaop.rand(2)
    >>> metaop.manual_seed(7).initial_seed(), metaop.equal(metaop.rand(2), x)
    (7, True)
    """
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Starts the default stream from a seed that the operating system draws, and returns it.

    >>> metaop.seed() == metaop.initial_seed()
    True
    """
    return default_generator.seed()


def initial_seed() -> int:
    """The seed that the default stream started from.

    >>> generator = metaop.manual_seed(7)
    >>> metaop.initial_seed()
    7
    """
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The state of the default stream as a tensor of 16 bytes.

    >>> state = metaop.get_rng_state()
    >>> state.shape
    metaop.Size([16])
    """
    return default_generator.get_state()


def set_rng_state(new_state: Any) -> None:
    """Continues the default stream from a state that `get_rng_state` returned.

    >>> state = metaop.get_rng_state()
    >>> x = metaop.rand(2)
    >>> metaop.set_rng_state(state)
    >>> metaop.equal(metaop.rand(2), x)
    True
    """
    default_generator.set_state(new_state)
