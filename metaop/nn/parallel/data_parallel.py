"""`DataParallel`: runs a module on the device of its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metaop.nn.module import Module
from metaop.nn.parallel.devices import check_devices


class DataParallel(Module):
    """Wraps a module as its attribute `module` and runs it on the device of its parameters.

    PyTorch splits the batch along `dim` over the GPUs of one process. Here one device computes it
    all, with the same result for any `dim`; to use several devices, start several processes with
    `DistributedDataParallel`. Raises ArgumentError for devices other than that of the module.

    >>> model = nn.DataParallel(nn.Linear(3, 2))
    >>> model(metaop.ones(4, 3)).shape
    metaop.Size([4, 2])
    """

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[Any] | None = None,
        output_device: Any = None,
        dim: int = 0,
    ) -> None:
        super().__init__()
        check_devices(module, device_ids, output_device)
        self.module = module
        self.device_ids = list(device_ids or [])
        self.output_device = output_device
        self.dim = dim

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)


def data_parallel(
    module: Module,
    inputs: Any,
    device_ids: Sequence[Any] | None = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: dict[str, Any] | None = None,
) -> Any:
    """Calls the module with `inputs`; see `DataParallel`."""
    check_devices(module, device_ids, output_device)
    arguments = inputs if isinstance(inputs, tuple) else (inputs,)
    return module(*arguments, **(module_kwargs or {}))
