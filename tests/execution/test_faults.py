"""Values that an operator refuses, though only the run of a program tells what they are."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import metaop

Case = Callable[[Any, Any, Any], Any]
TYPES = ("int8", "int16", "int32", "int64", "uint8")
DIVISIONS: dict[str, Case] = {
    "floor_divide": lambda lib, a, b: a // b,
    "remainder": lambda lib, a, b: a % b,
    "fmod": lambda lib, a, b: lib.fmod(a, b),
    "floored": lambda lib, a, b: lib.div(a, b, rounding_mode="floor"),
    "truncated": lambda lib, a, b: lib.div(a, b, rounding_mode="trunc"),
    "of a number": lambda lib, a, b: 7 // b,
    "in place": lambda lib, a, b: a.clone().floor_divide_(b),
}
# Divisions with others around them, of tensors of 5 x 7 elements.
EXPRESSIONS: dict[str, Case] = {
    "sum": lambda lib, a, b: (a // b).sum(),
    "sum of rows": lambda lib, a, b: (a // b).sum(1),
    "behind arithmetic": lambda lib, a, b: ((a + 1) // (b * 1)) * 2 - a,
    "in front of floats": lambda lib, a, b: (a % b).float() * 2 - 1,
    "a row of divisors": lambda lib, a, b: a // b[0],
    "a column of divisors": lambda lib, a, b: (a // b[:, :1]).sum(0),
    "one divisor": lambda lib, a, b: a // b[0, 0],
    "a reduced divisor": lambda lib, a, b: a // b.min(),
    "divisors of each row": lambda lib, a, b: a // b.amin(1, keepdim=True),
    "where": lambda lib, a, b: lib.where(b != 0, a // b, a),
    "transposed": lambda lib, a, b: (a.t() // b.t()).contiguous(),
    "in a product of matrices": lambda lib, a, b: (a // b).double() @ a.t().double(),
    "padded": lambda lib, a, b: lib.nn.functional.pad(a // b, (1, 2)),
    "gathered": lambda lib, a, b: (a // b)[lib.tensor([0, 1, 2, 3, 4, 0])],
    "cumulative": lambda lib, a, b: (a // b).cumsum(1),
    "two quotients": lambda lib, a, b: lib.cat([a // b, a % b]),
}
# What reads beyond the edges of quotients, or of divisors that are made legal.
WITHOUT_FAULT: dict[str, Case] = {
    "product": lambda lib, a, b: (a // b).float() @ lib.ones(65, 13),
    "convolution": lambda lib, a, b: lib.nn.functional.conv2d(
        (a // b).float()[None, None], lib.ones(4, 1, 3, 3), padding=1
    ),
    "pooling": lambda lib, a, b: lib.nn.functional.max_pool2d((a % b).float()[None], 3, 2, 1),
    "interpolation": lambda lib, a, b: lib.nn.functional.interpolate(
        (a // b).float()[None, None], scale_factor=2, mode="bilinear"
    ),
    "layer norm": lambda lib, a, b: lib.nn.functional.layer_norm((a % b).float(), (65,)),
    "padded divisor": lambda lib, a, b: a // lib.nn.functional.pad(b[:, 1:], (1, 0), value=1),
    "replaced divisor": lambda lib, a, b: a // lib.where(b > 3, b - 3, 1),
    "joined divisors": lambda lib, a, b: lib.cat([a, a], 1) // lib.cat([b, b + 1], 1),
    "places": lambda lib, a, b: lib.ones(200, 4)[a // b],
    "windows": lambda lib, a, b: (a // b).unfold(1, 3, 2).sum(-1),
}
SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "scalars": ((), ()),
    "one": ((1,), (1,)),
    "a vector": ((3,), (3,)),
    "many": ((1003,), (1003,)),
    "by a scalar": ((67,), ()),
    "by one": ((67,), (1,)),
    "of a scalar": ((), (67,)),
    "rows": ((5, 33), (33,)),
    "both ways": ((5, 1), (1, 33)),
    "nothing": ((0,), (0,)),
    "nothing by a scalar": ((0, 3), ()),
    "nothing by a row": ((0, 3), (3,)),
}


def whole(lib: Any, shape: tuple[int, ...], dtype: str, start: int) -> Any:
    """Numbers from `start` on, before 100 comes again."""
    count = int(np.prod(shape))
    values = (np.arange(count) % (100 - start) + start).reshape(shape)
    return lib.tensor(values.astype(dtype))


def outcome(lib: Any, run: Callable[[], Any]) -> Any:
    """The values of a result, or that it is an error because of a division by zero."""
    try:
        result = run()
        return result.tolist(), str(result.dtype).split(".")[-1]
    except RuntimeError as error:
        assert "ZeroDivisionError" in str(error)
        assert lib is torch or isinstance(error, ZeroDivisionError)
        return ZeroDivisionError


def compare(case: Case, dtype: str, shapes: tuple[Any, Any], zero: int | None) -> Any:
    """What PyTorch does, after metaop has done the same; a divisor is 0 at the place `zero`."""
    found = []
    for lib in (torch, metaop):
        left, right = whole(lib, shapes[0], dtype, 0), whole(lib, shapes[1], dtype, 1)
        if zero is not None and right.numel():
            right.view(-1)[zero] = 0
            right.numpy()
        found.append(outcome(lib, functools.partial(case, lib, left, right)))
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", DIVISIONS)
def test_divisors_of_whole_numbers_are_checked(name: str, dtype: str) -> None:
    for zero in (0, 36, 66):
        shapes = (67,), (67,)
        assert compare(DIVISIONS[name], dtype, shapes, zero) is ZeroDivisionError
    assert compare(DIVISIONS[name], dtype, ((67,), (67,)), None) is not ZeroDivisionError


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("dtype", ["int16", "int64"])
def test_divisors_of_any_shape_are_checked(name: str, dtype: str) -> None:
    for division in ("floor_divide", "fmod"):
        for zero in (None, 0, -1):
            compare(DIVISIONS[division], dtype, SHAPES[name], zero)


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_divisions_inside_of_kernels_are_checked(name: str) -> None:
    for dtype in ("uint8", "int64"):
        for zero in (None, 0):
            found = compare(EXPRESSIONS[name], dtype, ((5, 7), (5, 7)), zero)
            assert (found is ZeroDivisionError) == (zero is not None)


@pytest.mark.parametrize("name", WITHOUT_FAULT)
def test_elements_that_do_not_exist_are_not_checked(name: str) -> None:
    results = []
    for lib in (torch, metaop):
        left, right = whole(lib, (33, 65), "int64", 0), whole(lib, (33, 65), "int64", 1)
        results.append(WITHOUT_FAULT[name](lib, left, right).numpy())
    np.testing.assert_allclose(results[1], results[0], 1e-4, 1e-4)


def test_constant_divisors_are_checked() -> None:
    with pytest.raises(ZeroDivisionError):
        (metaop.tensor([1, 2]) // metaop.zeros(2, dtype=metaop.int64)).tolist()
    assert (metaop.ones(0, dtype=metaop.int64) // metaop.zeros((), dtype=metaop.int64)).numel() == 0
    assert (metaop.tensor([7, 9]) // metaop.full((2,), 4)).tolist() == [1, 2]


def test_floats_divide_by_zero() -> None:
    quotients = metaop.tensor([1.0, -1.0]) // metaop.zeros(2)
    assert quotients.tolist() == [float("inf"), float("-inf")]


def test_the_error_names_operator_shapes_line_and_fix() -> None:
    left, right = metaop.ones(3, 4, dtype=metaop.int32), metaop.tensor([1, 0, 2, 3]).int()
    quotient = left + left % right  # the line
    with pytest.raises(metaop.errors.DivisionError) as caught:
        quotient.tolist()
    text = str(caught.value)
    assert text.startswith("remainder: ZeroDivisionError") and "[3, 4]" in text and "[4]" in text
    line = test_the_error_names_operator_shapes_line_and_fix.__code__.co_firstlineno + 2
    assert f"test_faults.py:{line} in test_the_error" in text and "fix: " in text


def test_tensors_go_on_working_after_a_fault() -> None:
    left, right = metaop.arange(1000) * 3, metaop.arange(1000) % 7
    for _ in range(2):
        # What a failed run would have overwritten is there again, and fails again.
        left.floor_divide_(right)
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                left.tolist()
        left = metaop.arange(1000) * 3
    assert (left // (right + 1)).tolist() == [3 * k // (k % 7 + 1) for k in range(1000)]
    assert right.tolist() == [k % 7 for k in range(1000)]


def test_captured_functions_check_divisors() -> None:
    state = metaop.arange(1000) + 1
    expected = state.tolist()

    @metaop.jit
    def step(divisor: metaop.Tensor) -> metaop.Tensor:
        state.floor_divide_(divisor)
        return state.sum()

    for divisor in (1, 2, 0, 1, 0, 3, 2):
        divisors = metaop.full((1000,), 1).clone()
        divisors[700] = divisor
        if divisor == 0:
            with pytest.raises(ZeroDivisionError):
                step(divisors)
        else:
            expected[700] //= divisor
            assert step(divisors).item() == sum(expected)
        assert state.tolist() == expected


def test_mapped_functions_check_divisors() -> None:
    divide = metaop.vmap(lambda a, b: a // b, in_dims=(0, None))
    left = metaop.arange(12).reshape(3, 4)
    assert divide(left, metaop.tensor([1, 2, 3, 4])).tolist() == (
        (left // metaop.tensor([1, 2, 3, 4])).tolist()
    )
    with pytest.raises(ZeroDivisionError):
        divide(left, metaop.tensor([1, 2, 0, 4])).tolist()


def test_the_oracle_checks_divisors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAOP_BACKEND", "reference")
    for zero in (None, 5):
        compare(DIVISIONS["truncated"], "int32", ((67,), (67,)), zero)
