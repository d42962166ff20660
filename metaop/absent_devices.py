"""What `metaop.mps` and `metaop.xpu` share: their devices are on no machine.

Everything answers as in PyTorch's CPU build: what only tidies up or seeds does nothing, and what
needs a device raises DeviceError.
"""

from __future__ import annotations

from typing import Any, NoReturn

from metaop.errors import DeviceError


def is_available() -> bool:
    """Never."""
    return False


def device_count() -> int:
    """Always 0."""
    return 0


def manual_seed(seed: int) -> None:
    """Does nothing: there are no random numbers of such a device."""


def needing_a_device(module: str, names: str) -> dict[str, Any]:
    """What raises DeviceError when it is called: classes where names say so, and functions."""
    return {name: _needing_a_device(module, name) for name in names.split()}


def _needing_a_device(module: str, name: str) -> Any:
    def refuse(*arguments: object, **keywords: object) -> NoReturn:
        raise DeviceError(
            f"{module}.{name}: there is no such device here",
            fix=f"ask {module}.is_available() first",
        )

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__module__, refuse.__doc__ = module, "Raises DeviceError."
    if not name[0].isupper():
        return refuse
    return type(name, (), {"__init__": refuse, "__module__": module, "__doc__": refuse.__doc__})
