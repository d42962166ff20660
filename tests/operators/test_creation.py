"""Creation, conversion and printing of tensors against PyTorch."""

from __future__ import annotations

import copy
import math
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.errors import ArgumentError, ArgumentTypeError, UnsupportedError
from tests.helpers import Versus, check, from_numpy, to_torch

torch = pytest.importorskip("torch")


def same(actual: metaop.Tensor, expected: torch.Tensor) -> None:
    assert actual.dtype.name == str(expected.dtype).removeprefix("torch.")
    assert tuple(actual.shape) == tuple(expected.shape)
    np.testing.assert_allclose(
        actual.detach().numpy().astype("float64"), expected.detach().double().numpy(), rtol=1e-6
    )


@pytest.mark.parametrize(
    "data",
    [
        3,
        2.5,
        True,
        [],
        [1, 2, 3],
        [1, 2.5],
        [True, False],
        [True, 2],
        [[1, 2], [3, 4]],
        [[1.0], [2.0]],
        (1, 2),
        [[], []],
        [np.float64(1.5), np.float64(2)],
        [np.float32(1.5)],
        np.arange(3, dtype=np.int32),
        np.float32(2.5),
        [np.ones(2), np.zeros(2)],
        [1 << 40],
        [float("nan"), float("inf")],
    ],
    ids=repr,
)
@pytest.mark.filterwarnings("ignore")
def test_tensor(data: object) -> None:
    same(metaop.tensor(data), torch.tensor(data))
    same(metaop.as_tensor(data), torch.as_tensor(data))
    for dtype in ("float32", "float64", "int64", "float16"):
        try:
            expected = torch.tensor(data, dtype=getattr(torch, dtype))
        except (RuntimeError, TypeError):
            continue
        same(metaop.tensor(data, dtype=getattr(metaop, dtype)), expected)


def test_ragged_and_unknown_data() -> None:
    with pytest.raises(ValueError, match="length"):
        metaop.tensor([[1, 2], [3]])
    with pytest.raises(ValueError, match="too many dimensions"):
        metaop.tensor(["a"])
    with pytest.raises(TypeError):
        metaop.from_numpy(np.array(["a"]))


def test_memory_is_shared_or_copied() -> None:
    array = np.arange(8.0)
    shared, copied = metaop.from_numpy(array), metaop.tensor(array)
    array[0] = 100
    assert shared[0].item() == 100 and copied[0].item() == 0
    assert metaop.as_tensor(array)[0].item() == 100
    x = metaop.ones(2)
    assert metaop.as_tensor(x) is x
    assert metaop.tensor(x) is not x


def test_tensor_of_tensors() -> None:
    expected = torch.tensor([torch.tensor(1.5), torch.tensor(2)])
    same(metaop.tensor([metaop.tensor(1.5), metaop.tensor(2)]), expected)


@pytest.mark.parametrize("name", ["zeros", "ones", "empty"])
def test_filled(name: str) -> None:
    function = getattr(metaop, name)
    for x in (function(2, 3), function((2, 3)), function([2, 3]), function(metaop.Size((2, 3)))):
        assert x.shape == (2, 3) and x.dtype is metaop.float32
    assert function(()).shape == ()
    assert function(2, dtype=metaop.int64).dtype is metaop.int64
    x = function(2, requires_grad=True)
    assert x.requires_grad and x.is_leaf
    if name != "empty":
        same(function(2, 0, 3), getattr(torch, name)(2, 0, 3))
        like = getattr(metaop, name + "_like")
        same(like(metaop.ones(2).long()), getattr(torch, name + "_like")(torch.ones(2).long()))
        x, y = metaop.ones(2).half(), torch.ones(2).half()
        same(getattr(x, "new_" + name)(3), getattr(y, "new_" + name)(3))
    with pytest.raises(RuntimeError):
        function(-1)


def test_full() -> None:
    for value in (2.5, 3, True, 0, math.inf):
        same(metaop.full((2,), value), torch.full((2,), value))
        same(metaop.full_like(metaop.ones(2), value), torch.full_like(torch.ones(2), value))
    same(metaop.ones(2).new_full((3,), 7), torch.ones(2).new_full((3,), 7))
    same(metaop.ones(2).new_tensor([3]), torch.ones(2).new_tensor([3]))
    assert metaop.ones(3).fill_(2.5).tolist() == [2.5] * 3
    assert metaop.ones(3).zero_().tolist() == [0] * 3


