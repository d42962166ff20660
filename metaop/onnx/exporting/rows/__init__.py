"""The composites that have an operator in ONNX: one function for each, by theme."""

from metaop.onnx.exporting.rows import combining, layers, moving, tables, windows
from metaop.onnx.exporting.rows.base import ROWS, Operands
