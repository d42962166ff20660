"""Sparse tensors and the layouts of memory."""