@pytest.mark.parametrize(
    "arguments",
    [(5,), (2, 8), (2, 8, 3), (8, 2, -3), (0.5, 3), (0, 1, 0.1), (1.0, 0.0, -0.25), (0,), (3.5,)],
)
def test_arange(arguments: tuple) -> None:
    same(metaop.arange(*arguments), torch.arange(*arguments))
    for dtype in ("float64", "int32"):
        expected = torch.arange(*arguments, dtype=getattr(torch, dtype))
        same(metaop.arange(*arguments, dtype=getattr(metaop, dtype)), expected)


def test_arange_errors() -> None:
    for arguments in ((0, 5, 0), (5, 0), (0, 5, -1)):
        with pytest.raises((RuntimeError, ValueError)):
            metaop.arange(*arguments)


def test_spaced() -> None:
    for arguments in ((0, 1, 5), (3, -2, 7), (1, 1, 3), (2, 5, 1), (0, 1, 0)):
        same(metaop.linspace(*arguments), torch.linspace(*arguments))
        same(metaop.logspace(*arguments), torch.logspace(*arguments))
    same(metaop.logspace(0, 3, 4, base=2), torch.logspace(0, 3, 4, base=2))
    expected = torch.linspace(0, 10, 4, dtype=torch.float64)
    same(metaop.linspace(0, 10, 4, dtype=metaop.float64), expected)


def test_eye_and_triangles() -> None:
    same(metaop.eye(3), torch.eye(3))
    same(metaop.eye(2, 4, dtype=metaop.int64), torch.eye(2, 4, dtype=torch.int64))
    for offset in (-1, 0, 2):
        same(metaop.tril_indices(3, 4, offset), torch.tril_indices(3, 4, offset))
        same(metaop.triu_indices(3, 4, offset), torch.triu_indices(3, 4, offset))
        check("tril", np.random.default_rng(0).standard_normal((2, 3, 4)), offset)


DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("target", [*DTYPES, "bfloat16"])
def test_conversion(source: str, target: str) -> None:
    values = np.array([0, 1, 2.7, 100.2]).astype(source)
    ours, theirs = from_numpy(values), to_torch(values)
    same(ours.to(getattr(metaop, target)), theirs.to(getattr(torch, target)))
    same(ours.type(getattr(metaop, target)), theirs.type(getattr(torch, target)))


@pytest.mark.parametrize("kind", [bool, int, float, complex])
@pytest.mark.filterwarnings("ignore")
def test_types_of_python_are_dtypes(kind: type) -> None:
    def made(framework: Any) -> list:
        x = framework.tensor([1.5, 0.0])
        return [
            framework.tensor([1, 0], dtype=kind),
            framework.as_tensor(np.array([1, 0]), dtype=kind),
            framework.zeros(2, dtype=kind),
            framework.full((2,), 1, dtype=kind),
            framework.eye(2, dtype=kind),
            framework.ones_like(x, dtype=kind),
            framework.full_like(x, 1, dtype=kind),
            framework.sum(x, dtype=kind),
            framework.sum(x, 0, False, dtype=kind),
            framework.empty_strided((0,), (1,), dtype=kind),
            x.new_zeros(2, dtype=kind),
            x.new_full((2,), 1, dtype=kind),
            x.new_tensor([1, 0], dtype=kind),
            x.prod(dtype=kind),
            x.to(kind),
            x.to(dtype=kind),
            x.to("cpu", kind),
            framework.zeros(8, dtype=framework.int64).view(kind),
            framework.frombuffer(bytearray(16), dtype=kind),
            framework.zeros(1, dtype=framework.promote_types(kind, framework.int32)),
        ]

    for actual, expected in zip(made(metaop), made(torch), strict=True):
        assert str(actual.dtype).removeprefix("metaop") == str(expected.dtype).removeprefix("torch")
        np.testing.assert_array_equal(actual.numpy(), expected.numpy())


