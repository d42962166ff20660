"""The versions of metaop and of the platforms, under the names of `torch.version`."""

from metaop import __version__

__all__ = ["__version__", "cuda", "debug", "git_version", "hip", "torch", "torchvision"]

# metaop is not built against a CUDA toolkit: it finds the compiler at run time.
cuda: str | None = None
hip: str | None = None
debug = False
git_version = "unknown"

# The PyTorch release whose names, arguments and defaults metaop follows; version checks see it.
torch = "2.13.0"
# Likewise the release of torchvision, for `metaop.vision`.
torchvision = "0.28.0"
