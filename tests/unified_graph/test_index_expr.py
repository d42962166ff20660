"""The index algebra against brute force: every simplification keeps the value everywhere."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaop.unified_graph import index_expr
from metaop.unified_graph.access import Divisible, IndexMap, Within
from metaop.unified_graph.index_expr import Atom, IndexExpr, evaluate
from metaop.unified_graph.shape_env import ShapeEnv

EXTENTS = (4, 6, 5)
AXES = tuple(index_expr.axis(k, extent) for k, extent in enumerate(EXTENTS))
POINTS = list(itertools.product(*map(range, EXTENTS)))

# A recipe builds the expression and, beside it, the plain Python value at a point.
Recipe = tuple


def recipes() -> st.SearchStrategy[Recipe]:
    """Random expressions as nested tuples."""
    leaves = st.one_of(
        st.tuples(st.just("axis"), st.integers(0, 2)),
        st.tuples(st.just("constant"), st.integers(-30, 30)),
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.tuples(st.just("+"), inner, inner),
            st.tuples(st.just("-"), inner, inner),
            st.tuples(st.just("*"), inner, st.integers(-7, 7)),
            st.tuples(st.just("//"), inner, st.integers(1, 13)),
            st.tuples(st.just("%"), inner, st.integers(1, 13)),
        ),
        max_leaves=8,
    )


def build(recipe: Recipe) -> IndexExpr:
    """The expression that a recipe describes."""
    kind, *parts = recipe
    if kind == "axis":
        return AXES[parts[0]]
    if kind == "constant":
        return index_expr.constant(parts[0])
    left = build(parts[0])
    if kind == "+":
        return left + build(parts[1])
    if kind == "-":
        return left - build(parts[1])
    if kind == "*":
        return left * parts[1]
    return left // parts[1] if kind == "//" else left % parts[1]


def value(recipe: Recipe, point: Sequence[int]) -> int:
    """The value of a recipe at a point, by plain arithmetic."""
    kind, *parts = recipe
    if kind == "axis":
        return point[parts[0]]
    if kind == "constant":
        return parts[0]
    left = value(parts[0], point)
    if kind == "+":
        return left + value(parts[1], point)
    if kind == "-":
        return left - value(parts[1], point)
    if kind == "*":
        return left * parts[1]
    return left // parts[1] if kind == "//" else left % parts[1]


def at(expr: IndexExpr, point: Sequence[int]) -> int:
    """The value of an expression at a point."""
    return evaluate(expr, lambda atom: point[atom.name])  # type: ignore[attr-defined]


@given(recipes())
@settings(max_examples=400, deadline=None)
def test_values_and_ranges(recipe: Recipe) -> None:
    expr = build(recipe)
    for point in POINTS:
        expected = value(recipe, point)
        assert at(expr, point) == expected
        assert expr.low <= expected <= expr.high


@given(recipes())
@settings(max_examples=100, deadline=None)
def test_equal_content_is_one_object(recipe: Recipe) -> None:
    assert build(recipe) is build(recipe)


@given(recipes(), st.lists(recipes(), min_size=3, max_size=3))
@settings(max_examples=200, deadline=None)
def test_substitution(recipe: Recipe, inner: list[Recipe]) -> None:
    expr = build(recipe)
    replacements = {AXES[k].terms[0][0]: build(replacement) for k, replacement in enumerate(inner)}
    substituted = expr.substitute(replacements.get)
    for point in POINTS[::3]:
        moved = [value(replacement, point) for replacement in inner]
        # Simplification by ranges holds inside the box of the axes only.
        if all(0 <= m < n for m, n in zip(moved, EXTENTS)):
            assert at(substituted, point) == value(recipe, moved)


@given(recipes(), st.integers(1, 9))
@settings(max_examples=200, deadline=None)
def test_guards(recipe: Recipe, number: int) -> None:
    expr = build(recipe)
    values = [value(recipe, point) for point in POINTS]
    within, divisible = Within(expr, number), Divisible(expr, number)
    inside = [0 <= v < number for v in values]
    even = [v % number == 0 for v in values]
    # `always` and `never` may miss cases, but are never wrong.
    assert not within.always or all(inside)
    assert not within.never or not any(inside)
    assert not divisible.always or all(even)
    assert not divisible.never or not any(even)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4))
@settings(max_examples=100, deadline=None)
def test_unravel_and_offset_cancel(shape: list[int]) -> None:
    axes = IndexMap.axes(shape)
    offset = index_expr.linear_offset(axes, shape)
    assert index_expr.unravel(offset, shape) == axes
    size = offset.high + 1
    place = index_expr.axis(0, size)
    assert index_expr.linear_offset(index_expr.unravel(place, shape), shape) is place


@given(st.lists(recipes(), min_size=2, max_size=2), st.lists(recipes(), min_size=3, max_size=3))
@settings(max_examples=150, deadline=None)
def test_composition_of_maps(outer: list[Recipe], inner: list[Recipe]) -> None:
    first = IndexMap(EXTENTS, [build(r) % n for r, n in zip(inner, EXTENTS)])
    second = IndexMap(EXTENTS, [build(r) for r in outer], [Within(build(outer[0]), 7)])
    composed = second.after(first)
    for point in POINTS[::7]:
        middle = [value(r, point) % n for r, n in zip(inner, EXTENTS)]
        expected = [value(r, middle) for r in outer]
        holds = not composed.never and all(
            isinstance(g, Within) and 0 <= at(g.expr, point) < g.extent for g in composed.guards
        )
        assert holds == (0 <= expected[0] < 7)
        assert [at(e, point) for e in composed.indices] == expected


@pytest.mark.parametrize(
    ("expr", "simplified"),
    [
        ((AXES[0] * 6 + AXES[1]) // 6, AXES[0]),
        ((AXES[0] * 6 + AXES[1]) % 6, AXES[1]),
        ((AXES[0] * 12 + AXES[1] * 2) // 4, AXES[0] * 3 + AXES[1] // 2),
        ((AXES[1] + 60) % 6, AXES[1]),
        ((AXES[1] // 2) // 3, index_expr.constant(0)),
        (AXES[1] // 4 * 4 + AXES[1] % 4, AXES[1]),
        ((AXES[2] * 30 + AXES[1] * 5) // 15 * 15 + (AXES[1] * 5) % 15, AXES[2] * 30 + AXES[1] * 5),
    ],
)
def test_known_simplifications(expr: IndexExpr, simplified: IndexExpr) -> None:
    assert expr is simplified


def test_atoms_are_found_inside_others() -> None:
    expr = (AXES[0] * 3 + AXES[1]) // 5 + index_expr.lookup(1, [AXES[2]], 9)
    found: list[Atom] = list(expr.atoms())
    assert all(axis.terms[0][0] in found for axis in AXES)
    assert (expr.low, expr.high) == (0, 2 + 8)


def test_quotients_of_sums_with_quotients_are_those_of_one_number() -> None:
    part, inside = index_expr.axis(0, 13), index_expr.axis(1, 7777)
    position = part * 7777 + inside
    assert (part * 77 + inside // 101) // 13 is position // 1313
    shape = (7, 11, 13, 101)
    indices = index_expr.unravel(position, shape)
    assert index_expr.linear_offset(indices, shape) is position


def test_quotients_and_remainders_of_one_number_join() -> None:
    place = AXES[0] * 30 + AXES[1] * 5 + AXES[2]
    assert (place // 5 % 6) * 5 + place % 5 is place % 30
    number = index_expr.axis("n", 10_000)
    rows, columns = number // 56 % 56, number % 56
    block = AXES[0] * 96
    assert ((block + number) // 12 % 12) * 12 + (block + number) % 12 is (block + number) % 144
    assert rows * 112 + columns * 2 + number // 3136 is number % 3136 * 2 + number // 3136


def test_a_remainder_without_multiples_of_its_divisor_joins_its_quotient() -> None:
    """(6 * (y % 4) + x) % 3 is x % 3, but the quotient of the same number has both."""
    x, y = index_expr.axis("x", 100), index_expr.axis("y", 100)
    number = (y % 4) * 6 + x
    assert number % 3 is x % 3
    assert (number // 3) * 3 + number % 3 is number
    rows = number // 3 % 5
    assert rows * 3 + number % 3 is number % 15


def test_expressions_know_whether_sizes_are_in_them() -> None:
    env = ShapeEnv()
    n = env.symbol(6)
    i, entry = index_expr.axis(0, 12), index_expr.lookup(0, [index_expr.axis(1, 3)], 1)
    plain = [i, i * 3 + 1, (i + 1) // 5, (i + 1) % 5, entry * 2, (entry * 2 + i) // 7]
    sized = [
        index_expr.axis(0, n),
        i * n,
        i + n,
        (i + 1) // n,
        (i + 1) % n,
        entry * n,
        (entry * n + i) // 7,
    ]
    sized += [index_expr.lookup(0, [index_expr.axis(0, n)], 4), index_expr.lookup(0, [i], n)]
    assert all(expr.is_plain for expr in plain)
    assert not any(expr.is_plain for expr in sized)


def test_what_is_known_of_sizes_later_counts() -> None:
    """Results are remembered, but not those of which more may be proved later."""
    env, i = ShapeEnv(), index_expr.axis(0, 12)
    n = env.symbol(100)
    assert not (i // n).is_constant
    assert n > 64
    assert i // n is index_expr.constant(0) and i % n is i
    assert (i * 5 + 3) // 5 is i