@pytest.mark.parametrize("kind", [float, complex])
@pytest.mark.filterwarnings("ignore:Complex modules")
def test_modules_are_converted_to_types_of_python(kind: type) -> None:
    expected = torch.nn.Linear(2, 2).to(kind).weight.dtype
    for module in (metaop.nn.Linear(2, 2).to(kind), metaop.nn.Linear(2, 2).to(dtype=kind)):
        assert f"torch.{module.weight.dtype.name}" == str(expected)
    with pytest.raises(ArgumentTypeError, match="desired dtype=metaop.int64"):
        metaop.nn.Linear(2, 2).to(int)


def test_other_types_of_python_are_no_dtypes() -> None:
    with pytest.raises(ArgumentTypeError, match="'dtype' must be metaop.dtype, not type"):
        metaop.zeros(2, dtype=str)
    assert metaop.iinfo(int).max == torch.iinfo(int).max
    assert metaop.finfo(float).eps == torch.finfo(float).eps


def test_upper_limits_by_name() -> None:
    assert metaop.randint(high=1, size=(3,)).tolist() == [0, 0, 0]
    assert metaop.randint_like(metaop.ones(3), high=1).tolist() == [0.0, 0.0, 0.0]


def test_conversion_methods() -> None:
    x, y = metaop.tensor([1.5, 0.0]), torch.tensor([1.5, 0.0])
    for name in (
        *("bool", "byte", "char", "short", "int", "long"),
        *("half", "bfloat16", "float", "double"),
    ):
        same(getattr(x, name)(), getattr(y, name)())
    assert x.to(metaop.float32) is x and x.float() is x and x.cpu() is x
    assert x.to("cpu") is x and x.to(metaop.device("cpu"), metaop.float64).dtype is metaop.float64
    assert x.to(metaop.float32, copy=True) is not x
    assert x.to(metaop.ones(1).long()).dtype is metaop.int64
    assert x.type() == "metaop.FloatTensor" and x.type("metaop.LongTensor").dtype is metaop.int64
    assert x.type_as(metaop.ones(1).half()).dtype is metaop.float16
    check((lambda t: t.double() * 2, lambda t: t.double() * 2), np.ones(3, np.float32))


def test_facts() -> None:
    x = metaop.ones(2, 3)
    assert x.size() == (2, 3) and x.size(-1) == 3 and x.shape.numel() == 6
    assert x.numel() == x.nelement() == 6 and x.dim() == x.ndimension() == x.ndim == 2
    assert x.element_size() == 4 and x.is_floating_point() and not x.is_complex()
    assert metaop.is_tensor(x) and not metaop.is_tensor(3) and len(x) == 2
    assert metaop.tensor([1.0]).is_nonzero() and metaop.numel(x) == 6
    assert metaop.float is metaop.float32 and metaop.long is metaop.int64
    with pytest.raises(IndexError):
        x.size(2)


def test_numbers() -> None:
    x = metaop.tensor(3)
    assert (x.item(), int(x), float(x), bool(x), [10, 20, 30, 40][x]) == (3, 3, 3.0, True, 40)
    assert f"{metaop.tensor(2.5):.2f}" == "2.50"
    with pytest.raises(TypeError):
        len(x)
    with pytest.raises(TypeError):
        iter(x)
    with pytest.raises(RuntimeError):
        metaop.ones(2).item()
    assert [int(v) for v in metaop.arange(3)] == [0, 1, 2]
    assert 2 in metaop.arange(3) and 5 not in metaop.arange(3)


def test_copies() -> None:
    x = metaop.tensor([1.0, 2.0], requires_grad=True)
    for other in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert other is not x and other.tolist() == [1, 2]
        assert other.requires_grad and other.is_leaf
    y = metaop.ones(2).bfloat16()
    assert pickle.loads(pickle.dumps(y)).dtype is metaop.bfloat16
    assert hash(x) != hash(y) and {x: 1}[x] == 1
    with pytest.raises((TypeError, RuntimeError)):
        copy.deepcopy(x * 2)


def test_numpy() -> None:
    x = metaop.arange(3)
    assert np.asarray(x).tolist() == [0, 1, 2]
    assert np.asarray(x, dtype=np.float32).dtype == np.float32
    np.testing.assert_array_equal(np.sin(metaop.ones(2)), np.sin(np.ones(2, np.float32)))
    with pytest.raises(RuntimeError, match="detach"):
        metaop.ones(2, requires_grad=True).numpy()


