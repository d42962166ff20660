"""Saving and loading: PyTorch's checkpoint files and safetensors, without PyTorch.

Reading never runs code that a file names: see `globals_table`.
"""

from metaop.serialization.files import load, save

__all__ = ["load", "save"]
