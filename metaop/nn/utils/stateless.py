"""Calling a module with given parameters and buffers instead of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from metaop.errors import ArgumentError
from metaop.nn.module import Module
from metaop.tensor.core import Tensor

_TABLES = ("_parameters", "_buffers")


def functional_call(
    module: Module,
    parameters_and_buffers: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]],
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Calls `module(*args, **kwargs)` with the given parameters and buffers.

    With `tie_weights` a tensor that the module has under several names is replaced under all of
    them; with `strict` every parameter and buffer must be given.

    `args` is a tuple of arguments, or one argument. Raises KeyError with `strict` for missing
    names.

    >>> layer = nn.Linear(2, 1)
    >>> values = {"weight": metaop.ones(1, 2), "bias": metaop.zeros(1)}
    >>> metaop.func.functional_call(layer, values, metaop.tensor([3.0, 4.0])).tolist()
    [7.0]
    """
    if isinstance(parameters_and_buffers, Mapping):
        values = dict(parameters_and_buffers)
    else:
        values = {key: value for part in parameters_and_buffers for key, value in part.items()}
    if strict:
        _check_names(module, values)
    if tie_weights:
        values = _with_ties(module, values)
    arguments = () if args is None else args if isinstance(args, tuple) else (args,)
    with reparametrised(module, values):
        return module(*arguments, **(kwargs or {}))


def _named(module: Module) -> dict[str, Tensor]:
    return dict(
        [
            *module.named_parameters(remove_duplicate=False),
            *module.named_buffers(remove_duplicate=False),
        ]
    )


def _check_names(module: Module, values: Mapping[str, Tensor]) -> None:
    own = _named(module)
    missing, unexpected = set(own) - set(values), set(values) - set(own)
    if missing or unexpected:
        raise ArgumentError(
            f"functional_call: missing keys {sorted(missing)}, unexpected keys {sorted(unexpected)}"
        )


def _with_ties(module: Module, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    own = _named(module)
    names: dict[int, list[str]] = {}
    for name, tensor in own.items():
        names.setdefault(id(tensor), []).append(name)
    result = dict(values)
    for name, value in values.items():
        tied = names.get(id(own.get(name)), [])
        if any(values.get(other, value) is not value for other in tied):
            raise ArgumentError(
                f"functional_call got multiple values for keys {sorted(tied)}, which are tied. "
                "Consider using tie_weights=False"
            )
        result.update(dict.fromkeys(tied, value))
    return result


@contextmanager
def reparametrised(module: Module, values: Mapping[str, Tensor]) -> Iterator[None]:
    """`module` with the given parameters and buffers until the block is left."""
    kept = []
    try:
        for name, value in values.items():
            path, _, last = name.rpartition(".")
            owner = module.get_submodule(path)
            tables = [vars(owner)[t] for t in _TABLES if last in vars(owner)[t]]
            if not tables:
                raise AttributeError(f"{type(module).__name__} has no parameter or buffer {name}")
            kept.append((tables[0], last, tables[0][last]))
            tables[0][last] = value
        yield
    finally:
        for table, last, own in reversed(kept):
            table[last] = own
