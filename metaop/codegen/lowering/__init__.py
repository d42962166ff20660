"""Lowering: a kernel and its schedule become a loop nest."""

from metaop.codegen.lowering.base.kernel import LoweredKernel
from metaop.codegen.lowering.machine import Machine

__all__ = ["LoweredKernel", "Machine"]
