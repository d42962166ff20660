"""Saving and loading: PyTorch's checkpoint files and safetensors, without PyTorch.

Reading runs no code that a file names, unless the caller allows it: see `unpickler`.
"""

from metaop.serialization.files import load, save
from metaop.serialization.safe_names import (
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    safe_globals,
)

__all__ = [
    "add_safe_globals",
    "clear_safe_globals",
    "get_safe_globals",
    "load",
    "safe_globals",
    "save",
]
