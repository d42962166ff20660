"""Symbolic integers: what is computed and decided on them holds wherever the guards hold."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

import metaop
from metaop.unified_graph.shape_env import ShapeEnv
from metaop.unified_graph.symbolic import (
    NotGeneralError,
    SymInt,
    as_float,
    common_divisor,
    content_of,
    divides,
    is_at_least,
    maximum,
    narrowed,
    surely_equal,
    surely_less,
)
from metaop.unified_graph.symbolic_signature import Symbols
from metaop.unified_graph.symbolic_source import function_of, source_of

Program = Callable[..., tuple[list[Any], list[bool]]]


def random_program(seed: int) -> Program:
    """Integers made from three others by random arithmetic, and comparisons on the way."""

    def run(*symbols: Any) -> tuple[list[Any], list[bool]]:
        chance = random.Random(seed)
        values, decisions = [*symbols], []
        for _ in range(14):
            one, other = chance.choice(values), chance.choice(values)
            number, kind = chance.randint(1, 9), chance.randrange(10)
            if kind == 0:
                values.append(one + other)
            elif kind == 1:
                values.append(one - other)
            elif kind == 2:
                values.append(one * chance.choice((other, number)))
            elif kind == 3:
                values.append(one // number)
            elif kind == 4:
                values.append(one % number)
            elif kind == 5:
                values.append(-(-one // number) * number)
            elif kind == 6:
                values.append(maximum([one, other, number]))
            elif kind == 7 and bool(other > 0):
                values += divmod(one, other)
            elif kind == 8:
                decisions.append(bool(one < other))
                values.append(one + number if decisions[-1] else one - number)
            else:
                decisions.append(bool(one == chance.choice((-1, 0, 1))))
            decisions.append(surely_decided(one, other))
        return values, decisions

    return run


def surely_decided(one: Any, other: Any) -> bool:
    """A decision that is the same for all sizes, whatever it is: false, unless it were wrong."""
    return surely_less(one, other) and not one < other


@pytest.mark.parametrize("seed", range(150))
def test_decisions_and_values_hold_where_guards_do(seed: int) -> None:
    program, chance = random_program(seed), random.Random(seed)
    env = ShapeEnv()
    symbols = [env.symbol(chance.randint(2, 60)) for _ in range(3)]
    values, decisions = program(*symbols)
    bound = function_of(source_of(env, values))
    hints = [symbol.hint for symbol in symbols]
    assert bound(*hints) == tuple(program(*hints)[0])
    admitted = 0
    for _ in range(60):
        sizes = [max(2, hint + chance.randint(-8, 8)) for hint in hints]
        try:
            found = bound(*sizes)
        except ZeroDivisionError:
            continue
        if found is not None:
            admitted += 1
            exact, exactly_decided = program(*sizes)
            assert (list(found), decisions) == (exact, exactly_decided), env.guards
    assert admitted


def test_equal_polynomials_are_one_object() -> None:
    env = ShapeEnv()
    n, m = env.symbol(10), env.symbol(7)
    assert (n + m) * (n - m) is n * n - m * m
    assert n * m * 4 // 4 is n * m and (n * m * 128) // (m * 128) is n
    assert ((n + 1) * (m + 2)) // (m + 2) is n + 1
    assert n - n == 0 and type(n - n) is int and type(n * 0 + 3) is int
    assert (4 * n - 1) // n == 3 and (6 * n - 2) % n is n - 2
    assert not env.guards
    # Even where nobody knows whether the divisor is positive.
    assert 0 // (29 + 2 * n - m) == 0 and (n - n) % (n - m) == 0


def test_what_bounds_decide_keeps_no_guard() -> None:
    env = ShapeEnv()
    n, m = env.symbol(10), env.symbol(7)
    assert n * m > n and n * m - m > 0 and n >= 2 and n != 0 and n != 1 and not n < 1
    assert n % 8 < 8 and n - n // 2 * 2 >= 0 and (n - 1) // 16 + 1 > 0 and maximum([n, 3]) > 2
    assert not env.guards


def test_guards_bound_what_comes_later() -> None:
    env = ShapeEnv()
    n = env.symbol(100)
    assert n > 64 and len(env.guards) == 1
    assert n > 50 and n // 8 >= 8 and 2 * n > 100 and len(env.guards) == 1
    assert not n > 200 and len(env.guards) == 2
    admits = function_of(source_of(env, []))
    assert [admits(size) is not None for size in (64, 65, 200, 201)] == [False, True, True, False]


def test_the_largest_of_values_leaves_out_what_is_provably_smaller() -> None:
    env = ShapeEnv()
    n, m = env.symbol(10), env.symbol(30)
    assert maximum([n - 2, n, n - 1]) is n
    assert maximum([-n - 4, -n - 2, 0]) == 0
    assert maximum([1, 2, n]) is n
    assert maximum([n, m, n - 1]) is maximum([n, m])
    assert not env.guards


def test_quotients_that_are_equal_are_one_object() -> None:
    env = ShapeEnv()
    n, m = env.symbol(7), env.symbol(5)
    assert -(-n // 2) is 1 + (n - 1) // 2 is (n + 1) // 2
    assert (n - 3) // 4 is (n + 5) // 4 - 2
    assert (-n) % 4 is 3 - (n - 1) % 4
    assert -(-n // m) is 1 + (n - 1) // m
    assert not env.guards


def test_what_was_not_proved_is_asked_again_when_bounds_narrow() -> None:
    env = ShapeEnv()
    n = env.symbol(9)
    assert not surely_less(4, n // 2)
    assert n > 10 or n > 8
    assert surely_less(3, n // 2)


def test_the_source_computes_only_what_its_values_need() -> None:
    env = ShapeEnv()
    n = env.symbol(9)
    unused, used = n // 5, n // 7
    source = source_of(env, [used])
    assert "// 7" in source and "// 5" not in source and unused
    assert function_of(source)(15) == (2,)


def test_only_programs_that_may_narrow_get_guards_for_speed() -> None:
    env = ShapeEnv()
    n = env.symbol(70)
    assert is_at_least(n, 2) and is_at_least(30, 16) and not is_at_least(n, 30) and not env.guards
    assert is_at_least(n, 16) and len(env.guards) == 1
    assert narrowed(n // 32) == 2 and len(env.guards) == 2
    env = ShapeEnv(may_narrow=False)
    n = env.symbol(70)
    assert is_at_least(n, 2) and not is_at_least(n, 16) and narrowed(n // 32) is n // 32
    assert not env.guards


def test_use_as_a_plain_integer_pins() -> None:
    env = ShapeEnv()
    n = env.symbol(3)
    assert list(range(n)) == [0, 1, 2] and [5, 6, 7, 8][n] == 8
    assert [str(guard) for guard in env.guards] == ["(-3 + s0) == 0"]
    assert all("test_symbolic.py" in place for _, place in env.pins)


def test_unlike_sizes_may_be_equal_later_but_not_the_other_way_round() -> None:
    env = ShapeEnv()
    n, m, k = env.symbol(10), env.symbol(10), env.symbol(11)
    assert n != k and n != 12 and not env.guards
    assert n == m and len(env.guards) == 1
    admits = function_of(source_of(env, []))
    assert admits(7, 7, 7) is not None and admits(7, 8, 7) is None


def test_what_is_shown_of_divisors() -> None:
    env = ShapeEnv()
    n, m = env.symbol(12), env.symbol(7)
    assert divides(4, 8 * n) and divides(n, n * m) and not divides(4, n) and divides(3, 9)
    assert content_of(8 * n + 12) == 4 and content_of(6) == 6
    assert common_divisor(8 * n * m, 12 * n) is 4 * n and common_divisor(12, 18) == 6
    assert surely_equal(n + 0, n) and not surely_equal(n, 12) and not env.guards


def test_a_size_is_a_plain_number_by_chance_only() -> None:
    env = ShapeEnv()
    n = env.symbol(32)
    assert n != 32 and (4, n) != (4, 32) and not env.guards
    assert n != 1 and (n - 31) == 1 and len(env.guards) == 1
    assert n == 32 and 2 * n == 64, "a guard has pinned it"


def test_real_numbers_of_sizes() -> None:
    env = ShapeEnv()
    n, slope = env.symbol(10), env.real_symbol(0.25)
    mean = 1.0 / as_float(n)
    assert mean < slope and math.ceil(as_float(n) * 0.15) < 3 and len(env.guards) == 2
    rounded = math.floor(slope * 100.0)
    compute = function_of(source_of(env, [rounded, n * 2]))
    assert compute(10, 0.25) == (25, 20) and compute(9, 0.379) == (37, 18)
    assert compute(10, 0.05) is None and compute(20, 0.25) is None
    with pytest.raises(NotGeneralError, match="plain number"):
        float(mean)


def test_symbols_of_other_programs_are_not_mixed_up() -> None:
    one, other = ShapeEnv().symbol(5), ShapeEnv().symbol(5)
    assert one != other and {one: 1}.get(other) is None


def test_relations_of_numbers_hold_in_all_that_were_seen() -> None:
    numbers, first, second = (3, 128, 160), (2, 96, 128), (4, 160, 128)
    by_chance = Symbols(first)
    _, height, width = (by_chance.number(n) for n in numbers)
    assert surely_equal(width, height + 32)
    varied = Symbols(first, second)
    assert len({varied.number(n) for n in numbers}) == len(varied.env.symbols) == 3


def test_products_and_distances_in_all_that_were_seen() -> None:
    symbols = Symbols((3, 12, 7), (5, 20, 9))
    n, four, shifted = (symbols.number(n) for n in (4, 16, 8))
    assert surely_equal(four, 4 * n) and surely_equal(shifted, n + 4)


def test_sizes_of_a_schedule_are_equal_only_if_they_provably_are() -> None:
    env = ShapeEnv()
    n = env.symbol(8)
    env.is_scheduled = True
    assert n != 2 * (n // 2) and not env.guards
    env.is_scheduled = False
    assert n == 2 * (n // 2) and len(env.guards) == 1
    env.is_scheduled = True
    assert n == 2 * (n // 2)


def test_views_that_are_equal_here_are_told_apart_by_what_they_are_elsewhere() -> None:
    signature = metaop.ones(3, 3, 2).permute(1, 0, 2).call.signature
    # The 2 of the permutation, then the extents, of either view in the other subgraph.
    symbols = Symbols((2, 7, 3, 2, 2, 3, 7, 2))
    first, second = symbols.alone(signature), symbols.alone(signature)
    (made,), (made_again,) = first.types, second.types
    assert made.shape[0] == made_again.shape[1] == 3
    assert made.shape[1] is made_again.shape[0]
    assert type(made.shape[1]) is SymInt