def test_copy_into() -> None:
    x = metaop.zeros(2, 3)
    assert x.copy_(metaop.arange(3)) is x
    assert x.tolist() == [[0, 1, 2], [0, 1, 2]]
    with pytest.raises(RuntimeError):
        x.copy_(metaop.ones(4))
    assert x.copy_(2.5).tolist() == [[2.5] * 3] * 2
    assert metaop.zeros(2, dtype=metaop.int64).copy_(np.float32(2.5)).tolist() == [2, 2]
    for wrong in ([1, 2, 3], np.ones(3), None):
        with pytest.raises(TypeError, match="copy_ takes a tensor or a number"):
            x.copy_(wrong)


def test_default_dtype() -> None:
    metaop.set_default_dtype(metaop.float64)
    try:
        assert metaop.get_default_dtype() is metaop.float64
        assert metaop.tensor(1.5).dtype is metaop.zeros(1).dtype is metaop.float64
        assert (metaop.tensor([1]) / 2).dtype is metaop.float64
        assert (metaop.tensor([1]) + 0.5).dtype is metaop.float64
        assert metaop.tensor([1]).exp().dtype is metaop.float64
    finally:
        metaop.set_default_dtype(metaop.float32)
    with pytest.raises(TypeError):
        metaop.set_default_dtype(metaop.int64)


PRINTED = [
    np.array(1.5),
    np.array(3),
    np.array(True),
    np.array([1.0, 2.0, 3.0]),
    np.array([1.5, -2.25, 1e-3]),
    np.array([1.5, math.nan, math.inf, -math.inf]),
    np.array([math.nan, 1.0]),
    np.array([1e10, 1.0]),
    np.array([1e-8, 1.0]),
    np.array([12345678.0, 0.5]),
    np.array([100000.0, 2.0]),
    np.zeros(3),
    np.arange(6).reshape(2, 3),
    np.array([[True, False]]),
    np.arange(24.0).reshape(2, 3, 4) / 7,
    np.arange(40) * 1000,
    np.arange(2000.0),
    np.arange(4000).reshape(50, 80),
    np.zeros((0,)),
    np.zeros((2, 0)),
    np.zeros((0,), np.int64),
    np.arange(20.0) / 3,
    np.ones((3, 1, 1, 2)),
    np.arange(60000.0).reshape(10, 20, 300),
]


@pytest.mark.parametrize("position", range(len(PRINTED)))
@pytest.mark.parametrize("dtype", [None, "float32", "float16", "int32"])
def test_printing(position: int, dtype: str | None) -> None:
    values = PRINTED[position]
    if dtype is not None:
        with np.errstate(all="ignore"):
            values = values.astype(dtype) if np.isfinite(values.astype("float64")).all() else values
    expected = repr(to_torch(values)).replace("torch.", "metaop.")
    # The longer name of the package may push the dtype to the next line.
    actual = repr(from_numpy(values))
    assert re.sub(r",\s+dtype", ", dtype", actual) == re.sub(r",\s+dtype", ", dtype", expected)


def test_printing_of_gradients() -> None:
    x = metaop.tensor([1.0, 2.0], requires_grad=True)
    assert repr(x) == "tensor([1., 2.], requires_grad=True)"
    assert repr(x * 2) == "tensor([2., 4.], grad_fn=<MulBackward0>)"
    assert str(metaop.float32) == "metaop.float32"
    assert repr(metaop.ones(2, 3).shape) == "metaop.Size([2, 3])"


def test_a_profile_of_printing_that_nobody_knows() -> None:
    with pytest.raises(metaop.errors.ArgumentError, match="'wide'"):
        metaop.set_printoptions(profile="wide")


def test_print_options() -> None:
    try:
        metaop.set_printoptions(precision=2, sci_mode=False)
        torch.set_printoptions(precision=2, sci_mode=False)
        values = np.array([1.23456, 1e-6, 1e6])
        assert repr(from_numpy(values)) == repr(to_torch(values)).replace("torch.", "metaop.")
    finally:
        metaop.set_printoptions(profile="default")
        torch.set_printoptions(profile="default")


def test_dtype_of_a_copy() -> None:
    check("zeros_like", np.ones(2), gradient=False, dtype=Versus((metaop.int64, torch.int64)))


