"""Utilities under the names that PyTorch gives them."""
