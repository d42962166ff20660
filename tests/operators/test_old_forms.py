"""Ways to call functions that programs for early PyTorch use: numbers between tensors, lists."""

from __future__ import annotations

import math
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


KEYWORDS: list[tuple[str, Callable[[Any, Any, Any], dict[str, Any]]]] = [
    ("_foreach_norm", lambda torch, xs, ys: {"ord": math.inf}),
    ("_foreach_norm", lambda torch, xs, ys: {"ord": 1, "dtype": torch.float64}),
    ("_foreach_add", lambda torch, xs, ys: {"other": ys, "alpha": 3}),
    ("_foreach_add_", lambda torch, xs, ys: {"scalar": 3}),
    ("_foreach_mul", lambda torch, xs, ys: {"scalars": [3, 2]}),
    ("_foreach_sub_", lambda torch, xs, ys: {"other": ys}),
    ("_foreach_maximum", lambda torch, xs, ys: {"other": ys}),
    ("_foreach_clamp_min_", lambda torch, xs, ys: {"scalar": 0.5}),
    ("_foreach_pow", lambda torch, xs, ys: {"exponent": 3.0}),
    ("_foreach_copy_", lambda torch, xs, ys: {"src": ys}),
    ("_foreach_lerp", lambda torch, xs, ys: {"weight": 0.3, "tensors1": ys}),
    ("_foreach_lerp_", lambda torch, xs, ys: {"tensors1": ys, "weights": xs}),
    ("_foreach_addcdiv", lambda torch, xs, ys: {"tensor2": ys, "tensor1": xs}),
    ("_foreach_addcmul_", lambda torch, xs, ys: {"tensor1": ys, "tensor2": xs, "value": 2}),
    ("_foreach_addcmul", lambda torch, xs, ys: {"scalars": [2, 3], "tensor1": ys, "tensor2": ys}),
]


@pytest.mark.parametrize("name, keywords", KEYWORDS)
def test_operands_of_functions_on_lists_have_names(
    name: str, keywords: Callable[[Any, Any, Any], dict[str, Any]]
) -> None:
    results = []
    for torch_or_ours in (torch, metaop):
        xs = [torch_or_ours.tensor([[0.5, -2.0], [3.0, 1.0]]), torch_or_ours.tensor([0.25])]
        ys = [x + 2.5 for x in xs]
        found = getattr(torch_or_ours, name)(self=xs, **keywords(torch_or_ours, xs, ys))
        results.append([one.numpy() for one in (xs if name.endswith("_") else found)])
    for theirs, ours in zip(*results, strict=True):
        assert theirs.dtype == ours.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_the_dtype_of_norms_of_lists_may_be_an_operand() -> None:
    x = metaop.tensor([3.0, 4.0])
    (found,) = metaop._foreach_norm([x], 2, metaop.float64)
    assert found.dtype == metaop.float64 and found.item() == 5


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


# Keywords of overloads that metaop has as one function under other names, with their arguments.
OVERLOADS: dict[str, Callable[[Any, Any], Any]] = {
    "view(size=)": lambda T, x: x.view(size=(3, 4)),
    "view(dtype=)": lambda T, x: x.view(dtype=T.int64),
    "reshape(shape=)": lambda T, x: x.reshape(shape=(-1, 2)),
    "permute(dims=)": lambda T, x: x.permute(dims=(1, 0)),
    "permute(input=, dims=)": lambda T, x: T.permute(input=x, dims=(1, 0)),
    "expand(size=)": lambda T, x: x.expand(size=(2, -1, -1)),
    "repeat(repeats=)": lambda T, x: x.repeat(repeats=(2, 1)),
    "tile(dims=)": lambda T, x: x.tile(dims=(2,)),
    "new_zeros(size=)": lambda T, x: x.new_zeros(size=(2, 3)),
    "new_ones(size=, dtype=)": lambda T, x: x.new_ones(size=(2,), dtype=T.int64),
    "Tensor.split(split_size=)": lambda T, x: x.split(split_size=2, dim=1),
    "Tensor.split(split_size=[])": lambda T, x: x.split(split_size=[1, 3]),
    "tensor_split(sections=)": lambda T, x: T.tensor_split(x, sections=3),
    "tensor_split(indices=)": lambda T, x: x.tensor_split(indices=(1, 2), dim=1),
    "hsplit(sections=)": lambda T, x: T.hsplit(x, sections=3),
    "vsplit(indices=)": lambda T, x: x.vsplit(indices=(1,)),
    "arange(end=)": lambda T, x: T.arange(end=4),
    "arange(end=, dtype=)": lambda T, x: T.arange(end=4, dtype=T.float32),
    "randint(high=, size=)": lambda T, x: T.randint(high=1, size=(2, 2)),
    "randint_like(high=)": lambda T, x: T.randint_like(x, high=1),
    "randint_like(low=, high=)": lambda T, x: T.randint_like(x, low=4, high=5),
    "repeat_interleave(repeats)": lambda T, x: T.repeat_interleave(T.tensor([2, 0, 3])),
    "repeat_interleave(int32)": lambda T, x: T.repeat_interleave(T.tensor([3], dtype=T.int32)),
}


@pytest.mark.parametrize("name", OVERLOADS)
def test_keywords_of_other_overloads(name: str) -> None:
    """Each overload of PyTorch's is called by its own words."""
    found, expected = (
        OVERLOADS[name](library, library.arange(12.0, dtype=library.float64).reshape(4, 3))
        for library in (metaop, torch)
    )
    several = (found, expected) if isinstance(expected, tuple) else ([found], [expected])
    for one, other in zip(*several, strict=True):
        assert str(one.dtype).removeprefix("metaop") == str(other.dtype).removeprefix("torch")
        np.testing.assert_array_equal(one.numpy(), other.numpy())


REFUSED: dict[str, Callable[[Any, Any], Any]] = {
    "sizes twice": lambda T, x: x.view(3, 4, size=(3, 4)),
    "an unknown word": lambda T, x: x.permute(dimensions=(1, 0)),
    "no limits": lambda T, x: T.randint_like(x),
    "no upper limit": lambda T, x: T.randint(size=(2,)),
    "both words": lambda T, x: T.tensor_split(x, 2, sections=2),
    "counts in two dimensions": lambda T, x: T.repeat_interleave(T.tensor([[1, 2]])),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_words_stay_errors(name: str) -> None:
    for library in (torch, metaop):
        with pytest.raises((TypeError, RuntimeError)):
            REFUSED[name](library, library.ones(4, 3))
