"""Introspection: pending graphs, kernels and their code, profiles, and this machine."""

from metaop.inspect.by_line import LineTime, Place
from metaop.inspect.examination import Examination, doctor
from metaop.inspect.findings import Finding
from metaop.inspect.information import info, self_test
from metaop.inspect.memory import MemoryRecord, memory
from metaop.inspect.pictures import Picture, picture
from metaop.inspect.profiler import Profile, profile
from metaop.inspect.texts import assembly, calls, cuda, graph, kernels, llvm, passes, sizes

__all__ = [
    "Examination",
    "Finding",
    "LineTime",
    "MemoryRecord",
    "Picture",
    "Place",
    "Profile",
    "assembly",
    "calls",
    "cuda",
    "doctor",
    "graph",
    "info",
    "kernels",
    "llvm",
    "memory",
    "passes",
    "picture",
    "profile",
    "self_test",
    "sizes",
]
