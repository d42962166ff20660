"""Which results are in the memory of their argument, as PyTorch has it.

Each function is called twice: a write to the result shows whether the argument sees it, and a write
to the argument whether the result does.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import metaop

torch = pytest.importorskip("torch")

Function = Callable[[Any, Any], Any]


def in_module(lib: Any, x: Any, register: Callable[[Any, Any], None]) -> Any:
    module = lib.nn.Module()
    register(module, x)
    return module.state_dict()["x"]


def checkpointed(lib: Any, x: Any) -> Any:
    return lib.utils.checkpoint.checkpoint(lambda t: t.view(-1), x, use_reentrant=False)


SAME: dict[str, Function] = {
    "+x": lambda lib, x: +x,
    "as_tensor": lambda lib, x: lib.as_tensor(x),
    "asarray": lambda lib, x: lib.asarray(x),
    "atleast_1d": lambda lib, x: lib.atleast_1d(x),
    "broadcast_tensors": lambda lib, x: lib.broadcast_tensors(x, lib.ones(2, 3))[0],
    "conj": lambda lib, x: x.conj(),
    "contiguous": lambda lib, x: x.contiguous(),
    "cpu": lambda lib, x: x.cpu(),
    "default_convert": lambda lib, x: lib.utils.data.default_convert(x),
    "dropout": lambda lib, x: lib.nn.functional.dropout(x, training=False),
    "Dropout": lambda lib, x: lib.nn.Dropout().eval()(x),
    "float": lambda lib, x: x.float(),
    "Identity": lambda lib, x: lib.nn.Identity()(x),
    "real": lambda lib, x: x.real,
    "relu, in place": lambda lib, x: lib.nn.functional.relu(x, inplace=True),
    "requires_grad_": lambda lib, x: x.requires_grad_(False),
    "resolve_conj": lambda lib, x: x.resolve_conj(),
    "to": lambda lib, x: x.to(lib.float32),
    "type_as": lambda lib, x: x.type_as(x),
}
SHARED: dict[str, Function] = {
    "adjoint": lambda lib, x: x.adjoint(),
    "as_strided": lambda lib, x: x.as_strided((2, 2), (3, 1)),
    "atleast_3d": lambda lib, x: lib.atleast_3d(x),
    "broadcast_to": lambda lib, x: lib.broadcast_to(x, (2, 3)),
    "Buffer": lambda lib, x: lib.nn.Buffer(x),
    "cartesian_prod": lambda lib, x: lib.cartesian_prod(x[0]),
    "checkpoint": checkpointed,
    "chunk": lambda lib, x: x.chunk(2, 1)[0],
    "copy": lambda lib, x: copy.copy(x),
    "data": lambda lib, x: x.data,
    "detach": lambda lib, x: x.detach(),
    "diagonal": lambda lib, x: x.diagonal(),
    "expand": lambda lib, x: x[:1].expand(1, 3),
    "expand_as": lambda lib, x: x.expand_as(x),
    "flatten": lambda lib, x: x.flatten(),
    "Flatten": lambda lib, x: lib.nn.Flatten(0)(x),
    "from_dlpack": lambda lib, x: lib.utils.dlpack.from_dlpack(x),
    "from_pretrained": lambda lib, x: lib.nn.Embedding.from_pretrained(x).weight,
    "hsplit": lambda lib, x: lib.hsplit(x, [1])[1],
    "meshgrid": lambda lib, x: lib.meshgrid(x[0], indexing="ij")[0],
    "movedim": lambda lib, x: x.movedim(0, 1),
    "mT": lambda lib, x: x.mT,
    "narrow": lambda lib, x: x.narrow(1, 0, 2),
    "Parameter": lambda lib, x: lib.nn.Parameter(x, requires_grad=False),
    "permute": lambda lib, x: x.permute(1, 0),
    "ravel": lambda lib, x: x.ravel(),
    "reshape": lambda lib, x: x.reshape(3, 2),
    "select": lambda lib, x: x.select(0, 1),
    "set_": lambda lib, x: lib.empty(0).set_(x),
    "split": lambda lib, x: x.split(1)[1],
    "squeeze": lambda lib, x: x.unsqueeze(1).squeeze((1,)),
    "state_dict, buffer": lambda lib, x: in_module(
        lib, x, lambda module, x: module.register_buffer("x", x)
    ),
    "state_dict, parameter": lambda lib, x: in_module(
        lib, x, lambda module, x: setattr(module, "x", lib.nn.Parameter(x, False))
    ),
    "swapaxes": lambda lib, x: x.swapaxes(0, 1),
    "T": lambda lib, x: x.T,
    "tensor_split": lambda lib, x: x.tensor_split(2)[0],
    "unbind": lambda lib, x: x.unbind(0)[1],
    "unflatten": lambda lib, x: x.unflatten(1, (3, 1)),
    "unfold": lambda lib, x: x.unfold(1, 2, 1)[0],
    "unsqueeze": lambda lib, x: x.unsqueeze(0),
    "view": lambda lib, x: x.view(-1),
    "vsplit": lambda lib, x: lib.vsplit(x, 2)[0],
    "x[...]": lambda lib, x: x[...],
    "x[0]": lambda lib, x: x[0],
    "x[:, 1:]": lambda lib, x: x[:, 1:],
    "x[None]": lambda lib, x: x[None],
}
APART: dict[str, Function] = {
    "-x": lambda lib, x: -x,
    "block_diag": lambda lib, x: lib.block_diag(x),
    "cat": lambda lib, x: lib.cat([x]),
    "clamp": lambda lib, x: x.clamp(-9, 9),
    "clone": lambda lib, x: x.clone(),
    "collate": lambda lib, x: lib.utils.data.default_collate([x[0], x[1]]),
    "deepcopy": lambda lib, x: copy.deepcopy(x),
    "diag": lambda lib, x: x.diag(),
    "double": lambda lib, x: x.double(),
    "flatten of a transposed one": lambda lib, x: x.t().flatten(),
    "flip": lambda lib, x: x.flip(0),
    "index_select": lambda lib, x: x.index_select(0, lib.tensor([0, 1])),
    "lerp": lambda lib, x: x.lerp(x, 0.0),
    "masked_select": lambda lib, x: x.masked_select(x > -9),
    "nan_to_num": lambda lib, x: x.nan_to_num(),
    "pad": lambda lib, x: lib.nn.functional.pad(x, (0, 0)),
    "pad_sequence": lambda lib, x: lib.nn.utils.rnn.pad_sequence([x[0], x[1]]),
    "parameters_to_vector": lambda lib, x: lib.nn.utils.parameters_to_vector([x]),
    "pickle": lambda lib, x: pickle.loads(pickle.dumps(x)),
    "repeat": lambda lib, x: x.repeat(1, 1),
    "roll": lambda lib, x: x.roll(0),
    "round": lambda lib, x: x.round(decimals=5),
    "sort": lambda lib, x: x.sort()[0],
    "stack": lambda lib, x: lib.stack([x]),
    "take": lambda lib, x: x.take(lib.arange(6)),
    "tile": lambda lib, x: x.tile(1, 1),
    "to, copied": lambda lib, x: x.to(lib.float32, copy=True),
    "transposed contiguous": lambda lib, x: x.t().contiguous(),
    "triu": lambda lib, x: x.triu(-5),
    "where": lambda lib, x: lib.where(lib.tensor(True), x, x),
    "x * 1": lambda lib, x: x * 1,
    "x / 1": lambda lib, x: x / 1,
    "x ** 1": lambda lib, x: x**1,
    "x + 0": lambda lib, x: x + 0,
    "x[:, [0]]": lambda lib, x: x[:, [0]],
    "x[[0, 1]]": lambda lib, x: x[[0, 1]],
    "x[mask]": lambda lib, x: x[x > -9],
}


def argument(lib: Any) -> Any:
    return lib.arange(1.0, 7.0).view(2, 3).clone()


def sharing(lib: Any, function: Function) -> tuple[bool, ...]:
    """Whether a write to the result is seen, one to the argument is, and whether they are one."""
    x = argument(lib)
    result, before = function(lib, x), x.clone()
    with lib.no_grad():
        # Not all results can be written: several of their elements may be one in memory.
        result[(0,) * result.ndim] = 50
    of_result = not lib.equal(before, x)
    x = argument(lib)
    result = function(lib, x)
    before = result.clone()
    x.fill_(-3)
    return of_result, not lib.equal(before, result), result is x


@pytest.mark.parametrize("name", [*SAME, *SHARED, *APART])
def test_memory_is_shared_as_in_pytorch(name: str) -> None:
    function = {**SAME, **SHARED, **APART}[name]
    found = sharing(metaop, function)
    wanted = (name not in APART, name not in APART, name in SAME)
    assert found == wanted == sharing(torch, function)
