"""`placement=` and `sbp=` for the functions that make tensors, and the mode that implies them.

Two decorators do it for all of them. What is computed from indices or a seed is made where it
lies: no rank makes more than its part. What comes from the host is on every rank, which keeps its
part.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from types import TracebackType
from typing import Any

from metaop.dist.placement import Placement
from metaop.errors import ArgumentError
from metaop.tensor.core import Tensor
from metaop.tensor.options import default_device
from metaop.tensor.sharded.global_tensor import SbpLike, distribute_tensor, spread_first, to_global
from metaop.tensor.sparse.layouts import SPARSE_LAYOUTS, layout, strided
from metaop.tensor.sparse.tensors import without_elements
from metaop.unified_graph.tensor_type import CPU, Device

Maker = Callable[..., Tensor]

# The arguments that every function which makes tensors has, with their defaults.
_OF_ALL = {"placement": None, "sbp": None, "layout": None, "pin_memory": False}
# What these make needs no element in a sparse layout.
_OF_ZEROS = ("empty", "empty_like", "zeros", "zeros_like")


class _Mode:
    """Where tensors are made inside of `global_mode`; `placement` is None outside."""

    placement: Placement | None = None
    sbp: SbpLike = ()


_mode = _Mode()


class global_mode:
    """Tensors that are made inside are global ones, on `placement` and sharded as `sbp`.

    That is for functions that name no device and no placement of their own, also inside of modules
    that are built. What has too little of a dimension to split is whole on every rank. With
    `enabled` False they are local again.

    >>> both = metaop.placement("cpu", ranks=[0, 1], simulate=True)
    >>> with metaop.distributed.global_mode(True, placement=both, sbp=metaop.sbp.split(0)):
    ...     metaop.zeros(4, 2).to_local().shape
    metaop.Size([2, 2])
    """

    def __init__(
        self, enabled: bool, placement: Placement | None = None, sbp: SbpLike | None = None
    ) -> None:
        if enabled and (placement is None or sbp is None):
            raise ArgumentError(
                "global_mode(True) needs placement and sbp",
                fix='global_mode(True, placement=placement.all("cpu"), sbp=sbp.broadcast)',
            )
        self._placement = placement if enabled else None
        self._sbp: SbpLike = () if sbp is None else sbp
        self._before: list[tuple[Placement | None, Any, Device]] = []

    def __enter__(self) -> None:
        self._before.append((_mode.placement, _mode.sbp, default_device.device))
        _mode.placement, _mode.sbp = self._placement, self._sbp
        if _mode.placement is not None:
            default_device.device = _mode.placement.device
        elif default_device.device.placement is not None:
            default_device.device = CPU

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _mode.placement, _mode.sbp, default_device.device = self._before.pop()


def placeable(function: Maker) -> Maker:
    """`function`, which makes a tensor where its argument `device` says, with placements."""

    def make(args: tuple, options: dict[str, Any], placement: Placement | None) -> Tensor:
        if placement is not None:
            options["device"] = placement.device
        return function(*args, **options)

    return _taking_placement(function, make)


def placeable_from_host(function: Maker) -> Maker:
    """`function`, which makes a tensor of what every rank has in its memory, with placements."""
    takes_device = "device" in signature(function).parameters

    def make(args: tuple, options: dict[str, Any], placement: Placement | None) -> Tensor:
        follows = bool(args) and isinstance(args[0], Tensor)
        if takes_device and not follows and (placement is not None or _is_implied(args, options)):
            options["device"] = CPU
        return function(*args, **options)

    return _taking_placement(function, make)


def _taking_placement(
    function: Maker, make: Callable[[tuple, dict[str, Any], Placement | None], Tensor]
) -> Maker:
    @wraps(function)
    def with_placement(
        *args: Any,
        placement: Placement | None = None,
        sbp: SbpLike | None = None,
        layout: layout | None = None,
        pin_memory: bool = False,
        **options: Any,
    ) -> Any:
        if layout not in (None, strided):
            if layout not in SPARSE_LAYOUTS or function.__name__ not in _OF_ZEROS:
                raise ArgumentError(
                    f"{function.__name__} of layout {layout}",
                    fix="make a strided tensor, and call to_sparse() or to_sparse_csr() on it",
                )
            made = with_placement(*args, placement=placement, sbp=sbp, **options)
            return without_elements(function.__name__, made, layout)
        if placement is None and sbp is None and _mode.placement is None:
            return function(*args, **options)
        implied = placement is None and sbp is None and _is_implied(args, options)
        if placement is not None:
            _check(function.__name__, options, sbp)
        tracks = options.pop("requires_grad", False)
        result = make(args, options, placement)
        if implied:
            assert _mode.placement is not None
            result = spread_first(result, _mode.placement, _mode.sbp)
        elif sbp is not None:
            result = _lying(function.__name__, result, placement, sbp)
        return result.requires_grad_() if tracks else result

    with_placement.__signature__ = _with_parameters(signature(function))  # type: ignore[attr-defined]
    return with_placement


def _is_implied(args: tuple, options: dict[str, Any]) -> bool:
    """Whether the mode says where the result lies: nothing else does."""
    follows = bool(args) and isinstance(args[0], Tensor)
    return _mode.placement is not None and options.get("device") is None and not follows


def _check(name: str, options: dict[str, Any], sbp: SbpLike | None) -> None:
    if sbp is None:
        raise ArgumentError(
            f"{name}: placement without sbp",
            fix="add sbp=sbp.broadcast, or sbp.split(d) for blocks of dimension d",
        )
    if options.get("device") is not None:
        raise ArgumentError(f"{name}: both device and placement", fix="leave device out")


def _lying(name: str, result: Tensor, placement: Placement | None, sbp: SbpLike) -> Tensor:
    here = result.device.placement
    if placement is None and here is None and _mode.placement is None:
        raise ArgumentError(
            f"{name}: sbp without placement", fix='add placement=placement.all("cpu")'
        )
    target = placement or here or _mode.placement
    assert target is not None
    make = distribute_tensor if here is None else to_global
    return make(result, target, sbp)


def _with_parameters(plain: Signature) -> Signature:
    """The signature with the arguments that all functions have, at its end."""
    parameters = list(plain.parameters.values())
    place = len(parameters)
    if parameters and parameters[-1].kind is Parameter.VAR_KEYWORD:
        place -= 1
    parameters[place:place] = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default)
        for name, default in _OF_ALL.items()
    ]
    return plain.replace(parameters=parameters)
