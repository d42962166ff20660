"""Names that programs import from PyTorch's corners."""

from __future__ import annotations

import copy
import importlib
import sys
import warnings
from typing import Any

import numpy as np
import pytest

import metaop
import metaop.nn.functional as F
from metaop import nn

torch = pytest.importorskip("torch")
LIBRARIES = pytest.mark.parametrize("lib", [metaop, torch], ids=["metaop", "torch"])


def of(lib: Any, name: str) -> Any:
    """The module or the object of a dotted name below a library."""
    value = lib
    for part in name.split("."):
        value = getattr(value, part)
    return value


@LIBRARIES
def test_decorators_and_questions_of_tracers_change_nothing(lib: Any) -> None:
    jit = metaop.scripting if lib is metaop else torch.jit
    wrapped: dict[str, Any] = {"wrap": of(lib, "fx.wrap")}
    exec("named, function = wrap('len'), wrap(print)", wrapped)
    assert wrapped["named"] == "len" and wrapped["function"] is print
    assert callable(jit._overload) and callable(jit._overload_method)
    assert of(lib, "onnx.is_in_onnx_export")() is False
    assert "built with" in of(lib, "__config__.show")()
    assert of(lib, "__config__.parallel_info")()
    with pytest.raises((RuntimeError, ValueError), match="callable or string"):
        of(lib, "fx.wrap")(3)


@LIBRARIES
def test_a_tensor_tells_what_it_is_not(lib: Any) -> None:
    names = [name for name in dir(torch.Tensor) if name.startswith("is_")]
    told = {name for name in names if isinstance(getattr(lib.ones(1), name, None), bool)}
    flags = {name for name in names if isinstance(getattr(torch.ones(1), name), bool)}
    assert told == flags
    assert {name for name in flags if getattr(lib.ones(1), name)} == {"is_cpu", "is_leaf"}
    assert lib.ones(1).is_inference() is False


@pytest.mark.parametrize("value", [3, 2.5, True, "tensor"])
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_fill(dtype: str, value: Any) -> None:
    results = []
    for lib in (metaop, torch):
        number = lib.tensor(7) if value == "tensor" else value
        x = lib.zeros(2, 3, dtype=getattr(lib, dtype))
        results.append(lib.fill(x, number).tolist())
        assert not x.any()
    assert results[0] == results[1]


@pytest.mark.parametrize("size", [0, 2, 5])
@pytest.mark.parametrize("values", [[[1, 0], [1, 1]], [0, 0, 4], 3])
def test_nonzero_static(values: Any, size: int) -> None:
    ours, theirs = (
        lib.nonzero_static(lib.tensor(values), size=size, fill_value=9) for lib in (metaop, torch)
    )
    assert tuple(ours.shape) == tuple(theirs.shape) and ours.tolist() == theirs.tolist()
    assert ours.dtype is metaop.int64
    with pytest.raises(RuntimeError):
        metaop.nonzero_static(metaop.tensor(values), size=-1)


@pytest.mark.parametrize("pads", [(1, 2), (-1, 1), (0, 1, 2, 0), (1, 1, 1, 1, 1, 1)])
def test_constant_pad_nd(pads: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4))
    ours = metaop.constant_pad_nd(metaop.from_numpy(x), pads, 1.5)
    theirs = torch.constant_pad_nd(torch.from_numpy(x), pads, 1.5)
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


@pytest.mark.parametrize("name", ["grid_sampler", "grid_sampler_2d", "grid_sampler_3d"])
@pytest.mark.parametrize(("mode", "padding"), [(0, 0), (1, 1), (0, 2)])
def test_grid_sampler(name: str, mode: int, padding: int) -> None:
    random = np.random.default_rng(1)
    dimensions = 3 if name.endswith("3d") else 2
    x = random.standard_normal((2, 3, *(5, 4, 6)[:dimensions]))
    grid = random.uniform(-1.2, 1.2, (2, *(3, 2, 4)[:dimensions], dimensions))
    arguments = (mode, padding, True)
    ours = getattr(metaop, name)(metaop.from_numpy(x), metaop.from_numpy(grid), *arguments)
    theirs = getattr(torch, name)(torch.from_numpy(x), torch.from_numpy(grid), *arguments)
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), atol=1e-12)


