"""The build configuration, under the names of `torch.__config__`."""

from __future__ import annotations

import platform

import llvmlite
import numpy as np

from metaop.environment import get_num_threads
from metaop.version import __version__

__all__ = ["parallel_info", "show"]


def show() -> str:
    """The versions of metaop and its dependencies, for bug reports."""
    lines = (
        f"metaop {__version__} built with:",
        f"  - Python {platform.python_version()}",
        f"  - NumPy {np.__version__}",
        f"  - llvmlite {llvmlite.__version__}",
        f"  - {platform.platform()} on {platform.machine()}",
    )
    return "\n".join(lines) + "\n"


def parallel_info() -> str:
    """How many threads the kernels use."""
    return f"metaop.get_num_threads() : {get_num_threads()}\n"
