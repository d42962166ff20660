"""Caches: compiled objects and tactics on disk, kernels by skeleton, and the keys of both."""
