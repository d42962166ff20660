"""Looking inside: pending graphs, kernels and their code, profiles, and what this machine has."""

from metaop.inspect.information import info, self_test
from metaop.inspect.profiler import Profile, profile
from metaop.inspect.texts import assembly, calls, graph, kernels, llvm

__all__ = [
    "Profile",
    "assembly",
    "calls",
    "graph",
    "info",
    "kernels",
    "llvm",
    "profile",
    "self_test",
]
