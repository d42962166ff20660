"""Lowering: a kernel and its schedule become a loop nest."""

from metaop.codegen.lowering.base import LoweredKernel
from metaop.codegen.lowering.lower import Machine, lower

__all__ = ["LoweredKernel", "Machine", "lower"]
