"""Looking inside: pending graphs, kernels and their code, profiles, and what this machine has."""

from metaop.inspect.information import info, self_test
from metaop.inspect.memory import MemoryRecord, memory
from metaop.inspect.profiler import Profile, profile
from metaop.inspect.texts import assembly, calls, cuda, graph, kernels, llvm, passes, sizes

__all__ = [
    "MemoryRecord",
    "Profile",
    "assembly",
    "calls",
    "cuda",
    "graph",
    "info",
    "kernels",
    "llvm",
    "memory",
    "passes",
    "profile",
    "self_test",
    "sizes",
]
