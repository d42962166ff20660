"""The composites with an ONNX operator: one function each, grouped by theme."""

from metaop.onnx.exporting.rows import combining, layers, moving, tables, windows
from metaop.onnx.exporting.rows.base import ROWS, Operands
