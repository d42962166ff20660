"""The array API: every name and signature of the standard, and the values of its strict reference.

`array_api_strict` is the consortium's minimal implementation; what it gives, metaop gives, in type,
shape and value. What is left out stands in `ABSENT` and `DEVIATIONS`, with the reasons.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaop
from metaop import array_api as xp

strict = pytest.importorskip("array_api_strict")

ABSENT = {
    **dict.fromkeys(("uint16", "uint32", "uint64"), "kernels have no such type, as in PyTorch"),
    "fft": "an optional extension",
    "isin": "of the version after 2024.12",
    "broadcast_shapes": "of the version after 2024.12",
    "linalg.eig": "of the version after 2024.12",
    "linalg.eigvals": "of the version after 2024.12",
}
# Members of the array object that mean something else in PyTorch.
DEVIATIONS = {
    "size": "a method, as in PyTorch",
    "to_device": "Tensor.to moves, as in PyTorch",
}
# What array_api_strict has for itself.
OWN = {"ArrayAPIStrictFlags", "Device", "Array", "DType"}

SIGNED = ("int8", "int32", "int64")
INTEGERS = (*SIGNED, "uint8")
FLOATS = ("float32", "float64")
COMPLEX = ("complex64", "complex128")
NUMERIC = (*INTEGERS, *FLOATS)
EVERY = (*NUMERIC, "bool")
SHAPES: tuple[tuple[int, ...], ...] = ((), (3, 4), (0, 3))


def public(module: Any) -> list[str]:
    names = getattr(module, "__all__", dir(module))
    return [n for n in names if n not in OWN and "strict_flags" not in n and n != "__version__"]


def functions() -> list[str]:
    found = [name for name in public(strict) if callable(getattr(strict, name))]
    found += [f"linalg.{name}" for name in strict.linalg.__all__]
    return [
        name for name in found if name not in ABSENT and hasattr(found_in(strict, name), "__doc__")
    ]


def found_in(module: Any, name: str) -> Any:
    for part in name.split("."):
        module = getattr(module, part)
    return module


def test_every_name_of_the_standard_is_there() -> None:
    names = [*public(strict), *(f"linalg.{name}" for name in strict.linalg.__all__)]
    missing = []
    for name in names:
        try:
            found_in(xp, name)
        except AttributeError:
            missing.append(name)
    assert sorted(missing) == sorted(set(missing) & set(ABSENT))
    assert metaop.ones(2).__array_namespace__(api_version="2024.12") is xp
    with pytest.raises(ValueError, match="not supported"):
        metaop.ones(2).__array_namespace__(api_version="2099.12")


@pytest.mark.parametrize("name", functions())
def test_signatures_take_what_the_standard_has(name: str) -> None:
    wanted, ours = found_in(strict, name), found_in(xp, name)
    if isinstance(wanted, type) or not inspect.isfunction(ours):
        assert callable(ours)
        return
    theirs, mine = inspect.signature(wanted).parameters, inspect.signature(ours).parameters
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    count = sum(p.kind in positional for p in theirs.values())
    takes_any = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in mine.values())
    assert takes_any or sum(p.kind in positional for p in mine.values()) >= count
    for parameter in theirs.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            assert parameter.name in mine, parameter.name
            own = mine[parameter.name].default
            if isinstance(parameter.default, (bool, int, float, str, type(None))):
                assert own == parameter.default, parameter.name


def test_the_array_object_has_the_members_of_the_standard() -> None:
    tensor = metaop.ones(2, 3)
    array = strict.ones((2, 3))
    for name in dir(type(array)):
        special = name.startswith("__") and name.endswith("__")
        if name in DEVIATIONS or hasattr(object, name) or (name.startswith("_") and not special):
            continue
        if special and name in ("__dict__", "__weakref__", "__slots__", "__class_getitem__"):
            continue
        if name in ("__array_interface__", "__buffer__", "__static_attributes__"):
            continue  # no part of the standard
        assert hasattr(tensor, name), name


# --- values -------------------------------------------------------------------------------------


def values(dtype: str, shape: tuple[int, ...], seed: int = 0, low: float = -4) -> np.ndarray:
    random = np.random.default_rng(seed)
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    if dtype in INTEGERS:
        start = 0 if dtype == "uint8" else int(low)
        return random.integers(start, 7, shape).astype(dtype)
    if dtype in COMPLEX:
        return (random.uniform(low, 4, shape) + 1j * random.uniform(low, 4, shape)).astype(dtype)
    return random.uniform(low, 4, shape).astype(dtype)


def flat(result: Any) -> list[Any]:
    if isinstance(result, (tuple, list)):
        return [part for item in result for part in flat(item)]
    return [result]


def same(found: Any, wanted: Any, tolerance: float | None = None) -> None:
    """Type, shape and values."""
    ours, theirs = flat(found), flat(wanted)
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs):
        if not hasattr(other, "dtype"):
            assert mine == other
            continue
        array = np.asarray(other._array)
        assert tuple(mine.shape) == array.shape
        assert mine.dtype.name == array.dtype.name
        is_narrow = array.dtype in (np.float32, np.complex64)
        limit = tolerance or (2e-5 if is_narrow else 1e-10)
        kind = complex if array.dtype.kind == "c" else float
        np.testing.assert_allclose(
            mine.numpy().astype(kind), array.astype(kind), rtol=limit, atol=limit
        )


def compare(name: str, *arrays: Any, tolerance: float | None = None, **options: Any) -> None:
    """A function in both libraries; arrays of NumPy become arrays of either."""

    def side(module: Any) -> Any:
        def convert(value: Any) -> Any:
            if isinstance(value, np.ndarray):
                return module.asarray(value) if module is strict else metaop.tensor(value)
            if isinstance(value, (list, tuple)) and any(isinstance(v, np.ndarray) for v in value):
                return [convert(item) for item in value]
            if isinstance(value, str) and value.startswith("dtype:"):
                return getattr(module, value[6:])
            return value

        given = {key: convert(value) for key, value in options.items()}
        with np.errstate(all="ignore"):
            return found_in(module, name)(*(convert(array) for array in arrays), **given)

    same(side(xp), side(strict), tolerance)


UNARY: list[tuple[str, tuple[str, ...], float]] = [
    *((n, NUMERIC, -4.0) for n in ("abs", "positive", "square", "sign", "ceil", "floor", "trunc")),
    *((n, (*SIGNED, *FLOATS), -4.0) for n in ("negative",)),
    *((n, NUMERIC, -4.0) for n in ("round", "isfinite", "isinf", "isnan")),
    *((n, FLOATS, -4.0) for n in ("asinh", "atan", "cos", "cosh", "exp", "expm1", "sin", "sinh")),
    *((n, FLOATS, -4.0) for n in ("tan", "tanh", "signbit", "reciprocal")),
    *((n, FLOATS, 0.1) for n in ("log", "log2", "log10", "log1p", "sqrt")),
    ("acosh", FLOATS, 1.0),
    ("logical_not", ("bool",), 0.0),
    ("bitwise_invert", (*INTEGERS, "bool"), -4.0),
]
BINARY: list[tuple[str, tuple[str, ...]]] = [
    *((n, NUMERIC) for n in ("add", "subtract", "multiply", "maximum", "minimum")),
    *((n, EVERY) for n in ("equal", "not_equal")),
    *((n, NUMERIC) for n in ("less", "less_equal", "greater", "greater_equal")),
    *((n, FLOATS) for n in ("divide", "atan2", "copysign", "hypot", "logaddexp", "nextafter")),
    *((n, ("bool",)) for n in ("logical_and", "logical_or", "logical_xor")),
    *((n, (*INTEGERS, "bool")) for n in ("bitwise_and", "bitwise_or", "bitwise_xor")),
    *((n, NUMERIC) for n in ("floor_divide", "remainder")),
]


@pytest.mark.parametrize(("name", "dtypes", "low"), UNARY, ids=[case[0] for case in UNARY])
def test_functions_of_one_array(name: str, dtypes: tuple[str, ...], low: float) -> None:
    for dtype in dtypes:
        for shape in SHAPES:
            compare(name, values(dtype, shape, low=low))


@pytest.mark.parametrize("name", ["acos", "asin", "atanh"])
def test_inverse_functions(name: str) -> None:
    for dtype in FLOATS:
        compare(name, values(dtype, (3, 4)) / np.dtype(dtype).type(4.5))


@pytest.mark.parametrize("name", ["sign", "abs", "isnan", "isinf", "isfinite", "trunc", "exp"])
def test_special_numbers(name: str) -> None:
    compare(name, np.array([np.nan, np.inf, -np.inf, 0.0, -0.0]))


@pytest.mark.parametrize(("name", "dtypes"), BINARY, ids=[case[0] for case in BINARY])
def test_functions_of_two_arrays(name: str, dtypes: tuple[str, ...]) -> None:
    shapes = [((3, 4), (3, 4)), ((3, 4), (4,)), ((), (3,)), ((2, 1, 3), (4, 1))]
    divides = name in ("floor_divide", "remainder")
    for left, right in itertools.combinations_with_replacement(dtypes, 2):
        kinds = {"float" if "float" in dtype else "bool" if dtype == "bool" else "int"
                 for dtype in (left, right)}  # fmt: skip
        if len(kinds) > 1:
            continue  # the standard leaves mixed kinds open
        shape = shapes[(dtypes.index(left) + dtypes.index(right)) % len(shapes)]
        second = values(right, shape[1], 1)
        if divides:
            second = np.where(second == 0, np.ones_like(second), second)
        compare(name, values(left, shape[0]), second)


def test_shifts_powers_and_numbers_of_python() -> None:
    for dtype in INTEGERS:
        amounts = values(dtype, (3, 4), 1, low=0) % 5
        base = values(dtype, (3, 4), low=0)
        compare("bitwise_left_shift", base, amounts.astype(dtype))
        compare("bitwise_right_shift", base, amounts.astype(dtype))
        compare("pow", base % np.array(4, dtype), amounts.astype(dtype))
        compare("add", base, 2)
    for dtype in FLOATS:
        compare("pow", values(dtype, (3, 4), low=0.1), values(dtype, (4,), 1))
        compare("multiply", values(dtype, (3,)), 2.5)
        compare("subtract", 1, values(dtype, (3,)))
        compare("clip", values(dtype, (3, 4)), -1.0, 2.0)
        compare("clip", values(dtype, (3, 4)), values(dtype, (4,), 2) - np.dtype(dtype).type(4))
    compare("clip", values("int32", (3, 4)), max=2)
    compare("where", values("bool", (3, 4)), values("int8", (4,)), values("int32", (3, 1)))
    compare("where", values("bool", (3, 4)), values("float64", ()), values("float32", (3, 4)))


REDUCTIONS: list[tuple[str, tuple[str, ...]]] = [
    *((n, NUMERIC) for n in ("max", "min")),
    *((n, (*SIGNED, *FLOATS)) for n in ("sum", "prod")),
    *((n, FLOATS) for n in ("mean", "var", "std")),
    *((n, EVERY) for n in ("all", "any", "count_nonzero")),
]


OF_COMPLEX = [
    *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "conj", "cos", "cosh", "exp"),
    *("expm1", "imag", "isfinite", "isinf", "isnan", "log", "log1p", "log2", "log10", "negative"),
    *("positive", "real", "reciprocal", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh"),
    *("sum", "prod", "mean", "all", "any", "count_nonzero", "tril", "matrix_transpose"),
    *("linalg.det", "linalg.inv", "linalg.slogdet", "linalg.svdvals", "linalg.trace"),
    *("linalg.matrix_norm", "linalg.vector_norm", "linalg.pinv", "linalg.matrix_rank"),
]


@pytest.mark.parametrize("name", OF_COMPLEX)
def test_functions_of_complex_numbers(name: str) -> None:
    for dtype in COMPLEX:
        tolerance = 2e-3 if dtype == "complex64" else 1e-8
        compare(name, values(dtype, (3, 3)), tolerance=tolerance)


@pytest.mark.parametrize("dtype", COMPLEX)
def test_complex_numbers(dtype: str) -> None:
    a, b = values(dtype, (3, 3)), values(dtype, (3, 3), 1)
    for name in ("add", "subtract", "multiply", "divide", "equal", "not_equal"):
        compare(name, a, b)
        compare(name, a, b[0])
    compare("pow", a, b, tolerance=1e-3)
    for name in ("multiply", "add"):
        compare(name, a, 2.5 - 1j)
        compare(name, a, values("float32" if dtype == "complex64" else "float64", (3,)))
    for name in ("matmul", "vecdot", "linalg.solve", "linalg.outer"):
        one = (a[0], b[0]) if name == "linalg.outer" else (a, b)
        compare(name, *one, tolerance=1e-3)
    for name in ("concat", "stack"):
        compare(name, [a, b])
    for name in ("zeros_like", "ones_like"):
        compare(name, a)
    compare("cumulative_sum", a, axis=0)
    compare("roll", a, 1)
    compare("take", a, np.array([2, 0]), axis=1)
    compare("linspace", 0j, 1 + 2j, 5, dtype=f"dtype:{dtype}")
    compare("full", (2, 2), 1 - 1j, dtype=f"dtype:{dtype}")
    compare("astype", values("int32", (3,)), f"dtype:{dtype}")
    for kind in ("complex floating", "numeric", "real floating"):
        assert xp.isdtype(getattr(xp, dtype), kind) == strict.isdtype(getattr(strict, dtype), kind)
    assert xp.finfo(getattr(xp, dtype)).bits == strict.finfo(getattr(strict, dtype)).bits
    assert complex(metaop.tensor(1 + 2j)) == 1 + 2j


@pytest.mark.parametrize(("name", "dtypes"), REDUCTIONS, ids=[case[0] for case in REDUCTIONS])
def test_reductions(name: str, dtypes: tuple[str, ...]) -> None:
    for dtype in dtypes:
        for axis in (None, 0, -1, (0, 2), (1,)):
            for keepdims in (False, True):
                compare(name, values(dtype, (2, 3, 2)), axis=axis, keepdims=keepdims)
        compare(name, values(dtype, ()))
    if name in ("sum", "prod"):
        compare(name, values("int16", (3, 4)), dtype="dtype:float64")
    if name in ("var", "std"):
        compare(name, values("float64", (3, 4)), axis=0, correction=1.0)


def test_scans_and_differences() -> None:
    for dtype in (*SIGNED, *FLOATS):
        for name in ("cumulative_sum", "cumulative_prod"):
            compare(name, values(dtype, (3, 4)), axis=1, include_initial=True)
            compare(name, values(dtype, (5,)))
        compare("diff", values(dtype, (3, 4)), n=2)
        compare("diff", values(dtype, (3, 4)), axis=0, prepend=values(dtype, (1, 4), 1))


def test_searching_sorting_and_sets() -> None:
    for dtype in NUMERIC:
        array = values(dtype, (4, 5))
        for name in ("argmax", "argmin"):
            for axis in (None, 0, -1):
                compare(name, array, axis=axis, keepdims=True)
        for name in ("sort", "argsort"):
            compare(name, array, axis=0)
            compare(name, array, descending=True)
        compare("searchsorted", np.sort(array[0]), array)
        compare("searchsorted", np.sort(array[0]), array, side="right")
        for name in ("unique_all", "unique_counts", "unique_inverse", "unique_values"):
            compare(name, array)
        compare("nonzero", array)
    compare("unique_values", np.array([2.0, np.nan, 1.0, np.nan, 2.0]))
    order = np.argsort(values("float64", (5,)))
    compare("searchsorted", values("float64", (5,)), np.array([0.0, 1.0]), sorter=order)


def test_shapes() -> None:
    for dtype in ("int32", "float32", "bool"):
        array, other = values(dtype, (2, 3, 4)), values(dtype, (2, 3, 4), 1)
        compare("concat", [array, other], axis=1)
        compare("concat", [array, other], axis=None)
        compare("stack", [array, other], axis=-1)
        compare("expand_dims", array, axis=-2)
        compare("flip", array)
        compare("flip", array, axis=(0, 2))
        compare("moveaxis", array, 0, 2)
        compare("permute_dims", array, (2, 0, 1))
        compare("repeat", array, 2)
        compare("repeat", array, 3, axis=1)
        compare("repeat", array, np.array([1, 0, 2]), axis=1)
        compare("reshape", array, (4, -1), copy=True)
        compare("roll", array, 5)
        compare("roll", array, (1, -1), axis=(0, 2))
        compare("squeeze", array[:, :1], axis=1)
        compare("tile", array, (2, 1, 3))
        compare("tile", array, (2,))
        compare("unstack", array, axis=1)
        compare("matrix_transpose", array)
        compare("broadcast_to", array[0], (5, 3, 4))
        compare("broadcast_arrays", array, array[0, 0])
        compare("take", array, np.array([2, 0, 2]), axis=1)
        compare("take_along_axis", array, np.array([[[1], [0], [1]]]), axis=2)
        compare("tril", array, k=-1)
        compare("triu", array, k=1)
    with pytest.raises(ValueError, match="size 1"):
        xp.squeeze(metaop.zeros(2, 3), 0)


CREATIONS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("arange", (5,), {}),
    ("arange", (1.5, 4), {}),
    ("arange", (5, 1, -2), {}),
    ("arange", (3, 1), {}),
    ("arange", (3,), {"dtype": "dtype:float64"}),
    ("eye", (3,), {}),
    ("eye", (3, 5), {"k": 1, "dtype": "dtype:int64"}),
    ("eye", (4, 2), {"k": -2}),
    ("full", ((2, 3), 7), {}),
    ("full", (3, True), {}),
    ("full", ((2,), 1.5), {}),
    ("linspace", (0.0, 1.0, 5), {}),
    ("linspace", (0, 10, 5), {"endpoint": False, "dtype": "dtype:float32"}),
    ("zeros", (3,), {}),
    ("ones", ((2, 0),), {"dtype": "dtype:int8"}),
    ("asarray", ([[1, 2], [3, 4]],), {}),
    ("asarray", ([True, False],), {}),
    ("asarray", (3,), {"dtype": "dtype:float64"}),
]


@pytest.mark.parametrize(("name", "arguments", "options"), CREATIONS)
def test_creation(
    name: str, arguments: tuple[Any, ...], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The standard leaves the default float type open; the reference has float64.
    previous = metaop.get_default_dtype()
    metaop.set_default_dtype(metaop.float64)
    try:
        compare(name, *arguments, **options)
    finally:
        metaop.set_default_dtype(previous)


def test_creation_after_other_arrays() -> None:
    for dtype in EVERY:
        array = values(dtype, (2, 3))
        for name in ("zeros_like", "ones_like"):
            compare(name, array)
            compare(name, array, dtype="dtype:float32")
        compare("full_like", array, True if dtype == "bool" else 3)
    assert xp.empty_like(metaop.zeros(2, 3)).shape == xp.empty((2, 3)).shape == (2, 3)
    for indexing in ("xy", "ij"):
        compare("meshgrid", np.arange(3), np.arange(4), indexing=indexing)
    array = np.arange(4.0)
    assert xp.asarray(array, copy=False).data_ptr() == array.ctypes.data
    assert xp.asarray(memoryview(array)).tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="copied"):
        xp.asarray([1, 2], copy=False)


def test_linear_algebra() -> None:
    for dtype in FLOATS:
        tolerance = 2e-3 if dtype == "float32" else 1e-8
        a, b = values(dtype, (2, 3, 3)), values(dtype, (2, 3, 3), 1)
        positive = a @ np.swapaxes(a, -1, -2) + np.eye(3, dtype=dtype)
        for name in ("matmul", "vecdot", "linalg.cross", "linalg.solve"):
            compare(name, a, b, tolerance=tolerance)
        compare("tensordot", a, b[0], axes=1, tolerance=tolerance)
        compare("tensordot", a, b, axes=([1, 2], [2, 1]), tolerance=tolerance)
        compare("linalg.outer", a[0, 0], b[0, 1])
        for name in ("det", "inv", "slogdet", "svdvals", "matrix_norm", "matrix_rank", "trace"):
            compare(f"linalg.{name}", a, tolerance=tolerance)
        compare("linalg.matrix_power", a, 3, tolerance=tolerance)
        compare("linalg.pinv", a, tolerance=tolerance * 10)
        compare("linalg.diagonal", a, offset=1)
        compare("linalg.trace", a, offset=-1)
        for name in ("cholesky", "eigvalsh"):
            compare(f"linalg.{name}", positive, tolerance=tolerance)
        compare("linalg.cholesky", positive, upper=True, tolerance=tolerance)
        for order in (1, 2, np.inf, "nuc"):
            compare("linalg.matrix_norm", a, ord=order, keepdims=True, tolerance=tolerance)
        compare("linalg.vector_norm", a, axis=(0, 2), ord=3, tolerance=tolerance)
        compare("linalg.vector_norm", a, tolerance=tolerance)
        # Factors are unique up to signs; their products are.
        ours = metaop.tensor(a)
        u, s, v = xp.linalg.svd(ours)
        np.testing.assert_allclose(((u * s[:, None]) @ v).numpy(), a, atol=1e-4)
        q, r = xp.linalg.qr(ours, mode="complete")
        np.testing.assert_allclose((q @ r).numpy(), a, atol=1e-4)
        found = xp.linalg.eigh(metaop.tensor(positive))
        rebuilt = (found.eigenvectors * found.eigenvalues[:, None]) @ found.eigenvectors.mT
        np.testing.assert_allclose(rebuilt.numpy(), positive, atol=1e-3)
    compare("matmul", values("int32", (3, 4)), values("int64", (4, 2)))
    compare("vecdot", values("int16", (3, 4)), values("int16", (3, 4), 1), axis=-2)


def test_types() -> None:
    for left, right in itertools.product(EVERY, EVERY):
        ours = (getattr(xp, left), getattr(xp, right))
        theirs = (getattr(strict, left), getattr(strict, right))
        mixed = len({np.dtype(d).kind in "iu" for d in (left, right)}) > 1 or (
            "bool" in (left, right) and left != right
        )
        if not mixed:
            wanted = np.dtype(strict.result_type(*theirs)._np_dtype)
            assert xp.result_type(*ours).name == wanted.name
            assert xp.can_cast(*ours) == strict.can_cast(*theirs)
    kinds = ("bool", "signed integer", "unsigned integer", "integral", "real floating", "numeric")
    for dtype, kind in itertools.product(EVERY, kinds):
        assert xp.isdtype(getattr(xp, dtype), kind) == strict.isdtype(getattr(strict, dtype), kind)
    for dtype in FLOATS:
        mine, theirs = xp.finfo(getattr(xp, dtype)), strict.finfo(getattr(strict, dtype))
        for name in ("bits", "eps", "max", "min", "smallest_normal"):
            assert getattr(mine, name) == pytest.approx(getattr(theirs, name))
    for dtype in INTEGERS:
        mine, theirs = xp.iinfo(getattr(xp, dtype)), strict.iinfo(getattr(strict, dtype))
        assert (mine.bits, mine.min, mine.max) == (theirs.bits, theirs.min, theirs.max)
    for left, right in itertools.product(NUMERIC, EVERY):
        compare("astype", values(left, (3,), low=0), f"dtype:{right}")
    information = xp.__array_namespace_info__()
    assert information.default_device() == "cpu"
    assert information.default_dtypes()["integral"] is metaop.int64
    assert set(information.dtypes(kind="real floating")) == set(FLOATS)
    assert information.capabilities()["boolean indexing"]


@pytest.mark.parametrize(
    "function",
    [
        lambda xp, x: xp.mean(x[x > 0]),
        lambda xp, x: xp.exp(x - xp.max(x, axis=-1, keepdims=True)),
        lambda xp, x: x[..., None] * x[:, None, :],
        lambda xp, x: xp.linalg.vector_norm(x, axis=0),
    ],
)
def test_programs_of_the_standard_run(function: Callable[[Any, Any], Any]) -> None:
    array = values("float64", (4, 4))
    tensor = metaop.tensor(array)
    same(function(tensor.__array_namespace__(), tensor), function(strict, strict.asarray(array)))
