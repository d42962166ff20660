"""Under `autocast` functions give the types that PyTorch's give, for inputs of every precision."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from metaop import operators
from metaop.operators.pointwise import POINTWISE
from metaop.tensor.casting import IN_FLOAT32, IN_LOW_PRECISION
from metaop.unified_graph.composite import Composite

torch = pytest.importorskip("torch")

# Each line is a call. The names of the main module stand alone, other names are the inputs below;
# names in capitals are the same inputs in the second precision.
PROGRAMS = (Path(__file__).parent / "autocast_programs.txt").read_text().splitlines()

# The hidden state of these stays in float32, so metaop computes the whole cell in float32.
# PyTorch's CPU list lacks `bilinear`, of which it computes a part in the low precision.
MORE_PRECISE = (
    *("nn.GRU(4, 5)(x)", "nn.GRUCell(4, 5)(x)", "nn.LSTMCell(4, 5)(x)"),
    *("nn.functional.bilinear(x, Y, b3)", "nn.Bilinear(4, 4, 2)(x, y)"),
)


def floats() -> dict[str, np.ndarray]:
    """Inputs of all kinds that functions take."""
    random = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {
        **dict.fromkeys("xyz", (4, 4)),
        **dict.fromkeys("vw", (4,)),
        **dict.fromkeys(("b", "c", "d", "b3"), (2, 4, 4)),
        **{"t": (4, 3), "kernel1": (4, 4, 2), "kernel": (2, 2, 3, 3), "kernel3": (2, 2, 2, 2, 2)},
        **{"image": (1, 2, 6, 6), "volume": (1, 2, 4, 4, 4), "columns": (1, 4, 1), "wave": (32,)},
        **{"theta": (1, 2, 3), "pixels": (1, 4, 2, 2), "in_projection": (12, 4)},
    }
    found = {name: random.normal(size=shape) for name, shape in shapes.items()}
    square = found["x"] @ found["x"].T + 4 * np.eye(4)
    found |= {"s": square, "l": np.linalg.cholesky(square), "q": np.array([0.2, 0.7])}
    found |= {"p": random.uniform(1.1, 2, (4, 4)), "u": random.uniform(0.1, 0.9, (4, 4))}
    found |= {"window": np.ones(8), "signs": np.sign(found["v"])}
    found |= {"grid": random.uniform(-1, 1, (1, 3, 3, 2))}
    found |= {"grid3": random.uniform(-1, 1, (1, 2, 2, 2, 3))}
    return found | {"logs": np.log(random.dirichlet(np.ones(4), size=(5, 2)))}


FLOATS = floats()
INTEGERS = {
    "index": [0, 2, 1, 3],
    "indices": [[0, 1, 2, 3]],
    "classes": [0, 1, 2, 3],
    "classes2": [[0, 1, 2, 3], [3, 2, 1, 0]],
    "labels": [[0, -1, 1, 2]] * 4,
    "targets": [[1, 2], [2, 1]],
    "lengths": [5, 5],
    "target_lengths": [2, 2],
}


class Names(dict):
    """The inputs, and every name of the library."""

    def __init__(self, library: Any, first: str, second: str) -> None:
        self.library = library
        low, high = getattr(library, first), getattr(library, second)
        for name, values in FLOATS.items():
            tensor = library.tensor(values.astype(np.float32).tolist())
            self[name], self[name.upper()] = tensor.to(low), tensor.to(high)
        self.update({name: library.tensor(values) for name, values in INTEGERS.items()})
        self["torch"] = library

    def __missing__(self, name: str) -> Any:
        return getattr(self.library, name)


def outcome(
    library: Any, program: str, types: tuple[str, str] = ("float32", "float32"), cast: bool = True
) -> Any:
    """The value of a program under `autocast`, or without it."""
    library.manual_seed(0)
    names = Names(library, *types)
    casts = library.autocast("cpu", dtype=library.bfloat16) if cast else nullcontext()
    with warnings.catch_warnings(), casts:
        warnings.simplefilter("ignore")
        return eval(program, {}, names)


def dtypes_of(value: Any) -> Any:
    """The names of the types of all tensors in a value."""
    if isinstance(value, (tuple, list)):
        return [dtypes_of(one) for one in value]
    return str(getattr(value, "dtype", type(value).__name__)).split(".")[-1]


def arrays(value: Any, library: Any) -> Iterator[np.ndarray]:
    """All tensors in a value, in float64."""
    if isinstance(value, library.Tensor):
        whole = value.detach().resolve_conj()
        whole = library.view_as_real(whole) if whole.is_complex() else whole
        yield np.asarray(whole.to(library.float64).numpy())
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from arrays(one, library)


def has_two_types(program: str) -> bool:
    """Whether a program names inputs of the second precision."""
    named = {node.id for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Name)}
    return any(name.isupper() for name in named)


@pytest.mark.parametrize("program", PROGRAMS)
def test_types_of_results(program: str) -> None:
    pairs = [("float32", "float32"), ("bfloat16", "bfloat16")]
    if has_two_types(program) or program.startswith("nn."):
        pairs += [("float32", "bfloat16"), ("bfloat16", "float32")]
    for pair in pairs:
        try:
            expected = dtypes_of(outcome(torch, program, pair))
        except (RuntimeError, NotImplementedError, ValueError):
            # PyTorch has no kernel for the type; for float32 it must have one.
            assert pair != ("float32", "float32")
            continue
        assert dtypes_of(outcome(metaop, program, pair)) == expected, pair


def is_full_precision(library: Any, program: str) -> bool:
    """Whether `autocast` leaves the values as they are."""
    cast = arrays(outcome(library, program), library)
    plain = arrays(outcome(library, program, cast=False), library)
    for found, expected in zip(cast, plain, strict=True):
        size = np.abs(expected[np.isfinite(expected)]).max(initial=0)
        if not np.allclose(found, expected, rtol=1e-6, atol=1e-6 * max(1, size), equal_nan=True):
            return False
    return True


@pytest.mark.parametrize("program", PROGRAMS)
def test_precision_inside(program: str) -> None:
    """A float32 result that PyTorch computes in float32 is not computed in the low precision."""
    expected = is_full_precision(torch, program)
    assert is_full_precision(metaop, program) == (expected or program in MORE_PRECISE)


# Operators that are inner steps of functions in the programs, under the functions' names; those
# that metaop has under no name; those that this machine's PyTorch may be unable to run.
INNER = {
    "_addmm_activation": "addmm",
    "_convolution": "conv2d",
    "_grid_sampler_2d_cpu_fallback": "grid_sample",
    "_lu_with_info": "lu",
    "_native_multi_head_attention": "MultiheadAttention",
    "cross_entropy_loss": "cross_entropy",
    "grid_sampler": "grid_sample",
    "grid_sampler_2d": "grid_sample",
    "grid_sampler_3d": "grid_sample",
    "multilabel_margin_loss_forward": "multilabel_margin_loss",
    "nll_loss2d": "nll_loss",
}
WITHOUT_PROGRAM = {"conv_tbc", "fake_quantize_per_tensor_affine", "mkldnn_rnn_layer"}


def test_every_operator_of_the_list_has_a_program() -> None:
    text = "\n".join(PROGRAMS)
    registered = torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCPU")
    names = {name.removeprefix("aten::").split(".")[0] for name in registered}
    for name in names - WITHOUT_PROGRAM:
        spelled = re.sub(r"^(fft|linalg)_", r"\1.", INNER.get(name, name))
        pad = re.fullmatch(r"(reflection|replication)_pad\dd", name)
        wanted = {"reflection": '"reflect"', "replication": '"replicate"'}[pad[1]] if pad else None
        assert (wanted or f"{spelled}(") in text, name


def test_each_listed_name_is_one_composite() -> None:
    listed = pkgutil.iter_modules(operators.__path__, "metaop.operators.")
    modules = [importlib.import_module(module.name) for module in listed]
    composites = {x for module in modules for x in vars(module).values() if type(x) is Composite}
    counts = Counter(composite.name for composite in composites)
    for lists in (IN_LOW_PRECISION, IN_FLOAT32):
        for names in lists.values():
            # `softplus` is also one of the pointwise functions, which are the same functions.
            assert [name for name in names if counts[name] > 1] == []
            assert names <= {*counts, *POINTWISE}


GRADIENTS = {
    "linear": "nn.functional.linear(x, y, v)",
    "matmul": "x @ y",
    "addmm": "addmm(x, y, z)",
    "conv2d": "nn.functional.conv2d(image, kernel)",
    "layer_norm": "nn.functional.layer_norm(x, (4,), v, w)",
    "softmax": "softmax(x, 0)",
    "prod": "prod(x)",
    "cdist": "cdist(x, y)",
    "mse_loss": "nn.functional.mse_loss(x, y)",
    "cross_entropy": "nn.functional.cross_entropy(x, classes)",
    "inverse": "linalg.inv(s)",
    "chain": "nn.functional.mse_loss(softmax(nn.functional.linear(x, y, v), 1), z)",
}


def gradients(library: Any, program: str, dtype: str) -> dict[str, Any]:
    """The gradient of each floating-point input that the program names."""
    names = Names(library, dtype, dtype)
    used = [n.id for n in ast.walk(ast.parse(program)) if isinstance(n, ast.Name)]
    inputs = {name: names[name].requires_grad_() for name in used if name in FLOATS}
    with library.autocast("cpu", dtype=library.bfloat16):
        result = eval(program, {}, names)
    result.float().square().sum().backward()
    return {name: tensor.grad for name, tensor in inputs.items()}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("program", GRADIENTS.values(), ids=GRADIENTS)
def test_gradients(program: str, dtype: str) -> None:
    expected = gradients(torch, program, dtype)
    found = gradients(metaop, program, dtype)
    assert {k: dtypes_of(v) for k, v in found.items()} == {
        k: dtypes_of(v) for k, v in expected.items()
    }
    for name, gradient in expected.items():
        wanted = gradient.double().numpy()
        # A few units in the last of bfloat16's 8 bits, of the largest element.
        atol = 0.03 * max(np.abs(wanted).max(), 1e-3)
        np.testing.assert_allclose(found[name].double().numpy(), wanted, rtol=0.03, atol=atol)


def test_blocks_inside_switch_off_and_on() -> None:
    for library in (torch, metaop):
        x = library.ones(2, 2)
        found = []
        with library.autocast("cpu", dtype=library.bfloat16):
            found.append((x @ x).dtype)
            with library.autocast("cpu", enabled=False):
                found.append((x @ x).dtype)
                found.append(library.prod(x.bfloat16()).dtype)
                with library.autocast("cpu", dtype=library.float16):
                    found.append((x @ x).dtype)
            found.append(library.linalg.inv(x + library.eye(2)).dtype)
            found.append((x @ x).dtype)
        found.append((x @ x).dtype)
        names = [str(dtype).split(".")[-1] for dtype in found]
        low, full = "bfloat16", "float32"
        assert names == [low, full, low, "float16", full, low, full]


def test_casts_are_on_again_after_an_error() -> None:
    with metaop.autocast("cpu", dtype=metaop.bfloat16):
        with pytest.raises(metaop.errors.MetaopError):
            metaop.cdist(metaop.ones(2, 3), metaop.ones(2, 4))
        assert (metaop.ones(2, 2) @ metaop.ones(2, 2)).dtype is metaop.bfloat16


def test_in_place_forms_refuse_what_they_refuse_without_casts() -> None:
    for library in (torch, metaop):
        x, rows = library.zeros(4, 4), library.ones(4, 4).bfloat16()
        with library.autocast("cpu", dtype=library.bfloat16), pytest.raises(RuntimeError):
            x.index_copy_(0, library.arange(4), rows)