@pytest.mark.parametrize(
    "name", ["float8_e4m3fn", "float8_e5m2", "float16", "bfloat16", "float32", "float64"]
)
def test_limits_of_floats(name: str) -> None:
    ours, theirs = metaop.finfo(getattr(metaop, name)), torch.finfo(getattr(torch, name))
    for field in ("bits", "eps", "max", "min", "tiny", "smallest_normal", "resolution", "dtype"):
        assert getattr(ours, field) == getattr(theirs, field), field
    assert repr(ours) == repr(theirs)
    with pytest.raises(TypeError):
        metaop.finfo(metaop.int64)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "uint16", "uint32", "uint64"])
def test_types_without_tensors_are_refused(name: str) -> None:
    dtype, expected = getattr(metaop, name), getattr(torch, name)
    assert repr(dtype) == f"metaop.{name}"
    assert dtype.itemsize == expected.itemsize
    assert dtype.is_floating_point == expected.is_floating_point
    for make in (lambda: metaop.zeros(2, dtype=dtype), lambda: metaop.ones(2).to(dtype)):
        with pytest.raises(UnsupportedError, match=f"there are no tensors of {name}"):
            make()


@pytest.mark.parametrize(
    "name", ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
)
def test_limits_of_integers(name: str) -> None:
    ours, theirs = metaop.iinfo(getattr(metaop, name)), torch.iinfo(getattr(torch, name))
    assert (ours.bits, ours.min, ours.max) == (theirs.bits, theirs.min, theirs.max)
    assert repr(ours) == repr(theirs)


@pytest.mark.parametrize("name", ["hann", "hamming", "blackman", "bartlett", "kaiser"])
@pytest.mark.parametrize("length", [0, 1, 2, 7])
def test_windows(name: str, length: int) -> None:
    for periodic in (True, False):
        ours = getattr(metaop, name + "_window")(length, periodic).numpy()
        theirs = getattr(torch, name + "_window")(length, periodic).numpy()
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_matrices_of_vectors() -> None:
    x, y = np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0])
    check("cartesian_prod", x, y)
    for repeated in (False, True):
        check("combinations", x, 2, repeated)
    check("block_diag", x, np.ones((2, 2)), y)
    check("vander", x, gradient=False)
    check("vander", x, 4, increasing=True, gradient=False)


def test_small_facts() -> None:
    x = metaop.ones(2, 3)
    assert (x.itemsize, x.nbytes, x.is_cpu, x.is_cuda, x.get_device()) == (4, 24, True, False, -1)
    assert x.data_ptr() == x.numpy().__array_interface__["data"][0]
    assert x.sum_to_size(3).tolist() == [2, 2, 2] and x.sum_to_size(2, 1).shape == (2, 1)
    assert metaop.ones(2).is_same_size(metaop.zeros(2))
    check("softmax", np.random.default_rng(0).standard_normal((2, 3)), 1)
    check("log_softmax", np.random.default_rng(0).standard_normal((2, 3)), -1)


def test_lazy_names() -> None:
    assert metaop.dropout is metaop.nn.functional.dropout
    assert metaop.linalg.inv is not None
    with pytest.raises(AttributeError, match="no attribute"):
        _ = metaop.does_not_exist


def test_tensors_of_files(tmp_path: Path) -> None:
    """Numbers of a file, copied or shared with it, as in PyTorch."""
    for dtype in ("float32", "int64", "uint8"):
        written = []
        for framework in (torch, metaop):
            kind, path = getattr(framework, dtype), str(tmp_path / f"{framework.__name__}{dtype}")
            shared = framework.from_file(path, shared=True, size=4, dtype=kind)
            assert shared.tolist() == [0] * 4 and shared.dtype is kind
            shared[1:3] = 7
            shared += 1
            private = framework.from_file(path, size=3, dtype=kind)
            private.zero_()
            written.append((Path(path).read_bytes(), shared.tolist(), private.tolist()))
            assert framework.from_file(path, False, 2, dtype=kind).tolist() == [1, 8]
        assert written[0] == written[1]
    with pytest.raises(ArgumentError, match="has 16 bytes, and 5 elements need 20"):
        metaop.from_file(tmp_path / "metaopfloat32", size=5)
    assert metaop.from_file(tmp_path / "metaopfloat32").shape == (0,)
    leaf = metaop.from_file(tmp_path / "metaopfloat32", size=2, requires_grad=True)
    assert leaf.is_leaf and leaf.requires_grad


