"""Looking inside: pending graphs, kernels and their code, profiles, and what this machine has."""

from metaop.inspect.information import info, self_test
from metaop.inspect.profiler import Profile, profile
from metaop.inspect.texts import assembly, calls, cuda, graph, kernels, llvm, passes, sizes

__all__ = [
    "Profile",
    "assembly",
    "calls",
    "cuda",
    "graph",
    "info",
    "kernels",
    "llvm",
    "passes",
    "profile",
    "self_test",
    "sizes",
]
