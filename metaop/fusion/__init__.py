"""Fusion: from a graph of meta-operators to kernels that share loops, loads and rows in cache."""