@pytest.mark.parametrize("kind", [float, complex])
def test_types_of_python_in_layers(kind: type) -> None:
    makers: tuple[Any, ...] = (
        lambda nn: nn.Linear(2, 3, dtype=kind),
        lambda nn: nn.Conv2d(1, 1, 1, dtype=kind),
        lambda nn: nn.Embedding(2, 3, dtype=kind),
        lambda nn: nn.LayerNorm(3, dtype=kind),
        lambda nn: nn.BatchNorm1d(3, dtype=kind),
        lambda nn: nn.LSTM(2, 3, dtype=kind),
        lambda nn: nn.MultiheadAttention(2, 1, dtype=kind),
        lambda nn: nn.TransformerEncoderLayer(2, 1, 2, dtype=kind),
    )
    for make in makers if kind is float else makers[2:5]:
        ours, theirs = make(metaop.nn).state_dict(), make(torch.nn).state_dict()
        wanted = {name: str(one.dtype).removeprefix("torch.") for name, one in theirs.items()}
        assert {name: one.dtype.name for name, one in ours.items()} == wanted
    layer = metaop.nn.Linear(2, 3, dtype=float)
    assert layer(metaop.ones(1, 2, dtype=float)).dtype is metaop.float64
    with pytest.raises(TypeError, match="only floating-point types"):
        metaop.set_default_dtype(float)


# What PyTorch makes tensors with, and the arguments that each needs.
_MAKERS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("empty", "ones", "rand", "randn", "zeros"), ((2,),)),
    **dict.fromkeys(("linspace", "logspace"), (0, 1, 3)),
    **{f"{name}_window": (3,) for name in ("bartlett", "blackman", "hamming", "hann", "kaiser")},
    **dict.fromkeys(("arange", "eye", "randperm"), (3,)),
    **dict.fromkeys(("tril_indices", "triu_indices"), (3, 3)),
    **{
        "full": ((2,), 1.0),
        "normal": (0.0, 1.0, (2,)),
        "randint": (3, (2,)),
        "scalar_tensor": (2.0,),
    },
    **{"empty_strided": ((2, 2), (2, 1)), "empty_permuted": ((2, 2), (1, 0))},
    **{f"{name}_like": () for name in ("empty", "ones", "rand", "randn", "zeros")},
    **{"full_like": (1.0,), "randint_like": (3,)},
    **{f"new_{name}": ((2,),) for name in ("empty", "ones", "zeros")},
    **{"new_full": ((2,), 1.0), "new_tensor": (1.0,)},
}


@pytest.mark.parametrize("name", _MAKERS)
def test_arguments_of_all_that_makes_tensors(name: str) -> None:
    outcomes = []
    for lib in (torch, metaop):
        like = lib.ones(2)
        owner: Any = like if name.startswith("new_") else lib
        given = (like, *_MAKERS[name]) if name.endswith("_like") else _MAKERS[name]
        counts = name.endswith("_indices")
        dtype = lib.int64 if counts else lib.float32
        options = {"layout": lib.strided, "dtype": dtype, "device": "cpu"}
        if name == "new_tensor":
            del options["layout"]
        elif not name.endswith("_window"):
            options["pin_memory"] = False
        made = getattr(owner, name)(*given, **options)
        tracked = counts or getattr(owner, name)(*given, dtype=dtype, requires_grad=True)
        outcomes.append((tuple(made.shape), made.requires_grad, counts or tracked.requires_grad))
    assert outcomes[0] == outcomes[1]


def test_sizes_hold_integers() -> None:
    for lib in (torch, metaop):
        size = lib.Size((2, lib.tensor(3), np.int64(4), True))
        assert size == (2, 3, 4, 1) and pickle.loads(pickle.dumps(size)) == size
        assert lib.zeros(2, 1).expand(lib.Size((2, lib.tensor(3)))).shape == (2, 3)
        assert lib.Size() == () and type(size[1:]) is type(size + (5,)) is lib.Size
        for wrong in (2.0, "3", None):
            with pytest.raises(TypeError, match=r"iterable of 'int' \(item 1 is"):
                lib.Size((2, wrong))
