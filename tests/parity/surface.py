"""What of PyTorch's public modules metaop lacks: names, and `out=` of functions that are there."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch

import metaop
from tests.parity.names import resolve

MODULES = (
    *("", "Tensor", "nn", "nn.functional", "nn.init", "nn.utils", "linalg", "fft", "special"),
    *("signal.windows", "optim", "optim.lr_scheduler", "autograd", "func", "amp", "sparse"),
    *("masked", "distributions", "utils.data", "utils.checkpoint", "random"),
)


# Imported by modules that list no public names.
_HELPERS = {
    *("Tensor", "assert_int_or_pair", "boolean_dispatch", "handle_torch_function"),
    *("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"),
    *("rearrange", "swap_in_optimizer_params_and_state", "argument_validation"),
    *("runtime_validation", "as_sparse_gradcheck", "Container"),
}


# Whose documentation has `out=`, which PyTorch itself refuses.
DOCUMENTED_ONLY = (
    *("empty_like", "empty_permuted", "empty_strided", "hamming_window", "ones_like"),
    *("rand_like", "randn_like", "sparse_compressed_tensor", "std_mean", "to_sparse"),
    *("var_mean", "zeros_like"),
)


def public(path: str) -> Iterator[str]:
    """The public names of a module or class of PyTorch that are no modules."""
    owner = _found(torch, path)
    listed = getattr(owner, "__all__", None) or dir(owner)
    for name in sorted(set(listed)):
        value = getattr(owner, name, None)
        hidden = name.startswith("_") or name.endswith("_copy") or isinstance(value, ModuleType)
        if not hidden and name not in _HELPERS and (isinstance(value, torch.dtype) or _told(value)):
            yield name


def _told(value: Any) -> bool:
    """Whether PyTorch documents a function or class, and it is its own."""
    module = str(getattr(value, "__module__", None) or "torch")
    internal = module.startswith(("torch._C", "torch._jit_internal", "torch.overrides"))
    own = module.split(".")[0] == "torch" and not (internal and isinstance(value, type))
    text = getattr(value, "__doc__", None)
    plain = (
        callable(value)
        or isinstance(value, property)
        or type(value).__name__ == "getset_descriptor"
    )
    return own and plain and bool(text) and "Automatically" not in str(text)


def _found(library: Any, path: str) -> Any:
    return resolve(library, path.split(".")) if path else library


def absent_names(path: str) -> list[str]:
    """The public names below `path` that metaop has not."""
    mine = _found(metaop, path)
    return [name for name in public(path) if mine is None or not hasattr(mine, name)]


def absent_out(path: str) -> list[str]:
    """The functions below `path` that document `out=` in PyTorch and do not take it in metaop."""
    theirs, mine = _found(torch, path), _found(metaop, path)
    found = []
    for name in public(path):
        documented = "out=None" in str(getattr(theirs, name).__doc__)
        function = getattr(mine, name, None)
        documented = documented and name not in DOCUMENTED_ONLY
        if documented and callable(function) and not _takes_out(function):
            found.append(name)
    return found


def _takes_out(function: Any) -> bool:
    try:
        return "out" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