def test_grid_samplers_refuse_other_modes_and_dimensions() -> None:
    x, grid = metaop.ones(1, 1, 2, 2), metaop.zeros(1, 1, 1, 2)
    with pytest.raises(ValueError, match="unknown modes 3 and 0"):
        metaop.grid_sampler(x, grid, 3, 0, False)
    with pytest.raises(ValueError, match="expected 5D"):
        metaop.grid_sampler_3d(x, grid, 0, 0, False)


OUT: dict[str, Any] = {
    "gelu": lambda x, f, out: f.gelu(x, out=out),
    "hardshrink": lambda x, f, out: f.hardshrink(x, 0.3, out=out),
    "logsigmoid": lambda x, f, out: f.logsigmoid(x, out=out),
    "softplus": lambda x, f, out: f.softplus(x, 2.0, out=out),
    "softshrink": lambda x, f, out: f.softshrink(x, out=out),
    "linear": lambda x, f, out: f.linear(x[0, 0], x[1, 1], out=out),
    "avg_pool2d": lambda x, f, out: f.avg_pool2d(x, 2, out=out),
    "avg_pool3d": lambda x, f, out: f.avg_pool3d(x, 2, out=out),
    "normalize": lambda x, f, out: f.normalize(x, dim=0, out=out),
}


@pytest.mark.parametrize("name", OUT)
def test_out_is_written(name: str) -> None:
    values = np.random.default_rng(2).standard_normal((2, 2, 4, 4))
    written = []
    for lib in (metaop, torch):
        x, functional = lib.from_numpy(values), lib.nn.functional
        out = lib.empty(0, dtype=lib.float64)
        assert OUT[name](x, functional, out) is out
        written.append(out.numpy())
        if lib is metaop:
            with pytest.raises(RuntimeError, match="out=... arguments don't support"):
                OUT[name](x.requires_grad_(), functional, out)
    np.testing.assert_allclose(written[0], written[1], rtol=1e-10)


def test_functions_without_out_refuse_it() -> None:
    for name in ("celu", "relu6", "silu", "avg_pool1d", "softsign"):
        with pytest.raises(TypeError, match="out"):
            getattr(F, name)(metaop.ones(1, 1, 4), out=metaop.empty(0))


def test_layers_are_found_where_pytorch_defines_them() -> None:
    home = "torch.nn.modules."
    for name in [name for name in dir(nn) if isinstance(getattr(torch.nn, name, None), type)]:
        theirs = getattr(torch.nn, name)
        if theirs.__module__.startswith(home) and not name.endswith("Options"):
            room = importlib.import_module(theirs.__module__.replace("torch", "metaop", 1))
            assert getattr(room, name) is getattr(nn, name)
            listed = name in getattr(sys.modules[theirs.__module__], "__all__", ())
            assert vars(room).get(name) is getattr(nn, name) or not listed
    assert issubclass(nn.Conv2d, nn.modules.conv._ConvNd)
    with pytest.raises(AttributeError):
        nn.modules.conv.Nothing  # noqa: B018


@LIBRARIES
def test_helpers_of_layers(lib: Any) -> None:
    utils, module = lib.nn.modules.utils, lib.nn.modules.module
    assert utils._pair(3) == (3, 3) and utils._pair([1, 2]) == (1, 2)
    assert utils._ntuple(4)("ab") == ("a", "b") and utils._triple(None) == (None,) * 3
    assert utils._reverse_repeat_tuple((1, 2), 2) == (2, 2, 1, 1)
    assert utils._list_with_default([None, 3], [5, 6, 7]) == [6, 3]
    state = {"module.a": 1, "b": 2}
    utils.consume_prefix_in_state_dict_if_present(state, "module.")
    assert state == {"a": 1, "b": 2}
    assert module._addindent("a\nb", 2) == "a\n  b"


