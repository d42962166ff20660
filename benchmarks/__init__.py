"""What metaop costs beside PyTorch: `python -m benchmarks.run`."""
