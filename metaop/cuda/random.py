"""Random numbers on GPUs: they come from the same seeded stream as those of the CPU."""

from __future__ import annotations

from collections.abc import Iterable

from metaop.tensor import generator
from metaop.tensor.core import Tensor
from metaop.tensor.options import DeviceLike

__all__ = [
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]


def manual_seed(seed: int) -> None:
    """Seeds random numbers on GPUs; nothing happens on a machine without one."""
    from metaop.cuda import is_available

    if is_available():
        generator.manual_seed(seed)


manual_seed_all = manual_seed


def seed() -> None:
    """Seeds random numbers on GPUs from the operating system."""
    from metaop.cuda import is_available

    if is_available():
        generator.seed()


seed_all = seed


def initial_seed() -> int:
    """The seed of the stream."""
    return generator.initial_seed()


def get_rng_state(device: DeviceLike = "cuda") -> Tensor:
    """The state of the stream as a byte tensor."""
    return generator.get_rng_state()


def get_rng_state_all() -> list[Tensor]:
    """The state of the stream, once for each GPU."""
    from metaop.cuda import device_count

    return [generator.get_rng_state() for _ in range(device_count())]


def set_rng_state(new_state: Tensor, device: DeviceLike = "cuda") -> None:
    """Continues from a state that `get_rng_state` returned."""
    generator.set_rng_state(new_state)


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Continues from what `get_rng_state_all` returned."""
    for state in new_states:
        generator.set_rng_state(state)
