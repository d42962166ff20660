"""Ways to call functions that programs for early PyTorch use: numbers between tensors, lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import metaop

pytest.importorskip("torch")
import torch

SHAPES = {
    "add": [(3,), (3,)],
    "sub": [(3,), (3,)],
    "addcmul": [(3,), (3,), (3,)],
    "addcdiv": [(3,), (3,), (3,)],
    "addmm": [(2, 4), (2, 3), (3, 4)],
    "addmv": [(2,), (2, 3), (3,)],
    "addr": [(2, 3), (2,), (3,)],
    "baddbmm": [(2, 3, 4), (2, 3, 5), (2, 5, 4)],
    "addbmm": [(3, 4), (2, 3, 5), (2, 5, 4)],
}


def values(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(len(shapes))
    return [rng.uniform(0.5, 1.5, shape) for shape in shapes]


def forms(library: Any, name: str, in_place: bool) -> Iterator[Callable[[], Any]]:
    first, *others = map(library.tensor, values(*SHAPES[name]))
    method = getattr(first, name + "_" if in_place else name)
    function = getattr(library, name)
    if name in ("add", "sub", "addcmul", "addcdiv"):
        yield lambda: method(2, *others)
        yield lambda: function(first, -0.5, *others)
    else:
        yield lambda: method(0.5, *others)
        yield lambda: method(0.5, 3, *others)
        yield lambda: function(0.5, first, 3, *others)
        yield lambda: function(2, first, *others)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_numbers_between_tensors(name: str, in_place: bool) -> None:
    for wanted, found in zip(forms(torch, name, in_place), forms(metaop, name, in_place)):
        np.testing.assert_allclose(found().numpy(), wanted().numpy())


def test_numbers_between_tensors_warn_where_they_are_written() -> None:
    x = metaop.ones(2)
    with pytest.warns(UserWarning, match="add: pass alpha=2 after the tensors") as found:
        x.add(2, x)
        metaop.add(x, 2, x)
        x.add_(2, x)
    assert {one.filename for one in found} == {__file__}


@pytest.mark.parametrize("arguments", [(2, 3), (2.0, 2.0), (2, 3, 4), (True, 1)])
def test_what_was_never_allowed_stays_an_error(arguments: tuple[float, ...]) -> None:
    x = metaop.ones(2)
    with pytest.raises(TypeError, match="positional arguments"):
        x.add(*arguments)


def lists(library: Any, *shape: int) -> list[list[Any]]:
    return [[library.tensor(x) for x in values(*[shape] * 3)] for _ in range(3)]


def arguments(library: Any, word: str) -> Iterator[tuple[Any, ...]]:
    plain = word.removesuffix("_")
    xs, ys, zs = lists(library, *((2, 2) if plain == "mm" else (4,)))
    ys = [y * 0.5 for y in ys]
    if plain in ("add", "sub", "mul", "div", "maximum", "minimum", "clamp_max", "clamp_min", "pow"):
        yield from ((xs, 0.7), (xs, [0.1, 1.2, 0.9]), (xs, ys))
    elif plain in ("addcmul", "addcdiv"):
        yield from ((xs, ys, zs), (xs, ys, zs, 0.5), (xs, ys, zs, [1.0, 2.0, 3.0]))
    elif plain == "lerp":
        yield from ((xs, ys, 0.3), (xs, ys, zs))
    elif plain == "norm":
        yield from ((xs,), (xs, 1), (xs, float("inf")))
    else:
        yield (xs, ys) if plain in ("copy", "mm") else (xs,)


WORDS = sorted({name for name in dir(torch) if name.startswith("_foreach_")} - {"_foreach_powsum"})


@pytest.mark.parametrize("name", WORDS)
def test_functions_on_lists(name: str) -> None:
    word = name.removeprefix("_foreach_")
    for theirs, ours in zip(arguments(torch, word), arguments(metaop, word)):
        wanted = getattr(torch, name)(*theirs)
        found = getattr(metaop, name)(*ours)
        assert len(wanted) == len(found)
        for left, right in zip([*wanted, *theirs[0]], [*found, *ours[0]]):
            np.testing.assert_allclose(right.numpy(), left.numpy(), rtol=1e-6)


def test_a_number_to_the_power_of_each() -> None:
    x = metaop.tensor([1.0, 2.0])
    assert [y.tolist() for y in metaop._foreach_pow(2.0, [x, x + 1])] == [[2.0, 4.0], [4.0, 8.0]]


def test_lists_of_other_lengths_and_other_names_are_refused() -> None:
    x = metaop.ones(2)
    with pytest.raises(ValueError, match="2 tensors, but"):
        metaop._foreach_add([x, x], [x])
    assert not hasattr(metaop, "_foreach_nothing")


def test_points_of_a_sequence_of_sobol() -> None:
    theirs, ours = torch.quasirandom.SobolEngine(7), metaop.quasirandom.SobolEngine(7)
    for count in (1, 5, 0, 26):
        np.testing.assert_array_equal(ours.draw(count).numpy(), theirs.draw(count).numpy())
    assert ours.num_generated == theirs.num_generated == 32
    wanted = theirs.draw_base2(5, dtype=torch.float64)
    found = ours.draw_base2(5, dtype=metaop.float64)
    np.testing.assert_array_equal(found.numpy(), wanted.numpy())
    with pytest.raises(ValueError, match="power of two"):
        ours.draw_base2(3)
    first = ours.reset().fast_forward(3).draw(2)
    np.testing.assert_array_equal(first.numpy(), theirs.reset().fast_forward(3).draw(2).numpy())
    held = metaop.empty(0)
    assert ours.draw(2, held) is held and held.shape == (2, 7)


def test_shuffled_points_depend_on_the_seed() -> None:
    def drawn(seed: int | None) -> list[list[float]]:
        points: list[list[float]] = metaop.quasirandom.SobolEngine(3, True, seed).draw(8).tolist()
        return points

    assert drawn(1) == drawn(1) != drawn(2)
    assert np.all(np.histogram(np.array(drawn(3))[:, 0], 8, (0, 1))[0] == 1)
    metaop.manual_seed(5)
    first = drawn(None)
    metaop.manual_seed(5)
    assert first == drawn(None)


@pytest.mark.parametrize("dimension", [0, 21202])
def test_dimensions_without_direction_numbers_are_refused(dimension: int) -> None:
    with pytest.raises(ValueError, match="from 1 to 21201"):
        metaop.quasirandom.SobolEngine(dimension)


def test_inference_mode_tells_whether_it_is_on() -> None:
    for library in (torch, metaop):
        found = [library.is_inference_mode_enabled()]
        with library.inference_mode():
            found.append(library.is_inference_mode_enabled())
            with library.inference_mode(False):
                found.append(library.is_inference_mode_enabled())
            found.append(library.is_inference_mode_enabled())
        with library.no_grad():
            found.append(library.is_inference_mode_enabled())
        assert found == [False, True, False, True, False]


def test_checks_without_waiting() -> None:
    metaop._assert_async(metaop.ones(1))
    with pytest.raises(RuntimeError, match="all is lost"):
        metaop._assert_async(metaop.zeros(1), "all is lost")