@LIBRARIES
def test_hooks_of_all_modules_under_their_own_path(lib: Any) -> None:
    seen = []
    hooks = lib.nn.modules.module
    handles = [
        hooks.register_module_forward_pre_hook(lambda m, x: seen.append("before")),
        hooks.register_module_forward_hook(lambda m, x, y: seen.append("after")),
        hooks.register_module_full_backward_hook(lambda m, x, y: seen.append("backward")),
    ]
    with handles[0], handles[1], handles[2]:
        lib.nn.ReLU()(lib.ones(2, requires_grad=True)).sum().backward()
    lib.nn.ReLU()(lib.ones(2))
    assert seen == ["before", "after", "backward"]


BASES = ("Nd", "Norm", "NormBase", "XdMixin", "Loss")


def _bases(lib: Any) -> dict[str, set[str]]:
    """The private bases in the modules of PyTorch's layers, with the layers below each."""
    modules = torch.nn.modules
    rooms = (getattr(modules, name) for name in dir(modules) if not name.startswith("_"))
    names = {
        (room.__name__.removeprefix("torch."), name)
        for room in rooms
        if getattr(room, "__name__", "").startswith("torch.nn.modules.")
        for name, value in vars(room).items()
        if isinstance(value, type) and value.__module__ == room.__name__
        if name == "LazyModuleMixin" or (name[0] == "_" and name.endswith(BASES))
    }
    layers = [name for name in dir(torch.nn) if isinstance(getattr(torch.nn, name), type)]
    return {
        name: {
            one
            for one in layers
            if issubclass(getattr(lib.nn, one, int), of(lib, f"{room}.{name}"))
        }
        for room, name in names
    }


def test_private_bases_of_layers_have_the_same_layers() -> None:
    theirs = _bases(torch)
    assert len(theirs) > 15 and _bases(metaop) == theirs


@LIBRARIES
def test_switches_and_questions_of_devices_change_nothing(lib: Any) -> None:
    backends = importlib.import_module(f"{lib.__name__}.backends")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        with backends.cuda.sdp_kernel(enable_flash=False, enable_math=True):
            pass
    before = backends.mha.get_fastpath_enabled()
    backends.mha.set_fastpath_enabled(False)
    assert before is True and backends.mha.get_fastpath_enabled() is False
    backends.mha.set_fastpath_enabled(before)
    assert isinstance(backends.opt_einsum.is_available(), bool)
    assert isinstance(backends.nnpack.is_available(), bool)
    assert lib.cuda._initialized is lib.cuda.is_initialized()


@LIBRARIES
def test_words_for_tracers_change_nothing(lib: Any) -> None:
    compiler = importlib.import_module(f"{lib.__name__}.compiler")
    compiler.reset()
    with compiler.set_stance("force_eager"):
        assert compiler.is_dynamo_compiling() is False
    assert compiler.set_stance("default")(lambda x: 2 * x)(3) == 6


@LIBRARIES
def test_hooks_give_the_handles_of_their_module(lib: Any) -> None:
    hooks = importlib.import_module(f"{lib.__name__}.utils.hooks")
    weight = lib.ones(1, requires_grad=True)
    seen: list[Any] = []
    handles = lib.nn.ReLU().register_forward_hook(print), weight.register_hook(seen.append)
    assert all(isinstance(handle, hooks.RemovableHandle) for handle in handles)
    if lib is metaop:  # PyTorch copies no handles of tensors
        copy.deepcopy(handles)[1].remove()
    weight.sum().backward()
    handles[1].remove()
    weight.sum().backward()
    assert len(seen) == 1
