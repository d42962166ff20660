"""Tools that change a trained network for the place where it runs."""

# The tools come first: they name the layers, which need their arithmetic.
from metaop.ao import quantization

# isort: split
from metaop.ao import nn

__all__ = ["nn", "quantization"]
