"""Benchmarks of metaop and PyTorch: `python -m benchmarks.run`."""
