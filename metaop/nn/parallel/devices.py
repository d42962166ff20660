"""Checks devices that programs pass for a module that is already on one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metaop.errors import ArgumentError
from metaop.nn.module import Module
from metaop.tensor.options import device_of


def check_devices(module: Module, devices: Sequence[Any] | None, output: Any = None) -> None:
    """Raises ArgumentError unless the devices are those of the module's parameters.

    A number means a GPU.
    """
    named = [*(devices or ()), *([] if output is None else [output])]
    wanted = {device_of(one) for one in named}
    here = {parameter.device for parameter in module.parameters()}
    if wanted and here and wanted != here:
        raise ArgumentError(
            f"{type(module).__name__} is on {', '.join(sorted(map(str, here)))}, but was asked to "
            f"run on {', '.join(sorted(map(str, wanted)))}",
            fix="omit the devices, or move the module first; to use several devices, start "
            "several processes with DistributedDataParallel",
        )
