"""Nests of different sizes share kernels, and the shared kernels compute what each nest means."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from metaop.codegen.caches.kernels import KernelCache
from metaop.codegen.nest import ir
from metaop.codegen.nest.generalise import always_general, generalise, skeleton
from metaop.codegen.nest.ir import (
    Alloc,
    Argument,
    InBounds,
    Load,
    LoopNest,
    MultipleOf,
    QuotientIndex,
    RemainderIndex,
    Store,
    Sum,
)
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType
from tests.codegen.interpret import Interpreter
from tests.codegen.run_nest import (
    F32,
    READ_WRITE,
    arrays,
    assert_close,
    call,
    check_nest,
    index,
    load,
    nest,
    number,
    reduction,
    run_nest,
    serial,
    store_name,
    vector,
)


def row_sums(rows: int, columns: int, factor: float = 1.0) -> LoopNest:
    value = call("mul", load(0, F32, r=columns, k=1), number(factor, F32))
    body = [reduction("add", value, columns), store_name(1, index(0, r=1), "total", F32)]
    return nest(READ_WRITE, serial("r", rows, *body, kind="parallel"))


def padded(size: int, before: int, after: int) -> LoopNest:
    inside = InBounds(index(-before, i=1), size)
    value = Load(0, index(-before, i=1), F32, (inside,), 2.5)
    return nest(READ_WRITE, vector("i", size + before + after, Store(1, index(0, i=1), value)))


def strided(extent: int, stride: int, divisor: int) -> LoopNest:
    offset = index(0, i=stride)
    value = Load(0, offset, F32, (MultipleOf(offset, divisor),), 1.0)
    return nest(READ_WRITE, vector("i", extent, Store(1, index(0, i=1), value)))


class CountingCache:
    """A kernel cache that stands on its own nests: an address is the number of a nest."""

    def __init__(self) -> None:
        self.compiled: list[LoopNest] = []
        self.cache = KernelCache(self._compile)

    def _compile(self, kernel: LoopNest) -> int:
        self.compiled.append(kernel)
        return len(self.compiled) - 1

    def check(self, kernel: LoopNest, *sizes: int) -> int:
        """Runs the kernel that the cache chose for a nest, in place of the nest."""
        number, arguments = self.cache.kernel_for(kernel)
        values = arrays(*((size, F32) for size in sizes))
        expected = [array.copy() for array in values]
        Interpreter(kernel, expected).run()
        chosen = self.compiled[number]._replace(arguments=arguments)
        actual, error = run_nest(chosen, values)
        assert error == [0] * 4
        for array, wanted in zip(actual, expected):
            assert_close(array, wanted)
        return number


def test_the_skeleton_has_the_structure_and_the_integers_the_rest() -> None:
    form, integers = skeleton(row_sums(3, 50))
    assert integers == (3, 50, 50, 0, 0)
    assert skeleton(row_sums(7, 60)) == (form, (7, 60, 60, 0, 0))
    assert skeleton(row_sums(3, 50)._replace(name="other", grain=9))[0] == form
    assert skeleton(row_sums(3, 50, factor=2.0))[0] != form
    assert skeleton(row_sums(3, 1))[0] != form  # a coefficient of 1 is another form of access


def test_names_do_not_belong_to_the_skeleton() -> None:
    def copy(axis: str) -> LoopNest:
        value = load(0, F32, **{axis: 1})
        return nest(READ_WRITE, vector(axis, 9, Store(1, index(0, **{axis: 1}), value)))

    assert skeleton(copy("i")) == skeleton(copy("j"))


def test_fills_are_told_apart() -> None:
    def fill(value: float) -> LoopNest:
        inside = (InBounds(index(0, i=1), 3),)
        read = Load(0, index(0, i=1), F32, inside, value)
        return nest(READ_WRITE, vector("i", 9, Store(1, index(0, i=1), read)))

    forms = [skeleton(fill(value))[0] for value in (0, 1, True, 1.0, 0.0, -0.0, float("nan"))]
    assert len(set(forms)) == len(forms)
    assert skeleton(fill(float("nan"))) == skeleton(fill(float("nan")))


def test_shared_parts_do_not_make_skeletons_long() -> None:
    def tower(extent: int) -> LoopNest:
        value = load(0, F32, i=1)
        for _ in range(100):
            value = call("add", value, value)
        return nest(READ_WRITE, vector("i", extent, Store(1, index(0, i=1), value)))

    form, integers = skeleton(tower(5))
    assert len(form) < 2000
    assert (form, (6, 0, 0)) == skeleton(tower(6))
    assert integers == (5, 0, 0)
    assert skeleton(generalise(tower(5), frozenset({0})))[1] == (0, 0)


def test_generalised_nests_add_arguments_behind_their_own() -> None:
    kernel = row_sums(3, 50)
    general = generalise(kernel, frozenset({0, 2}))
    assert general.arguments == (3, 50)
    assert general.body[0].extent == Argument(0, True)
    again = generalise(general, frozenset({0}))
    assert again.arguments == (3, 50, 50)
    assert again.body[0].body[0].extent == Argument(2, True)


def test_the_number_of_rows_is_general_from_the_start() -> None:
    cache = CountingCache()
    for rows in (3, 4, 9):
        assert cache.check(row_sums(rows, 50), 50 * rows, rows) == 0
    assert cache.compiled[0].arguments == (3,)


def test_a_second_length_compiles_once_more_and_a_third_does_not() -> None:
    cache = CountingCache()
    assert cache.check(row_sums(3, 50), 150, 3) == 0
    assert cache.check(row_sums(9, 33), 297, 9) == 1
    assert cache.check(row_sums(5, 70), 350, 5) == 1
    assert cache.check(row_sums(3, 50), 150, 3) == 0
    assert cache.compiled[1].arguments == (9, 33, 33)
    assert len(cache.compiled) == 2


def test_nests_of_one_program_share_their_first_kernel() -> None:
    cache = CountingCache()
    nests = [row_sums(3, 50), row_sums(3, 60), row_sums(7, 50)]
    kernels = cache.cache.kernels_for(nests)
    assert len(cache.compiled) == 1
    for one, (key, arguments) in zip(nests, kernels):
        rows, columns = skeleton(one)[1][:2]
        values = arrays((rows * columns, F32), (rows, F32))
        wanted = [array.copy() for array in values]
        Interpreter(one, wanted).run()
        actual, _ = run_nest(cache.compiled[key]._replace(arguments=arguments), values)
        assert_close(actual[1], wanted[1])


def test_pads_and_slices_are_general_from_the_start(target: str) -> None:
    cache = CountingCache()
    for before in range(4):
        for after in (0, 5, 20):
            for size in (7, 33):
                assert cache.check(padded(size, before, after), size, size + before + after) == 0
    assert len(cache.compiled) == 1
    assert always_general(row_sums(3, 50)) == {0}


def unravelled(extent: int, divisor: int) -> LoopNest:
    position = index(0, i=1)
    quotient, remainder = QuotientIndex(position, divisor), RemainderIndex(position, divisor)
    value = Load(0, Sum(((quotient, 1), (remainder, 7)), 0), F32)
    return nest(READ_WRITE, vector("i", extent, Store(1, index(0, i=1), value)))


def test_divisors_are_worth_a_kernel_until_there_are_many(target: str) -> None:
    cache = CountingCache()
    for divisor in range(16, 40):
        for extent in (30, 40, 45):
            cache.check(unravelled(extent, divisor), 300, extent)
    # One for each of 16 divisors, then one that takes every divisor that is wide.
    assert len(cache.compiled) == 17
    assert cache.check(unravelled(40, 20), 300, 40) == 4
    assert cache.check(unravelled(40, 50), 300, 40) == 16
    # Narrow divisors, of which vectors hold several, are another form.
    assert cache.check(unravelled(40, 3), 300, 40) == 17


def test_strides_and_divisors_as_arguments(target: str) -> None:
    cache = CountingCache()
    for stride in (5, 7, 12):
        for divisor in (2, 3, 7):
            cache.check(strided(23, stride, divisor), 23 * stride, 23)
    assert len(cache.compiled) == 1


def test_short_strides_of_lanes_stay_literal(target: str) -> None:
    """Lanes that lie 2 apart are read in whole vectors, not one by one."""
    cache = CountingCache()
    for stride in (2, 3):
        for divisor in (2, 3, 7):
            cache.check(strided(23, stride, divisor), 23 * stride, 23)
    strides = [kernel.body[0].body[0].value.offset.terms[0][1] for kernel in cache.compiled]
    assert strides == [2, 3]


def test_small_windows_stay_literal() -> None:
    value = load(0, F32, 1, i=1, k=1)
    kernel = nest(
        READ_WRITE,
        vector("i", 30, serial("k", 3, Store(1, index(0, i=1), value))),
    )
    general = generalise(kernel, always_general(kernel))
    assert general.body[0].body[0].extent == 3
    assert isinstance(general.body[0].extent, Argument)


def test_threads_compile_a_kernel_once() -> None:
    cache = CountingCache()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: cache.cache.kernel_for(row_sums(3, 50)), range(64)))
    assert set(found) == {(0, (3,))}
    assert len(cache.compiled) == 1


@pytest.mark.parametrize("make", [row_sums, padded, strided], ids=lambda f: f.__name__)
def test_every_integer_may_vary_alone(make: Callable[..., LoopNest]) -> None:
    sizes = {row_sums: (3, 50), padded: (12, 2, 3), strided: (20, 2, 3)}[make]
    kernel = make(*sizes)
    values = arrays((200, F32), (60, F32))
    wanted = [array.copy() for array in values]
    Interpreter(kernel, wanted).run()
    for position in range(len(skeleton(kernel)[1])):
        actual, _ = run_nest(generalise(kernel, frozenset({position})), values)
        assert_close(actual[1], wanted[1])


def test_real_addresses() -> None:
    from metaop.codegen.llvm.kernels import address_of, kernel_cache

    kernel = row_sums(3, 50)
    key, arguments = kernel_cache().kernel_for(kernel)
    (x, y), error = arrays((150, F32), (3, F32)), np.zeros(4, np.int64)
    addresses, scalars = np.array([x.ctypes.data, y.ctypes.data]), np.array(arguments, np.int64)
    run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 2, ctypes.c_void_p)
    run(address_of(key))(addresses.ctypes.data, scalars.ctypes.data, 0, 3, error.ctypes.data)
    np.testing.assert_allclose(y, x.reshape(3, 50).sum(1), rtol=1e-6)


def test_a_repeated_operand_differs_from_a_repeated_result() -> None:
    load = ir.Load(0, ir.Sum(((ir.LoopIndex("i"), 1),), 0), dtypes.float32)
    relu = ir.Apply("relu", (load,), dtypes.float32, dtypes.float32)

    def nest(second: ir.Expr) -> ir.LoopNest:
        offset = ir.Sum(((ir.LoopIndex("i"), 1),), 0)
        twice = ir.Apply("tanh", (second,), dtypes.float32, dtypes.float32)
        body = (ir.Store(1, offset, relu), ir.Store(2, offset, twice))
        roles = tuple(ir.Parameter(dtypes.float32, r) for r in ("read", "write", "write"))
        return ir.LoopNest("pair", roles, (), (ir.For("i", 8, "parallel", body, (), True),))

    assert skeleton(nest(load))[0] != skeleton(nest(relu))[0]


def scaled(size: int, factor: float, dtype: DType = F32) -> LoopNest:
    value = call("mul", load(0, dtype, i=1), number(factor, dtype))
    parameters = [(dtype, role) for _, role in READ_WRITE]
    return nest(parameters, vector("i", size, Store(1, index(0, i=1), value)))


def test_real_numbers_become_arguments() -> None:
    cache = CountingCache()
    for size, factor in ((5, 1 / 5), (7, 1 / 7), (9, -1e-30), (40, 1e30)):
        cache.check(scaled(size, factor), size, size)
    assert len(cache.compiled) == 2
    for factor in (0.0, 1.0, 2.0, float("inf")):
        cache.check(scaled(5, factor), 5, 5)
    assert len(cache.compiled) == 6


@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16"])
def test_real_arguments_round_like_literals(name: str) -> None:
    dtype = dtypes.dtype_named(name)
    check_nest(scaled(37, 1 / 3, dtype), arrays((37, dtype), (37, dtype)))


def test_a_cache_without_reals_keeps_them_literal() -> None:
    compiled: list[LoopNest] = []
    cache = KernelCache(lambda kernel: compiled.append(kernel) or len(compiled), reals=False)
    for factor in (0.3, 0.4, 0.3):
        cache.kernel_for(scaled(5, factor))
    assert len(compiled) == 2


def pooled(planes: int, size: int) -> LoopNest:
    """Sums of pairs of rows and columns, for each plane."""
    results = size // 2
    around = [load(0, F32, k, p=size * size, i=2) for k in (0, 1, size, size + 1)]
    total = call("add", call("add", *around[:2]), call("add", *around[2:]))
    target = Store(1, index(0, p=results, i=1), total)
    lanes = vector("i", results, target, kind="serial")._replace(literal=True)
    return nest(READ_WRITE, serial("p", planes, lanes, kind="parallel"))


def test_literal_lanes_keep_their_sizes_for_any_number_of_planes() -> None:
    cache = CountingCache()
    for size in (6, 40):
        for planes in (1, 3):
            cache.check(pooled(planes, size), planes * size * size, planes * size * size // 2)
    assert len(cache.compiled) == 2
    assert [kernel.body[0].body[0].extent for kernel in cache.compiled] == [3, 20]


def folded(tasks: int, half: int) -> LoopNest:
    """The first halves of rows, plus the squares of the second ones, by way of scratch memory."""
    fill = Store(-1, index(0, i=1), load(0, F32, p=2 * half, i=1))
    first, second, again = (load(-1, F32, place, j=1) for place in (0, half, half))
    total = call("add", first, call("mul", second, again))
    lanes = Store(1, index(0, p=half, j=1), total)
    body = [
        Alloc(-1, 2 * half, F32),
        vector("i", 2 * half, fill, kind="serial"),
        vector("j", half, lanes, kind="serial"),
    ]
    return nest(READ_WRITE, serial("p", tasks, *body, kind="parallel"))


def test_families_that_are_printed_alike_share_one_nest(target: str) -> None:
    alone: list[LoopNest] = []
    together: list[tuple[LoopNest, Mapping[int, int]]] = []

    def specialise(
        general: LoopNest, choices: Sequence[Mapping[int, int]]
    ) -> list[tuple[LoopNest, Mapping[int, int]]]:
        made = [(general, literals) for literals in choices]
        together.extend(made)
        return made

    cache = KernelCache(lambda one: alone.append(one) or (one, {}), specialise)
    sizes = [(2, 5), (3, 5), (2, 9), (4, 12)]
    kernels = cache.kernels_for([folded(*one) for one in sizes])
    # The number of tasks is an argument anyway; both places of the second half are one argument.
    assert not alone and len({id(general) for general, _ in together}) == 1
    assert [sorted(set(literals.values())) for _, literals in together] == [
        [5, 10], [9, 18], [12, 24],
    ]  # fmt: skip
    assert all(len(literals) == 2 for _, literals in together)
    for (tasks, half), ((general, literals), arguments) in zip(sizes, kernels):
        assert literals.items() <= dict(enumerate(arguments)).items()
        values = arrays((2 * tasks * half, F32), (tasks * half, F32))
        wanted = [array.copy() for array in values]
        Interpreter(folded(tasks, half), wanted).run()
        actual, error = run_nest(general._replace(arguments=arguments), values)
        assert error == [0] * 4
        assert_close(actual[1], wanted[1])
    # What is known is found; a single new family has a nest of its own.
    assert cache.kernel_for(folded(7, 9))[0] is kernels[2][0] and not alone
    cache.kernel_for(folded(7, 30))
    assert len(alone) == 1 and len(together) == 3
