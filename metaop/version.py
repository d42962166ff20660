"""Versions: of metaop, and of the platforms that PyTorch's module of this name tells about."""

from metaop import __version__

__all__ = ["__version__", "cuda", "debug", "git_version", "hip", "torch"]

# metaop is not built against a CUDA toolkit: it finds the compiler at run time.
cuda: str | None = None
hip: str | None = None
debug = False
git_version = "unknown"

# The release of PyTorch whose names, arguments and defaults metaop has: what programs ask for when
# they compare versions.
torch = "2.13.0"
