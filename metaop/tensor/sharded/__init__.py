"""Tensors that lie on several ranks."""
